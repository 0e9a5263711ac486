"""The pages of the site: what they say about messages and links holds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("design/*.md"), *DOCS.glob("gallery/*.md")])
SOURCES = ("protocol", "scheduler", "worker", "client", "deploy", "weft")


def _messages() -> list[str]:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)


@pytest.fixture(scope="module")
def texts() -> str:
    """All sources, with the parts of texts that are split over lines joined."""
    found = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
    )
    return re.sub(r'"\s*\n\s*f?"', "", found)


@pytest.mark.parametrize("message", _messages())
def test_a_message_of_troubleshooting_is_one_that_weft_prints(message: str, texts: str) -> None:
    parts = [part.strip() for part in message.split("…") if part.strip()]
    assert parts
    for part in parts:
        assert part in texts, f"no source has {part!r}"


def test_each_page_is_in_the_index_or_the_gallery() -> None:
    index = "\n".join(
        (DOCS / name).read_text(encoding="utf-8") for name in ("index.md", "gallery.md")
    )
    listed = set(re.findall(r"^([\w/]+)$", index, re.MULTILINE))
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES}
    assert pages - {"index", "README"} <= listed


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_links_to_nothing_outside_the_site(page: Path) -> None:
    """The site has the pages of docs/ alone; `make docs` checks the links between them."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]*)", page.read_text(encoding="utf-8"))
    assert [x for x in links if not (page.parent / x).resolve().is_relative_to(DOCS)] == []
