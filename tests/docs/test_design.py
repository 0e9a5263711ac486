"""The pages of the design: short pages, short sentences, names of files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.test_layout import SETUPTOOLS
from tests.test_style import TEXT_FILES

DOCS = ROOT / "docs"
FIRST = DOCS / "design.md"
PAGES = [FIRST, *sorted((DOCS / "design").glob("*.md"))]
MAX_WORDS = 30
MAX_LINES = 150
#: The first page fits on a screen.
MAX_LINES_OF_FIRST = 50

_ITEM = re.compile(r"\s*([-*] |\d+\. )")
_END = re.compile(r"[.?!](?=\s|\)|$)")


def blocks(text: str) -> Iterator[str]:
    """Yield the paragraphs, items, headings and cells of a page, without code and markup."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)  # code; items are indented by less
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "")
    open_block: list[str] = []
    for line in [*text.splitlines(), ""]:
        is_alone = line.startswith(("|", "#"))
        if open_block and (is_alone or not line.strip() or _ITEM.match(line)):
            yield " ".join(open_block)
            open_block = []
        if is_alone:
            yield from line.split("|")
        elif line.strip():
            open_block.append(line.strip())


def sentences(text: str) -> Iterator[str]:
    for block in blocks(text):
        yield from _END.split(block)


def n_words(sentence: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in sentence.split())


def test_sentences_are_told_apart():
    text = (
        "# T\n\n- **One.** Two (`a.b. c`, 0.5 s)\n  goes on.\n- Three\n\n    code. code.\n\n"
        "| four | 5 |"
    )
    found = [sentence.strip() for sentence in sentences(text) if n_words(sentence)]
    assert found == ["# T", "- One", "Two (code, 0.5 s) goes on", "- Three", "four", "5"]
    assert [*map(n_words, found)] == [1, 1, 6, 1, 1, 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_sentences_of_the_design_are_short(page: Path):
    text = page.read_text(encoding="utf-8")
    assert [found.strip() for found in sentences(text) if n_words(found) > MAX_WORDS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_pages_of_the_design_are_short(page: Path):
    n_lines = page.read_text(encoding="utf-8").count("\n")
    assert n_lines <= (MAX_LINES_OF_FIRST if page == FIRST else MAX_LINES)


def test_the_first_page_leads_to_all_others():
    links = re.findall(r"\]\(design/(\w+)\.md\)", FIRST.read_text(encoding="utf-8"))
    assert sorted(links) == [page.stem for page in PAGES[1:]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_the_design_names_exist(page: Path):
    named = re.findall(r"`([\w/]+/(?:\w+\.(?:py|md))?)`", page.read_text(encoding="utf-8"))
    assert [name for name in named if "/" in name and not names_a_file(name)] == []


def names_a_file(name: str) -> bool:
    """Return whether a path exists, or a folder of this name somewhere in the tree."""
    return (ROOT / name).exists() or (name.endswith("/") and is_folder(name[:-1]))


def is_folder(name: str) -> bool:
    return any(f"/{name}/" in f"/{path}" for path in TEXT_FILES)


def rooms_with_their_pages() -> dict[str, str]:
    """Return the table of rooms.md by room; a room without a path lies beside the one before it."""
    pages = {}
    table = (DOCS / "design" / "rooms.md").read_text(encoding="utf-8").split("| rooms | page |")[1]
    for rooms, page in re.findall(r"^\| (.*`) \| (.*) \|$", table, re.MULTILINE):
        folder = ""
        for path in re.findall(r"`(?:(\w+(?:/\w+)*)/)?(\w+)/`", rooms):
            folder = path[0] or folder
            pages[f"{folder}/{path[1]}".removeprefix("/")] = page
    return pages


def test_each_room_has_a_page_and_each_listed_room_exists():
    pages = rooms_with_their_pages()
    rooms = {package.replace(".", "/") for package in SETUPTOOLS["packages"]} - {"weft"}
    beside = ("weft/compat", "weft/graphs")
    rooms = {room if room.startswith(beside) else room.removeprefix("weft/") for room in rooms}
    assert pages.keys() <= rooms
    same_name = {Path(room).name for room, page in pages.items() if page == "of the same name"}
    assert same_name <= {page.stem for page in PAGES}
    # A room is listed, or within one that is, or has others that are.
    assert [
        room
        for room in sorted(rooms)
        if not any(f"{room}/".startswith(f"{one}/") or one.startswith(f"{room}/") for one in pages)
    ] == []


def test_references_to_the_design_name_a_page_that_exists():
    wrong = []
    for name in TEXT_FILES:
        text = (ROOT / name).read_text(encoding="utf-8")
        # Pages have no numbered sections.
        found = re.findall(r"docs/design[\w/]*\.md(?:,\s+(?:#\s*)?\d[\d.]*)?", text)
        wrong += [(name, page) for page in found if not (ROOT / page).is_file()]
    assert wrong == []
