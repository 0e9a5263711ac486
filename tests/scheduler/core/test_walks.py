"""The walks are what the core does today, and their page leads to all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scheduler.core.walks import FILES, FOLDER, played

README = (FOLDER / "README.md").read_text(encoding="utf-8")
CORE = Path(__file__).parents[3] / "scheduler" / "core"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_walk_is_what_the_core_does(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert played(text) == text, "if it is meant: python -m tests.scheduler.core.walks"


def test_answers_that_are_wrong_or_missing_are_written_anew() -> None:
    text = FILES[0].read_text(encoding="utf-8")
    assert "\n< alice ResultsReady a result=42\n" in text
    assert played(text.replace("ResultsReady a", "ResultsReady b")) == text
    assert played(re.sub("^[<=].*\n", "", text, flags=re.MULTILINE)) == text


def test_the_page_lists_all_walks_in_order_and_modules_that_exist() -> None:
    assert re.findall(r"\((\w+\.txt)\)", README) == [file.name for file in FILES]
    modules = re.findall(r"`([\w/]+\.py)`", README.partition("## Notation")[0])
    assert len(modules) > len(FILES)
    assert [name for name in modules if not (CORE / name).is_file()] == ["test_walks.py"]
