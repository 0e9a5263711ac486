"""The table of moves in scheduler/README.md is the table in transitions.py."""

from __future__ import annotations

from pathlib import Path

from weft.scheduler.core.moves.transitions import TRANSITIONS

README = Path(__file__).parents[2] / "scheduler" / "README.md"


def table() -> str:
    """Render the transitions as README.md shows them."""
    rows = [f"| {start} | {finish} | {why} |" for (start, finish), why in TRANSITIONS.items()]
    return "\n".join(["| from | to | because |", "|---|---|---|", *rows]) + "\n"


def test_readme_shows_the_transitions_of_the_code() -> None:
    assert table() in README.read_text(encoding="utf-8"), f"put this into {README}:\n{table()}"
