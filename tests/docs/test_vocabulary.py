"""The words that gave way, by the table of the vocabulary: none of them comes back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_style import PYTHON_FILES, ROOT, TEXT_FILES, text_of

PAGE = "docs/design/vocabulary.md"
#: Helm calls an installed chart a release.
OF_HELM = re.compile(r"kube|helm|^deploy/cli/connect\.py$")


def rows() -> Iterator[tuple[str, str]]:
    """Yield the words of each row, and the places."""
    _, _, table = (ROOT / PAGE).read_text().partition("## Words that gave way")
    for line in table.splitlines():
        if line.startswith("|") and not line.startswith(("| not", "|---")):
            _, words, _, places, *_ = map(str.strip, line.split("|"))
            yield words, places


def names_in(text: str) -> set[str]:
    """Return the names that a program gives or uses, without those of arguments of calls."""
    return {
        name
        for node in ast.walk(ast.parse(text))
        for field in ("id", "attr", "arg", "name")
        if isinstance(name := getattr(node, field, None), str) and not isinstance(node, ast.keyword)
    }


def is_at(file: str, places: str) -> bool:
    return places == "all" or any(
        file == place or file.startswith(f"{place}/") for place in places.split()
    )


ROWS = [*rows()]


def test_the_table_was_found():
    assert len(ROWS) > 5
    missing = [p for _, places in ROWS for p in places.split() if p != "all"]
    assert [place for place in missing if not (ROOT / place).exists()] == []


@pytest.mark.parametrize(("words", "places"), ROWS)
def test_words_that_gave_way_are_no_names(words: str, places: str) -> None:
    gone = {*re.findall(r"`(\w+)`", words)}
    found = {
        file: both
        for file in PYTHON_FILES
        if is_at(file, places)
        and any(word in text_of(file) or Path(file).stem == word for word in gone)
        and (both := gone & {*names_in(text_of(file)), Path(file).stem})
    }
    assert found == {}


@pytest.mark.parametrize(("words", "places"), ROWS)
def test_words_that_gave_way_are_in_no_text(words: str, places: str) -> None:
    phrases = re.findall(r"\*([\w ]+)\*", words)
    if not phrases:
        return
    # A text goes on over the end of a line of a comment or of a string.
    gap = r"""(?:\s|#|"|\bf")+"""
    gone = re.compile("|".join(gap.join(phrase.split()) + r"\b(?!'s)" for phrase in phrases))
    found = {
        file: both
        for file in TEXT_FILES
        if is_at(file, places)
        and file != PAGE
        and not OF_HELM.search(file)
        and (both := gone.findall(text_of(file)))
    }
    assert found == {}
