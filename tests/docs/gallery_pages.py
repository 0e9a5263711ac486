"""Writes programs and their output into the pages of docs/gallery.

    python -m tests.docs.gallery_pages

Each page has the program of the same name, in the block behind `PROGRAM`, and what it prints, in
the block behind `OUTPUT`. Where the page has `OUTPUT_VARIES` instead, the numbers of the output may
be others.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.deploy.daemons import environment

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
PROGRAM = "<!-- the program: `python -m tests.docs.gallery_pages` -->\n```python\n"
OUTPUT = "<!-- its output -->\n```text\n"
OUTPUT_VARIES = "<!-- its output: numbers vary -->\n```text\n"
PROGRAMS = sorted(GALLERY.glob("*.py"))


def page_of(program: Path) -> Path:
    """Return the page of a program."""
    return program.with_suffix(".md")


def block_behind(mark: str, page: str) -> str:
    """Return what a page has in the block behind a mark."""
    return page.partition(mark)[2].partition("```\n")[0]


def with_block(mark: str, text: str, page: str) -> str:
    """Return the page with another text in the block behind a mark, if it has that."""
    before, found, after = page.partition(mark)
    return before + found + text + "```\n" + after.partition("```\n")[2] if found else page


def output_of(program: Path, folder: Path) -> str:
    """Run a program in a folder of its own; return what it has printed."""
    run_directory = folder / "run"
    done = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        timeout=120,
        env=environment(run_directory),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def masked(page: str, output: str) -> str:
    """Return an output without what may vary: numbers, and the blanks that align them."""
    return re.sub(r" *[\d.]+", " #", output) if OUTPUT_VARIES in page else output


def main() -> None:
    """Write the pages."""
    for program in PROGRAMS:
        page = page_of(program).read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            output = output_of(program, Path(folder))
        for mark, text in (
            (PROGRAM, program.read_text(encoding="utf-8")),
            (OUTPUT, output),
            (OUTPUT_VARIES, output),
        ):
            page = with_block(mark, text, page)
        page_of(program).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
