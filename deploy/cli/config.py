"""`weft config`: each setting, its value here, and where it came from."""

from __future__ import annotations

from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from ...protocol.errors import ConfigError
from ...protocol.settings.kinds import Flag, Resources, Texts, Whole
from .group import weft

_WIDTH: Final = 42


def _complete_name(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from ...protocol.settings.table import BY_NAME, SECTIONS

    names = [*filter(None, SECTIONS), *BY_NAME]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@weft.command(short_help="Show each setting, its value, and where it came from.")
@click.argument("name", required=False, shell_complete=_complete_name)
@click.option("--json", "as_json", is_flag=True, help="Print an object, for programs.")
def config(name: str | None, as_json: bool) -> None:
    """Show each setting, its value on this machine, and where it came from.

    With NAME only one setting, such as scheduler.port, or one section, such as worker.

    \b
    Each source comes before those above it:
      /etc/weft/weft.toml
      $XDG_CONFIG_HOME/weft/weft.toml, or ~/.config/weft/weft.toml
      the file that $WEFT_CONFIG names
      $WEFT_... variables
      the options of a command, or the arguments in Python

    A wrong name or value in one of them is an error of every command, with the file's line.

    \b
    Examples:
      weft config
      weft config worker.nthreads
    """
    import json

    from ...protocol.settings.sources import read_settings
    from ...protocol.settings.table import SECTIONS

    found = read_settings()
    chosen = _chosen(name)
    if as_json:
        click.echo(json.dumps({s.name: as_plain(s, found) for s in chosen}, indent=2))
        return
    for path, is_read in found.files.items():
        if name is None:
            click.echo(f"# {path}{'' if is_read else ' (not there)'}")
    for section, settings in SECTIONS.items():
        lines = [_line(s, found) for s in settings if s in chosen]
        if lines and section:
            click.echo(f"\n[{section}]" if name is None else f"[{section}]")
        for line in lines:
            click.echo(line)


def _chosen(name: str | None) -> list[Any]:
    from ...protocol.settings.table import ALL, BY_NAME, SECTIONS, unknown_name

    if name is None:
        return list(ALL)
    if name and name in SECTIONS:
        return list(SECTIONS[name])
    if name not in BY_NAME:
        raise ConfigError(unknown_name(name))
    return [BY_NAME[name]]


def _line(setting: Any, found: Any) -> str:
    """Return a line as a file may have it, with the source as its comment."""
    if not found.is_given(setting):
        shown = _default(setting)
        assignment = f"# {setting.key} = {_toml(shown) if shown else '(none)'}"
        return f"{assignment:{_WIDTH}} # default"
    value = _toml(setting.kind.show(found[setting]))
    return f"{setting.key + ' = ' + value:{_WIDTH}} # {found.origin(setting)}"


def _default(setting: Any) -> str:
    """Return the default as text, "" for none, or one that is chosen when it is needed."""
    if setting.shown_default or setting.default is None:
        return setting.shown_default or ""
    return str(setting.kind.show(setting.default))


def _toml(text: str) -> str:
    """Return a text as TOML writes it: numbers and truth values bare, all else in quotes."""
    import json

    is_bare = text in ("true", "false") or (text.isascii() and text.isdigit())
    return text if is_bare else json.dumps(text)


def _json_value(setting: Any, value: Any) -> Any:
    """Return a value as TOML has it: numbers, truth values, lists and tables, all else as text."""
    if value is None or isinstance(setting.kind, (Flag, Whole, Texts, Resources)):
        return list(value) if isinstance(value, tuple) else value
    return setting.kind.show(value)


def _json_default(setting: Any) -> Any:
    if setting.shown_default:
        shown = setting.shown_default
        return int(shown) if shown.isascii() and shown.isdigit() else shown
    return _json_value(setting, setting.default)


def as_plain(setting: Any, found: Any) -> dict[str, Any]:
    """Return a setting for programs."""
    given = found.is_given(setting)
    return {
        "value": _json_value(setting, found[setting]) if given else _json_default(setting),
        "source": found.origin(setting) or "default",
        "variable": setting.environment,
        "text": setting.text,
    }
