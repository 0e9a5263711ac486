"""The types of settings: how a value is read, from a text or from a TOML file, and shown.

Every function that reads a user's value raises `ConfigError` with the setting's name, the given
value, and an example of a right one. Times are read by `durations`.
"""

from __future__ import annotations

import abc
import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from ..database_urls import check_url, is_url, shown
from ..durations import seconds_of
from ..errors import ConfigError

T = TypeVar("T")

#: Limit of workers, and of threads per worker. A larger number is a typing error.
MAX_COUNT: Final = 4096
#: With less than this the interpreter does not fit, and workers would be killed at their start.
MIN_MEMORY_LIMIT: Final = 64 << 20

_UNITS: Final = {
    "": 1,
    "B": 1,
    **{f"{p}{b}": 1000 ** (i + 1) for i, p in enumerate("KMGTP") for b in ("", "B")},
    **{f"{p}I{b}": 1024 ** (i + 1) for i, p in enumerate("KMGTP") for b in ("", "B")},
}
_NUMBER: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]+)?)\s*([A-Za-z]*)\s*")
_OFF: Final = frozenset({"false", "no", "off", "none"})
_FRACTION: Final = re.compile(r"[01]?\.[0-9]+|1\.")
_MEMORY_HINT: Final = "use 'auto', a size such as 4GB, a fraction such as 0.5, or 'none'"


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
        if isinstance(value, str):
            value = [word.strip() for word in value.split(",")]
        if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{value!r} is not a list of texts", where)
        return tuple(word for word in value if word)

    def show(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


class HostNames(Texts):
    """Names of hosts, without scheme, port and path."""

    words = "list of names of hosts"
    _NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?")

    def __init__(self) -> None:
        super().__init__("NAME")

    def read(self, value: object, where: str) -> tuple[str, ...]:
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
        if isinstance(value, str):
            value = self._WORDS.get(value.strip().lower(), value)
        if not isinstance(value, bool):
            raise ConfigError(f"{value!r} is neither true nor false", where)
        return value

    def show(self, value: bool) -> str:
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
        return seconds_of(value, where, self.least)

    def show(self, value: float) -> str:
        for seconds, unit in ((3600, "h"), (60, "m")):
            if value >= 2 * seconds and value % seconds == 0:
                return f"{value / seconds:g}{unit}"
        return f"{value:g}s"


class OrNone(Kind[Any]):
    """A value of another kind, or `none`."""

    def __init__(self, kind: Kind[Any]) -> None:
        self._kind = kind
        self.metavar = kind.metavar
        self.words = f"none, or a {kind.words}"

    def read(self, value: object, where: str) -> Any:
        if isinstance(value, str) and value.strip().lower() == "none":
            return None
        return self._kind.read(value, where)

    def show(self, value: Any) -> str:
        return "none" if value is None else self._kind.show(value)


def parse_bytes(text: str, setting: str = "") -> int:
    """Read a size: `4GB`, `512 MiB`, `2e9`. KB is 1000 bytes, KiB 1024.

    Raises:
        ConfigError: it is not a size.
    """
    match = _NUMBER.fullmatch(text)
    factor = _UNITS.get(match[2].upper()) if match else None
    if match is None or factor is None:
        raise ConfigError(
            f"{text!r} is not a size; write for example 4GB, 512MiB or 2e9",
            setting,
        )
    return int(float(match[1]) * factor)


class Size(Kind[int]):
    """A number of bytes."""

    metavar = "SIZE"
    words = "size: bytes, or 4GB, 512MiB"

    def read(self, value: object, where: str) -> int:
        if isinstance(value, str):
            return parse_bytes(value, where)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            text = f"{value!r} is not a size; write for example 4GB, 512MiB or 2000000000"
            raise ConfigError(text, where)
        return value

    def show(self, value: int) -> str:
        for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
            if value and value % (1 << shift) == 0:
                return f"{value >> shift}{unit}"
        return str(value)


class MemoryLimit(Kind[Any]):
    """A limit of memory: "auto", bytes (0 = none), or a float as fraction of the machine's."""

    metavar = "SIZE"
    words = "auto, none, a size (4GB), or a fraction of the machine's memory (0.5)"

    def read(self, value: object, where: str) -> str | float | int:
        if value is None or (isinstance(value, str) and value.strip().lower() in ("none", "0")):
            return 0
        if isinstance(value, str):
            text = value.strip()
            if text.lower() == "auto":
                return "auto"
            if _FRACTION.fullmatch(text):
                value = float(text)
            else:
                try:
                    value = parse_bytes(text)
                except ConfigError:
                    text = f"{text!r} is not a memory limit; {_MEMORY_HINT}"
                    raise ConfigError(text, where) from None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise ConfigError(f"{value!r} is not a memory limit; {_MEMORY_HINT}", where)
        if isinstance(value, float) and 0 < value <= 1:
            return value
        if 0 < value < MIN_MEMORY_LIMIT:
            raise ConfigError(
                f"{value:g} bytes is less than a Python process needs "
                f"({MIN_MEMORY_LIMIT >> 20} MiB); {_MEMORY_HINT}",
                where,
            )
        return 0 if value == float("inf") else int(value)

    def show(self, value: str | float | int) -> str:
        if value == 0:
            return "none"
        return Size().show(value) if isinstance(value, int) else str(value)


class Part(Kind[float]):
    """A part of something, more than 0 and up to 1; 0 or `false` = off."""

    metavar = "PART"
    words = "a part such as 0.7, or false: off"

    def read(self, value: object, where: str) -> float:
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = float(value)
        if value is False or (isinstance(value, str) and value.strip().lower() in _OFF):
            return 0.0
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            text = f"{value!r} is not a part; write for example 0.7, or false to switch it off"
            raise ConfigError(text, where)
        return float(value)

    def show(self, value: float) -> str:
        return f"{value:g}" if value else "false"


class Resources(Kind[dict[str, float]]):
    """Amounts of abstract resources; in one text they are separated by spaces or commas."""

    metavar = "'NAME=AMOUNT ...'"
    words = "'GPU=2 MEM=10e9', or in a file a table { GPU = 2 }"

    def read(self, value: object, where: str) -> dict[str, float]:
        pairs: list[tuple[object, Any]] = []
        if value is None:
            return {}
        if isinstance(value, str):
            for word in value.replace(",", " ").split():
                before, separator, after = word.partition("=")
                if not separator:
                    raise ConfigError(
                        f"{word!r} is not NAME=AMOUNT; write for example 'GPU=2 MEM=10e9'",
                        where,
                    )
                pairs.append((before, after))
        elif isinstance(value, Mapping):
            pairs += value.items()
        else:
            raise ConfigError(f"{value!r} is not a mapping of names to amounts", where)
        resources = {}
        for name, amount in pairs:
            try:
                number = float(amount)
            except (TypeError, ValueError):
                number = -1.0
            if not isinstance(name, str) or not name or not 0 <= number < float("inf"):
                raise ConfigError(f"{name!r} = {amount!r} is not a name and an amount >= 0", where)
            if name in resources:
                raise ConfigError(f"{name} is given twice; give one amount for it", where)
            resources[name] = number
        return resources

    def show(self, value: dict[str, float]) -> str:
        return " ".join(f"{name}={amount:g}" for name, amount in value.items())


class LimitsOfUsers(Kind[dict[str, dict[str, int]]]):
    """Limits of users by name, 0 = none; in one text, users are separated by semicolons."""

    metavar = "'USER: LIMIT=VALUE ...; ...'"
    words = (
        "'ann: tasks=1000 memory=4GB; bob: running=none', or in a file a table { ann = { tasks = "
        '1000, memory = "4GB" }, bob = { running = "none" } }'
    )
    _names = ("memory", "tasks", "running")

    def read(self, value: object, where: str) -> dict[str, dict[str, int]]:
        if value is None:
            return {}
        users: Mapping[Any, Any]
        if isinstance(value, str):
            users = dict(self._parts(value, where))
        elif isinstance(value, Mapping):
            users = value
        else:
            raise ConfigError(f"{value!r} is not a mapping of users to limits", where)
        return {str(user): self._limits(str(user), given, where) for user, given in users.items()}

    def _parts(self, text: str, where: str) -> Iterator[tuple[str, dict[str, str]]]:
        for part in filter(str.strip, text.split(";")):
            user, colon, limits = part.partition(":")
            words = [word.partition("=") for word in limits.replace(",", " ").split()]
            if not (colon and user.strip() and all(separator for _, separator, _ in words)):
                raise ConfigError(f"{part.strip()!r} is not {self.metavar}", where)
            yield user.strip(), {name: limit for name, _, limit in words}

    def _limits(self, user: str, given: object, where: str) -> dict[str, int]:
        if not isinstance(given, Mapping):
            raise ConfigError(f"{user} = {given!r} is not a table of limits", where)
        limits = {}
        for name, limit in given.items():
            if name not in self._names:
                text = f"{user} has no limit {name!r}; there are {', '.join(self._names)}"
                raise ConfigError(text, where)
            kind = Size() if name == "memory" else Whole(1, 1 << 40)
            limits[str(name)] = OrNone(kind).read(limit, f"{where}, {user}, {name}") or 0
        return limits

    def show(self, value: dict[str, dict[str, int]]) -> str:
        users = []
        for user, limits in value.items():
            words = (f"{name}={limit or 'none'}" for name, limit in limits.items())
            users.append(f"{user}: {' '.join(words)}")
        return "; ".join(users)


def parse_host_port(text: str, setting: str) -> tuple[str, int]:
    """Read `host:port`, `:port` or `port`; the host defaults to 127.0.0.1.

    Raises:
        ConfigError: it is none of them.
    """
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16) or (
        ":" in bare and bare == host
    ):
        raise ConfigError(f"{text!r} is not host:port; write for example 127.0.0.1:8787", setting)
    return bare or "127.0.0.1", int(port)


class HostPort(Kind[Any]):
    """The address of a port: `host:port`, `:port` or `port`."""

    metavar = "HOST:PORT"
    words = "host:port"

    def read(self, value: object, where: str) -> str:
        text = str(value) if type(value) is int else value
        if not isinstance(text, str):
            raise ConfigError(f"{value!r} is not host:port", where)
        parse_host_port(text, where)
        return text


class Ports(Kind[Any]):
    """A port, or the first and the last of a range of them; 0 means any free one."""

    metavar = "PORT[:LAST]"
    words = "port, or a range of ports 9000:9099"

    def read(self, value: object, where: str) -> tuple[int, int]:
        first, colon, last = str(value).strip().partition(":")
        words = [first, last] if colon else [first, first]
        if all(word.isascii() and word.isdigit() and int(word) < 1 << 16 for word in words):
            low, high = int(words[0]), int(words[1])
            if low <= high and (low > 0 or high == 0):
                return low, high
        text = f"{str(value)!r} is neither a port nor a range of ports"
        raise ConfigError(text + "; write for example 9000 or 9000:9099", where)

    def show(self, value: tuple[int, int]) -> str:
        return str(value[0]) if value[0] == value[1] else f"{value[0]}:{value[1]}"


class PathTo(Kind[Any]):
    """The path of a file or folder. `~` is the user's home."""

    def __init__(self, *, is_folder: bool = False) -> None:
        self.is_folder = is_folder
        self.metavar = "FOLDER" if is_folder else "FILE"
        self.words = "path of a folder" if is_folder else "path of a file"

    def read(self, value: object, where: str) -> Path:
        if not isinstance(value, (str, Path)):
            raise ConfigError(f"{value!r} is not a path; put it into quotation marks", where)
        if not str(value):
            raise ConfigError("the path is empty", where)
        path = Path(value)
        return path.expanduser() if str(value).startswith("~") else path


class JournalPlace(Kind[Any]):
    """The path of a file, or the URL of a database, which is shown without its password."""

    metavar = "FILE|URL"
    words = "path of a file, or postgresql://USER@HOST/DATABASE"

    def read(self, value: object, where: str) -> str:
        if isinstance(value, str) and is_url(value):
            check_url(value, where)
            return value
        return os.path.abspath(PathTo().read(value, where))

    def show(self, value: str | None) -> str:
        return shown(value or "")
