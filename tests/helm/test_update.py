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
