"""The types of settings: how a value is read, from a text or from a TOML file, and shown."""

from __future__ import annotations

import abc
import re
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from ..durations import seconds_of
from ..errors import ConfigError
from .values import (
    parse_bytes,
    parse_host_port,
    parse_ports,
    parse_resources,
    read_memory_limit,
)

T = TypeVar("T")

#: Limit of workers, and of threads per worker. A larger number is a typing error.
MAX_COUNT: Final = 4096


class Kind(abc.ABC, Generic[T]):
    """A type of setting.

    Attributes:
        metavar: what stands for a value in the help of a command.
        words: the description of the type for the page of settings.
    """

    metavar = ""
    words = ""

    @abc.abstractmethod
    def read(self, value: object, where: str) -> T:
        """Return the value, checked.

        Raises:
            ConfigError: it is not of this type; the text begins with `where`.
        """

    def show(self, value: T) -> str:
        """Return the value as text, as a user may write it."""
        return "" if value is None else str(value)


class Text(Kind[Any]):
    """A text that is not empty."""

    metavar = "TEXT"
    words = "text"

    def __init__(self, metavar: str = "TEXT") -> None:
        self.metavar = metavar

    def read(self, value: object, where: str) -> str:
        """See `Kind`."""
        if not isinstance(value, str):
            raise ConfigError(f"{value!r} is not a text; put it into quotation marks", where)
        return value


class Texts(Kind[tuple[str, ...]]):
    """A list of texts; in one text they are separated by commas."""

    metavar = "TEXT"
    words = "list of texts"

    def __init__(self, metavar: str = "TEXT") -> None:
        self.metavar = metavar

    def read(self, value: object, where: str) -> tuple[str, ...]:
        """See `Kind`."""
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{value!r} is not a list of texts", where)
        return tuple(word for word in value if word)

    def show(self, value: tuple[str, ...]) -> str:
        """See `Kind`."""
        return ",".join(value)


class HostNames(Texts):
    """Names of hosts, without scheme, port and path."""

    words = "list of names of hosts"
    _NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")

    def __init__(self) -> None:
        super().__init__("NAME")

    def read(self, value: object, where: str) -> tuple[str, ...]:
        """See `Kind`."""
        names = []
        for given in super().read(value, where):
            name = given.strip().rstrip(".").lower()
            if not self._NAME.fullmatch(name):
                text = f"{given!r} is not the name of a host; write for example weft.example.com, "
                raise ConfigError(text + "without http://, port and path", where)
            names.append(name)
        return tuple(names)


class OneOf(Kind[Any]):
    """One of some words."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices
        self.metavar = "|".join(choices)
        self.words = ", ".join(choices[:-1]) + f" or {choices[-1]}"

    def read(self, value: object, where: str) -> str:
        """See `Kind`."""
        if isinstance(value, str) and value.lower() in self.choices:
            return value.lower()
        raise ConfigError(f"{value!r} is not {self.words}", where)


class Flag(Kind[bool]):
    """Yes or no."""

    words = "true or false"
    _WORDS: Final = {
        **dict.fromkeys(("1", "true", "yes", "on"), True),
        **dict.fromkeys(("0", "false", "no", "off"), False),
    }

    def read(self, value: object, where: str) -> bool:
        """See `Kind`."""
        if isinstance(value, str):
            value = self._WORDS.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            raise ConfigError(f"{value!r} is neither true nor false", where)
        return value

    def show(self, value: bool) -> str:
        """See `Kind`."""
        return "true" if value else "false"


class Whole(Kind[Any]):
    """A whole number between two limits; `words` may stand for None or other numbers."""

    metavar = "N"

    def __init__(
        self, low: int, high: int, special: dict[str, int | None] | None = None, hint: str = ""
    ) -> None:
        self.low, self.high = low, high
        self._special: dict[str, int | None] = special or {}
        self._hint = hint
        others = "".join(f" or {word}" for word in self._special)
        self.words = f"whole number from {low} to {high}{others}"

    def read(self, value: object, where: str) -> int | None:
        """See `Kind`."""
        if isinstance(value, str):
            text = value.strip().lower()
            if text in self._special:
                return self._special[text]
            digits = text.removeprefix("-")
            if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
                raise ConfigError(f"{value!r} is not a {self.words}{self._hint}", where)
            value = int(text)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{value!r} is not a {self.words}{self._hint}", where)
        if not self.low <= value <= self.high:
            text = f"{value} is not between {self.low} and {self.high}{self._hint}"
            raise ConfigError(text, where)
        return value

    def show(self, value: int | None) -> str:
        """See `Kind`."""
        for word, number in self._special.items():
            if number == value:
                return word
        return str(value)


class NumberOfWorkers(Whole):
    """A number of workers: `auto`, or negative to leave cores to other programs."""

    words = f"whole number from 1 to {MAX_COUNT}, auto, or negative (-1: one for each core)"

    def __init__(self) -> None:
        super().__init__(-MAX_COUNT, MAX_COUNT, {"auto": None})
        self.words = NumberOfWorkers.words

    def read(self, value: object, where: str) -> int | None:
        """See `Kind`."""
        found = super().read(value, where)
        if found == 0:
            raise ConfigError(f"0 is not a {self.words}", where)
        return found


class TimeSpan(Kind[float]):
    """A length of time, in seconds."""

    metavar = "TIME"
    words = 'time: seconds, or "500ms", "30s", "15 min", "2h"'

    def __init__(self, least: float = 0.0) -> None:
        self.least = least

    def read(self, value: object, where: str) -> float:
        """See `Kind`."""
        return seconds_of(value, where, self.least)

    def show(self, value: float) -> str:
        """See `Kind`."""
        for seconds, unit in ((3600, "h"), (60, "m")):
            if value >= 2 * seconds and value % seconds == 0:
                return f"{value / seconds:g}{unit}"
        return f"{value:g}s"


class MaybeTimeSpan(Kind[Any]):
    """A length of time, or `none`."""

    metavar = "TIME"
    words = f"none, or a {TimeSpan.words}"

    def __init__(self, least: float = 0.0) -> None:
        self._span = TimeSpan(least)

    def read(self, value: object, where: str) -> Any:
        """See `Kind`."""
        if isinstance(value, str) and value.strip().lower() == "none":
            return None
        return self._span.read(value, where)

    def show(self, value: Any) -> str:
        """See `Kind`."""
        return "none" if value is None else self._span.show(value)


class Size(Kind[int]):
    """A number of bytes."""

    metavar = "SIZE"
    words = "size: bytes, or 4GB, 512MiB"

    def read(self, value: object, where: str) -> int:
        """See `Kind`."""
        if isinstance(value, str):
            return parse_bytes(value, where)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            text = f"{value!r} is not a size; write for example 4GB, 512MiB or 2000000000"
            raise ConfigError(text, where)
        return value

    def show(self, value: int) -> str:
        """See `Kind`."""
        for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value and value % (1 << shift) == 0:
                return f"{value >> shift}{unit}"
        return str(value)


class MemoryLimit(Kind[Any]):
    """A limit of memory, see `read_memory_limit`."""

    metavar = "SIZE"
    words = "auto, none, a size (4GB), or a fraction of the machine's memory (0.5)"

    def read(self, value: object, where: str) -> str | float | int:
        """See `Kind`."""
        return read_memory_limit(value, where)

    def show(self, value: str | float | int) -> str:
        """See `Kind`."""
        if value == 0:
            return "none"
        return Size().show(value) if isinstance(value, int) else str(value)


class Resources(Kind[dict[str, float]]):
    """Amounts of abstract resources."""

    metavar = "'NAME=AMOUNT ...'"
    words = "'GPU=2 MEM=10e9', or in a file a table { GPU = 2 }"

    def read(self, value: object, where: str) -> dict[str, float]:
        """See `Kind`."""
        return parse_resources(value, where)  # type: ignore[arg-type]

    def show(self, value: dict[str, float]) -> str:
        """See `Kind`."""
        return " ".join(f"{name}={amount:g}" for name, amount in value.items())


class HostPort(Kind[Any]):
    """The address of a port: `host:port`, `:port` or `port`."""

    metavar = "HOST:PORT"
    words = "host:port"

    def read(self, value: object, where: str) -> str:
        """See `Kind`."""
        text = str(value) if type(value) is int else value
        if not isinstance(text, str):
            raise ConfigError(f"{value!r} is not host:port", where)
        parse_host_port(text, where)
        return text


class Ports(Kind[Any]):
    """A port, or a range of them."""

    metavar = "PORT[:LAST]"
    words = "port, or a range of ports 9000:9099"

    def read(self, value: object, where: str) -> tuple[int, int]:
        """See `Kind`."""
        return parse_ports(str(value), where)

    def show(self, value: tuple[int, int]) -> str:
        """See `Kind`."""
        return str(value[0]) if value[0] == value[1] else f"{value[0]}:{value[1]}"


class PathTo(Kind[Any]):
    """The path of a file or folder. `~` is the user's home."""

    def __init__(self, *, is_folder: bool = False) -> None:
        self.is_folder = is_folder
        self.metavar = "FOLDER" if is_folder else "FILE"
        self.words = "path of a folder" if is_folder else "path of a file"

    def read(self, value: object, where: str) -> Path:
        """See `Kind`."""
        if not isinstance(value, (str, Path)):
            raise ConfigError(f"{value!r} is not a path; put it into quotation marks", where)
        if not str(value):
            raise ConfigError("the path is empty", where)
        path = Path(value)
        return path.expanduser() if str(value).startswith("~") else path
