"""Options of commands, most of them made from the table of settings.

A setting is declared once, for all sources. Below are the types of options that are no settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ...protocol.durations import seconds_of
from ...protocol.errors import ConfigError
from ...protocol.settings.kinds import Flag, OneOf, PathTo, Texts
from ...protocol.settings.setting import Setting
from ...protocol.settings.sources import Settings, read_settings

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:  # before click 8.3 it is not generic
    _ParamType = click.ParamType


class SettingType(_ParamType):
    """The type of a setting as the type of an option."""

    def __init__(self, setting: Setting[Any]) -> None:
        self._kind = setting.kind
        self.name = setting.kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value that the setting's kind reads."""
        name = param.opts[0] if param is not None else ""
        if value == "" and isinstance(self._kind, PathTo):
            text = "the path is empty; give one, or leave the option out for the default"
            raise ConfigError(text, name)
        read = self._kind.read(value, name)
        if isinstance(read, Path):
            _check_path(read, name, is_folder=getattr(self._kind, "is_folder", False))
        return read

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Propose the words of a choice, and files or folders."""
        if isinstance(self._kind, OneOf):
            return [CompletionItem(w) for w in self._kind.choices if w.startswith(incomplete)]
        if isinstance(self._kind, PathTo):
            return [CompletionItem(incomplete, type="dir" if self._kind.is_folder else "file")]
        return []


def _check_path(path: Path, name: str, *, is_folder: bool) -> None:
    if is_folder and path.is_file():
        raise ConfigError(f"{path} is a file, and a folder is needed", name)
    if not is_folder and path.is_dir():
        raise ConfigError(f"{path} is a folder, and a file is needed", name)


def from_table(
    *settings: Setting[Any], complete: Callable[..., Any] | None = None
) -> Callable[[F], F]:
    """Add the options of these settings to a command, in this order.

    `complete` proposes values to a shell that completes the command.
    """

    def decorate(function: F) -> F:
        for setting in reversed(settings):
            if setting.has_option:
                function = _option(setting, complete)(function)
        return function

    return decorate


def _option(setting: Setting[Any], complete: Callable[..., Any] | None) -> Callable[[F], F]:
    shown = setting.show_default()
    text = setting.text + (f"  [default: {shown}]" if shown else "")
    if isinstance(setting.kind, Flag):
        return click.option(setting.option, parameter_of(setting), default=None, help=text)
    return click.option(
        setting.option,
        *setting.options,
        parameter_of(setting),
        type=SettingType(setting),
        metavar=setting.kind.metavar,
        multiple=isinstance(setting.kind, Texts),
        shell_complete=complete,
        help=text,
    )


def parameter_of(setting: Setting[Any]) -> str:
    """Return the name of the parameter with which click passes the option of a setting."""
    return (setting.option_key or setting.key).replace("-", "_")


def merged(settings: tuple[Setting[Any], ...], options: Mapping[str, Any]) -> Settings:
    """Return the settings of files and environment, with the options of a command above them.

    Args:
        settings: those that the command has options for.
        options: {parameter: value} as click has read them; None or () = not given.

    Raises:
        ConfigError: a file or the environment is wrong.
    """
    chosen = {}
    for setting in settings:
        value = options.get(parameter_of(setting))
        if value is None or value == ():
            continue
        if isinstance(setting.kind, Texts):
            value = tuple(word for words in value for word in words)
        chosen[setting] = value
    return read_settings().with_options(chosen)


# --- Options that are no settings -----------------------------------------------------------------


class Time(click.FloatRange):
    """A length of time, as a number of seconds or with a unit; the command gets seconds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return seconds_of(value, param.opts[0] if param is not None else "", self.min or 0.0)


class Count(click.IntRange):
    """A whole number of workers, tasks or looks, with an error that says which are valid."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            name = param.get_error_hint(ctx).strip("'") if param is not None and ctx else ""
            shown = value if str(value).lstrip("-").isdigit() else repr(value)
            text = f"{shown} is not valid: give a whole number, {self.min} or more"
            raise click.UsageError(f"{name}: {text}", ctx) from None


class FilePath(click.Path):
    """A path that is not empty, where `~` is the user's home.

    An empty one would be the current folder, or be ignored.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            text = "the path is empty; give one, or leave the option out for the default"
            raise ConfigError(text, param.opts[0] if param is not None else "")
        # A shell leaves --option=~/file as it is.
        return super().convert(os.path.expanduser(value), param, ctx)


def time_option(name: str, default: str, text: str, least_s: float = 0) -> Callable[[F], F]:
    """Add an option for a length of time, which the command gets in seconds."""
    kind = Time(min=least_s)
    return click.option(
        name, type=kind, default=default, show_default=True, metavar="TIME", help=text
    )


def file_option(name: str, text: str, **rules: bool) -> Callable[[F], F]:
    """Add an option for the path of a file; see `click.Path` for the rules."""
    return click.option(name, type=FilePath(path_type=Path, dir_okay=False, **rules), help=text)


def latest_option(text: str) -> Callable[[F], F]:
    """Add -n, the number of the latest records that are shown."""
    return click.option("-n", "n", type=Count(0), default=100, show_default=True, help=text)
