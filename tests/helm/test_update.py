"""The README of the chart is up to date."""

from __future__ import annotations

import pytest

from tests.helm.update import CHART, readme
from tests.tools.find import tool

pytestmark = pytest.mark.slow


def test_the_readme_has_the_values_as_they_are():
    assert (CHART / "README.md").read_text() == readme(tool("helm-docs")), "run `make chart`"


def test_each_value_has_a_whole_description() -> None:
    # A comment line that begins with "--" starts a new description, and the one before it is lost.
    rows = [line for line in (CHART / "README.md").read_text().splitlines() if line.count("|") > 4]
    texts = [row.split("|")[4].strip() for row in rows if " `" in row]
    assert len(texts) > 50
    for text in texts:
        assert text[:1].isupper() or text[:1] == "`", text
        assert text.count("`") % 2 == 0, text
