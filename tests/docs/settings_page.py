"""Writes the tables of docs/settings.md: `python -m tests.docs.settings_page`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weft.protocol.settings.kinds import Flag
from weft.protocol.settings.setting import Setting
from weft.protocol.settings.table import SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"

#: What follows is written from the table.
MARK = "<!-- Below: `python -m tests.docs.settings_page`; a test compares. -->\n"

#: {section: the programs that read it}
READERS = {
    "": "all programs",
    "scheduler": "`weft scheduler`",
    "worker": "`weft worker`",
    "client": "`weft.Client`",
    "local": "`weft.LocalCluster`, and `weft.Client()` that starts one",
}


def _default(setting: Setting[Any]) -> str:
    if setting.shown_default or setting.default is None:
        return setting.shown_default or ""
    return str(setting.kind.show(setting.default))


def _row(setting: Setting[Any]) -> str:
    default = _default(setting)
    names = [setting.key]
    if setting.has_option:
        names += setting.option.split("/") if isinstance(setting.kind, Flag) else [setting.option]
    names.append(setting.environment)
    text = setting.text.replace("|", "\\|").replace("$XDG", "\\$XDG")
    words = setting.kind.words.replace("|", "\\|")
    # One below the other: beside each other they are wider than a page.
    cell = "<br>".join(f"`{name}`" for name in names)
    shown = f" Default: `{default}`." if default else ""
    return f"| {cell} | {text} *({words})*{shown} |"


def lines() -> Iterator[str]:
    """Yield the lines of the page."""
    for section, settings in SECTIONS.items():
        yield f"## `[{section}]`" if section else "## At the top of a file"
        yield f"\nRead by {READERS[section]}.\n"
        yield "| name in a file, option, variable | meaning |"
        yield "|---|---|"
        yield from map(_row, settings)
        yield ""


def page() -> str:
    """Return the whole page: the introduction as it is, and the table."""
    introduction = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    return introduction + MARK + "\n" + "\n".join(lines()).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
