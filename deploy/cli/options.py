"""Options of commands, made from the table of settings: each is declared once, for all sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

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
