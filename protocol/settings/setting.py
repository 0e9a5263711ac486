"""`Setting`: one row of the table."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar

from .kinds import Flag, Kind

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """One setting: its name, type, default and text, from which all else is derived.

    Args:
        name: as in a file: `scheduler.port` is `port` in `[scheduler]`.
        kind: its type.
        default: the value that counts if there is no other.
        text: complete sentences for the help of a command and for the page of settings.
        shown_default: what the help shows as the default; None = the default itself, "" = nothing,
            because `text` describes it.
        variable: the environment variable, if it is not derived from the name.
        option_key: the option without its hyphens, if it is not the last part of the name.
        options: further names of the option, such as those of other programs.
        has_option: a command has an option for it.
        in_files: a file may have it.
    """

    name: str
    kind: Kind[T]
    default: T
    text: str
    shown_default: str | None = None
    variable: str = ""
    option_key: str = ""
    options: tuple[str, ...] = ()
    has_option: bool = True
    in_files: bool = True

    @property
    def section(self) -> str:
        """The table of a file that has it; "" = the top of the file."""
        return self.name.rpartition(".")[0]

    @property
    def key(self) -> str:
        """Its name within the section."""
        return self.name.rpartition(".")[2]

    @property
    def environment(self) -> str:
        """The environment variable."""
        return self.variable or "WEFT_" + self.name.upper().replace(".", "_").replace("-", "_")

    @property
    def option(self) -> str:
        """The option of the command; that of a flag, with its opposite."""
        if isinstance(self.kind, Flag):
            return f"--{self.key}/--no-{self.key}"
        return f"--{self.option_key or self.key}"

    def show_default(self) -> str:
        """Return the default as text for a help; "" = none is shown."""
        if self.shown_default is not None:
            return self.shown_default
        return "" if self.default is None else self.kind.show(self.default)


def settings_in(module: ModuleType) -> tuple[Setting[Any], ...]:
    """Return the settings that a module declares, in order."""
    return tuple(value for value in vars(module).values() if isinstance(value, Setting))
