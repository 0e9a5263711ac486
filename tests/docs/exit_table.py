"""The table of exit codes as Markdown, as deploy/README.md and docs/cluster.md show it."""

from __future__ import annotations

from weft.deploy.cli.exits import EXIT_CODES


def exit_table() -> str:
    """Return the table as Markdown."""
    rows = ["| code | command | meaning |", "|--:|---|---|"]
    for row in EXIT_CODES:
        names = ", ".join(f"`weft {name}`" for name in row.commands.split(", ") if name) or "all"
        rows.append(f"| {row.code} | {names} | {row.meaning} |")
    return "\n".join(rows) + "\n"
