"""Reads the settings: files, then the environment; options and arguments come above them.

    /etc/weft/weft.toml  <  $XDG_CONFIG_HOME/weft/weft.toml  <  $WEFT_CONFIG
        <  $WEFT_...  <  options of a command  <  arguments in Python

A name that is not in the table, and a value of another type, is a `ConfigError` of one line with
the file's line: a setting that is ignored would be found out much later, or never.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ..errors import ConfigError
from .kinds import PathTo
from .setting import Setting
from .table import (
    BY_NAME,
    BY_VARIABLE,
    FILE_VARIABLE,
    SECTIONS,
    is_variable_of_others,
    unknown_name,
    unknown_variable,
)

T = TypeVar("T")

MACHINE_FILE: Final = Path("/etc/weft/weft.toml")
_MAX_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Settings:
    """The values of all settings. `settings[scheduler.PORT]` is one of them.

    Attributes:
        given: {setting: (its value, where it came from)} of those that are not left to the default.
        files: {path of a file of settings: whether it was read}
    """

    given: Mapping[Setting[Any], tuple[Any, str]]
    files: Mapping[Path, bool] = field(default_factory=dict)

    def __getitem__(self, setting: Setting[T]) -> T:
        found = self.given.get(setting)
        value: T = setting.default if found is None else found[0]
        return value

    def is_given(self, setting: Setting[Any]) -> bool:
        """Return whether the value is not left to the default."""
        return setting in self.given

    def origin(self, setting: Setting[Any]) -> str:
        """Return where the value came from: an option, `$WEFT_...`, a file's line; "" = default."""
        found = self.given.get(setting)
        return "" if found is None else found[1]

    def name_of(self, setting: Setting[Any]) -> str:
        """Return how an error names a setting: as the user gave it, or by its option."""
        return self.origin(setting) or setting.option.partition("/")[0]

    def choose(self, argument: object, setting: Setting[T]) -> T:
        """Return what an argument in Python says, checked; if it is None, the setting's value."""
        if argument is None:
            return self[setting]
        return setting.kind.read(argument, setting.key.replace("-", "_"))

    def with_options(self, options: Mapping[Setting[Any], Any]) -> Settings:
        """Return the same with the values of a command's options, which come first."""
        added = {
            setting: (value, setting.option.partition("/")[0]) for setting, value in options.items()
        }
        return Settings({**self.given, **added}, self.files)


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Read the files and the environment.

    Args:
        environ: the environment; None = that of this process.

    Raises:
        ConfigError: a name is not that of a setting, a value is wrong, or a file cannot be used.
    """
    if environ is None:
        environ = os.environ
    given: dict[Setting[Any], tuple[Any, str]] = {}
    files: dict[Path, bool] = {}
    for path, is_needed in _paths(environ):
        content = _read_file(path, is_needed=is_needed)
        files[path] = content is not None
        if content is not None:
            given.update(_of_file(path, content))
    given.update(_of_environment(environ))
    return Settings(given, files)


# --- The environment ------------------------------------------------------------------------------


def _of_environment(environ: Mapping[str, str]) -> Iterator[tuple[Setting[Any], tuple[Any, str]]]:
    for variable in environ:
        if not variable.startswith("WEFT_"):
            continue
        value = environ[variable]
        # An empty one is as good as unset, as programs of a shell have it.
        if not value or is_variable_of_others(variable, value):
            continue
        setting = BY_VARIABLE.get(variable)
        if setting is None:
            raise ConfigError(unknown_variable(variable))
        where = f"${variable}"
        yield setting, (setting.kind.read(value, where), where)


# --- Files ----------------------------------------------------------------------------------------


def _paths(environ: Mapping[str, str]) -> Iterator[tuple[Path, bool]]:
    """Yield the paths of the files, and whether a missing one is an error."""
    yield MACHINE_FILE, False
    home = environ.get("HOME") or os.path.expanduser("~")
    config_home = environ.get("XDG_CONFIG_HOME") or ""
    # A relative path is invalid, as the specification of these folders has it.
    folder = Path(config_home) if os.path.isabs(config_home) else Path(home) / ".config"
    yield folder / "weft" / "weft.toml", False
    if named := environ.get(FILE_VARIABLE):
        yield Path(named), True


def _read_file(path: Path, *, is_needed: bool) -> str | None:
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            _check_safe(path, status)
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        # A file that this user may not read is for other users of the machine.
        absent = (errno.ENOENT, errno.ENOTDIR, errno.EACCES)
        if not is_needed and error.errno in absent:
            return None
        text = f"cannot read the file of settings {path}: {error.strerror}"
        raise ConfigError(text, f"${FILE_VARIABLE}" if is_needed else "") from None
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"the file of settings {path} is larger than {_MAX_BYTES >> 20} MiB")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"it is not UTF-8: {error.reason}", f"{path}, line {line}") from None


def _check_safe(path: Path, status: os.stat_result) -> None:
    """Refuse a file that another user can write: it names code to import, and secret files."""
    if os.name != "posix" or not stat.S_ISREG(status.st_mode):
        return
    if status.st_mode & 0o002:
        raise ConfigError(
            f"the file of settings {path} can be written by every user of this machine; run: "
            f"chmod o-w {path}"
        )
    if status.st_uid not in (0, os.geteuid()):
        raise ConfigError(
            f"the file of settings {path} belongs to another user (id {status.st_uid}); settings "
            "are read from files of yours or of root"
        )


def _of_file(path: Path, content: str) -> Iterator[tuple[Setting[Any], tuple[Any, str]]]:
    for name, value in _entries(_parse(path, content)):
        where = _where(path, content, name)
        setting = BY_NAME.get(name)
        if setting is None:
            raise ConfigError(unknown_name(name), where)
        if not setting.in_files:
            text = f"{name} is not read from files; set ${setting.environment} where it is meant"
            raise ConfigError(text, where)
        read = setting.kind.read(value, f"{where}: {setting.key}")
        if isinstance(setting.kind, PathTo):
            read = path.absolute().parent / read
        yield setting, (read, where)


def _parse(path: Path, content: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        text = str(error)
        found = re.search(r" \(at line (\d+), column \d+\)$", text)
        if found is None:
            line = content.count("\n") + 1
            text = text.removesuffix(" (at end of document)")
        else:
            line, text = int(found[1]), text[: found.start()]
        raise ConfigError(f"it is not TOML: {text}", f"{path}, line {line}") from None


def _entries(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each entry; names have their section before them."""
    for key, value in content.items():
        if isinstance(value, dict) and key in SECTIONS:
            for inner, inner_value in value.items():
                yield f"{key}.{inner}", inner_value
        elif isinstance(value, dict) and value and key not in BY_NAME:
            # A section that does not exist: its first entry shows best what was meant.
            inner = next(iter(value))
            yield f"{key}.{inner}", value[inner]
        else:
            yield key, value


def _where(path: Path, content: str, name: str) -> str:
    """Return the file and the line of an entry, without the line if it cannot be found."""
    section, _, key = name.rpartition(".")
    current = ""
    for number, line in enumerate(content.splitlines(), 1):
        header = re.match(r"\s*\[\s*([\w.\"'-]+)\s*\]", line)
        if header:
            current = _bare(header[1])
            continue
        entry = re.match(r"\s*([\w.\"' -]+?)\s*=", line)
        if entry:
            full = f"{current}.{_bare(entry[1])}".removeprefix(".")
            if full == name or (not current and full == section and key in line):
                return f"{path}, line {number}"
    return str(path)


def _bare(key: str) -> str:
    return key.replace('"', "").replace("'", "").replace(" ", "")
