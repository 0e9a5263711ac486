"""Grafana's dashboard: made of the table, and held against Grafana's published types."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.find import tool
from weft.deploy.monitoring.panels import PANELS, ROWS, VARIABLES

FOLDER = Path(__file__).parents[3] / "deploy" / "monitoring"
FILE = FOLDER / "grafana" / "weft.json"
#: JSON has texts where Grafana's types have enums: Plain makes them the texts of their members.
TYPES = """
import type {{ Dashboard }} from "{schema}/dashboard/x/types.gen";
import type * as stat from "{schema}/composable/stat/panelcfg/x/types.gen";
import type * as timeseries from "{schema}/composable/timeseries/panelcfg/x/types.gen";
type Plain<T> = T extends string ? `${{T}}`
  : T extends number
    ? (number extends T ? T : `${{T}}` extends `${{infer N extends number}}` ? N : never)
  : T extends readonly (infer U)[] ? Plain<U>[]
  : T extends object ? {{ [K in keyof T]: Plain<T[K]> }}
  : T;
"""


@pytest.fixture(scope="module")
def dashboard() -> dict:
    return json.loads(FILE.read_text())


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Grafana's SDK needs Python 3.11")
def test_the_dashboard_is_what_the_table_makes() -> None:
    from weft.deploy.monitoring.dashboard import render

    made = render()
    assert FILE.read_text() == made, "python -m weft.deploy.monitoring.dashboard makes it anew"


def _type_errors(source: str, folder: Path) -> list[str]:
    schema = tool("@grafana/schema") / "dist" / "types" / "raw"
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: install Node.js 18 or later")
    compiler = tool("typescript") / "bin" / "tsc"
    file = folder / "dashboard.ts"
    file.write_text(TYPES.format(schema=schema) + source)
    flags = "--noEmit --strict --skipLibCheck --moduleResolution bundler --module esnext"
    done = subprocess.run(
        [node, compiler, *flags.split(), "--target", "es2022", file],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if "error TS" in line]
    assert bool(errors) == bool(done.returncode), done.stdout + done.stderr
    return errors


def _declarations(dashboard: dict) -> str:
    lines = [f"export const dashboard: Plain<Dashboard> = {json.dumps(dashboard)};"]
    for panel in dashboard["panels"]:
        kind, number = panel["type"], panel["id"]
        if kind != "row":
            options = json.dumps(panel["options"])
            lines.append(f"export const o{number}: Plain<{kind}.Options> = {options};")
        if kind == "timeseries":
            custom = json.dumps(panel["fieldConfig"]["defaults"]["custom"])
            lines.append(f"export const f{number}: Plain<timeseries.FieldConfig> = {custom};")
    return "\n".join(lines)


@pytest.mark.slow
def test_the_dashboard_has_grafanas_types(dashboard: dict, tmp_path: Path) -> None:
    assert _type_errors(_declarations(dashboard), tmp_path) == []


@pytest.mark.slow
def test_a_wrong_field_and_a_wrong_value_are_errors_of_grafanas_types(
    dashboard: dict, tmp_path: Path
) -> None:
    graph = next(panel for panel in dashboard["panels"] if panel["type"] == "timeseries")
    graph["options"]["legend"]["nonsense"] = 1
    graph["options"]["tooltip"]["mode"] = "mulit"
    errors = "\n".join(_type_errors(_declarations(dashboard), tmp_path))
    assert "nonsense" in errors
    assert "mulit" in errors


def test_each_panel_has_a_place_of_its_own(dashboard: dict) -> None:
    cells: dict[tuple[int, int], int] = {}
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            assert x < 24
            for y in range(place["y"], place["y"] + place["h"]):
                other = cells.setdefault((x, y), panel["id"])
                assert other == panel["id"], f"{panel['title']} lies on panel {other}"


def test_each_query_selects_by_all_variables() -> None:
    for panel in PANELS:
        for query in panel.queries:
            for series in re.findall(r"(?:weft|process)_\w+\{[^}]*\}", query.expr):
                assert all(f'=~"${name}"' in series for name in VARIABLES), (panel.title, series)
            assert re.search(r"\b(weft_|process_|ALERTS)", query.expr), query.expr


def test_titles_are_distinct_and_each_panel_says_how_to_read_it() -> None:
    for row in ROWS:
        titles = [panel.title for panel in row.panels]
        assert len(set(titles)) == len(titles), row.title
        assert all(panel.text.endswith(".") for panel in row.panels)
