"""The files of the chart that are made from others are up to date."""

from __future__ import annotations

import pytest

from tests.helm.update import CHART, copies, readme
from tests.tools.find import tool

pytestmark = pytest.mark.slow

STALE = "run `make chart`"


def test_the_readme_has_the_values_as_they_are():
    assert (CHART / "README.md").read_text() == readme(tool("helm-docs")), STALE


def test_the_copies_are_those_of_the_monitoring():
    there = {path: path.read_text() for path in (CHART / "files").glob("*") if path.is_file()}
    assert there == copies(), STALE


def test_each_value_has_a_whole_description() -> None:
    # A comment line that begins with "--" starts a new description, and the one before it is lost.
    rows = [line for line in (CHART / "README.md").read_text().splitlines() if line.count("|") > 4]
    texts = [row.split("|")[4].strip() for row in rows if " `" in row]
    assert len(texts) > 50
    for text in texts:
        assert text[:1].isupper() or text[:1] == "`", text
        assert text.count("`") % 2 == 0, text
