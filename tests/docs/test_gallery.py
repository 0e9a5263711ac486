"""The programs of docs/gallery run, and their pages have them and what they print."""

from __future__ import annotations

import pytest

from tests.docs.gallery_pages import (
    GALLERY,
    OUTPUT,
    OUTPUT_VARIES,
    PROGRAM,
    PROGRAMS,
    block_behind,
    masked,
    output_of,
    page_of,
)

each = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
AGAIN = "run: python -m tests.docs.gallery_pages"


@pytest.mark.slow
@each
def test_a_program_of_the_gallery_prints_what_its_page_shows(program, tmp_path):
    page = page_of(program).read_text(encoding="utf-8")
    shown = block_behind(OUTPUT_VARIES if OUTPUT_VARIES in page else OUTPUT, page)
    assert masked(page, output_of(program, tmp_path)) == masked(page, shown), AGAIN


@each
def test_the_page_of_a_program_has_its_text(program):
    page = page_of(program).read_text(encoding="utf-8")
    text = program.read_text(encoding="utf-8")
    assert block_behind(PROGRAM, page) == text, AGAIN
    assert 30 <= len(text.splitlines()) <= 80


def test_the_gallery_lists_each_program():
    listed = (GALLERY.parent / "gallery.md").read_text(encoding="utf-8")
    missing = [p.stem for p in PROGRAMS if f"](gallery/{p.stem}.md)" not in listed]
    assert missing == []
