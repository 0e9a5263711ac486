"""Reads the texts that users give: sizes, limits of memory, resources, addresses, ports.

Every function raises `ConfigError` with the setting's name, the given value, and an example of a
right one. Times are read by `durations`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..errors import ConfigError

#: With less than this the interpreter does not fit, and workers would be killed at their start.
MIN_MEMORY_LIMIT: Final = 64 << 20

_UNITS: Final = {
    "": 1,
    "B": 1,
    **{f"{p}{b}": 1000 ** (i + 1) for i, p in enumerate("KMGTP") for b in ("", "B")},
    **{f"{p}I{b}": 1024 ** (i + 1) for i, p in enumerate("KMGTP") for b in ("", "B")},
}
_NUMBER: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE]\+?[0-9]+)?)\s*([A-Za-z]*)\s*")
_FRACTION: Final = re.compile(r"[01]?\.[0-9]+|1\.")
_MEMORY_HINT: Final = "use 'auto', a size such as 4GB, a fraction such as 0.5, or 'none'"


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


def read_memory_limit(value: object, setting: str) -> str | float | int:
    """Read a limit of memory; return "auto", 0 for none, a float as fraction, or an int of bytes.

    Args:
        value: `auto`, a size, a fraction of this machine's memory up to 1.0, or None, 0 or `none`
            for no limit.
        setting: its name for the user.

    Raises:
        ConfigError: it is none of these, or too small for a Python process.
    """
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
                raise ConfigError(text, setting) from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigError(f"{value!r} is not a memory limit; {_MEMORY_HINT}", setting)
    if isinstance(value, float) and 0 < value <= 1:
        return value
    if 0 < value < MIN_MEMORY_LIMIT:
        raise ConfigError(
            f"{value:g} bytes is less than a Python process needs "
            f"({MIN_MEMORY_LIMIT >> 20} MiB); {_MEMORY_HINT}",
            setting,
        )
    return 0 if value == float("inf") else int(value)


def parse_resources(
    value: str | Mapping[str, float] | None, setting: str = "resources"
) -> dict[str, float]:
    """Read abstract resources: `"GPU=2 MEM=10e9"` (spaces or commas), or a mapping.

    Raises:
        ConfigError: it is neither, or an amount is not a number >= 0.
    """
    pairs: list[tuple[object, Any]] = []
    if value is None:
        return {}
    if isinstance(value, str):
        for word in value.replace(",", " ").split():
            before, separator, after = word.partition("=")
            if not separator:
                raise ConfigError(
                    f"{word!r} is not NAME=AMOUNT; write for example 'GPU=2 MEM=10e9'",
                    setting,
                )
            pairs.append((before, after))
    elif isinstance(value, Mapping):
        pairs += value.items()
    else:
        raise ConfigError(f"{value!r} is not a mapping of names to amounts", setting)
    resources = {}
    for name, amount in pairs:
        try:
            number = float(amount)
        except (TypeError, ValueError):
            number = -1.0
        if not isinstance(name, str) or not name or not 0 <= number < float("inf"):
            raise ConfigError(f"{name!r} = {amount!r} is not a name and an amount >= 0", setting)
        if name in resources:
            raise ConfigError(f"{name} is given twice; give one amount for it", setting)
        resources[name] = number
    return resources


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


def parse_ports(text: str, setting: str) -> tuple[int, int]:
    """Read one port, or the first and the last of a range, `9000:9099`. 0 means any free one.

    Raises:
        ConfigError: it is neither.
    """
    first, colon, last = text.strip().partition(":")
    words = [first, last] if colon else [first, first]
    if all(word.isascii() and word.isdigit() and int(word) < 1 << 16 for word in words):
        low, high = int(words[0]), int(words[1])
        if low <= high and (low > 0 or high == 0):
            return low, high
    text = f"{text!r} is neither a port nor a range of ports; write for example 9000 or 9000:9099"
    raise ConfigError(text, setting)
