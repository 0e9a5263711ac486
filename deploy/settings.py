"""Reads users' settings for sizes, resources and numbers of workers.

Every function that reads a user's value raises `ConfigError` with the setting's name, the given
value, and an example of a right one.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..protocol.errors import ConfigError
from ..protocol.host.machine import memory_limit, n_cores

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


@dataclass(frozen=True)
class WorkerCounts:
    """The number of workers, and of threads per worker."""

    n_workers: int
    nthreads: int


# --- This machine ---------------------------------------------------------------------------------


def total_memory() -> int:
    """Return how many bytes this process may use: the machine's, or the container's if less."""
    import psutil

    total = int(psutil.virtual_memory().total)
    return min(total, memory_limit() or total)


# --- Sizes ----------------------------------------------------------------------------------------


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


def parse_memory_limit(
    value: str | float | None, counts: WorkerCounts, setting: str = "memory_limit"
) -> int:
    """Return one worker's memory limit in bytes, 0 = none.

    Args:
        value: `auto` (a fair share of this machine's memory), a size, a fraction of this
            machine's memory up to 1.0, or None, 0 or `none` for no limit.
        counts: how many workers share the machine.
        setting: its name for the user.

    Raises:
        ConfigError: it is none of these, or too small for a Python process.
    """
    hint = "use 'auto', a size such as 4GB, a fraction such as 0.5, or 'none'"
    if value is None or (isinstance(value, str) and value.strip().lower() in ("none", "0")):
        return 0
    if isinstance(value, str):
        text = value.strip()
        if text.lower() == "auto":
            share = min(1 / max(1, counts.n_workers), counts.nthreads / n_cores())
            return int(total_memory() * share)
        if re.fullmatch(r"[01]?\.[0-9]+|1\.", text):
            value = float(text)
        else:
            try:
                value = parse_bytes(text)
            except ConfigError:
                raise ConfigError(f"{text!r} is not a memory limit; {hint}", setting) from None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigError(f"{value!r} is not a memory limit; {hint}", setting)
    if isinstance(value, float) and 0 < value <= 1:
        return int(total_memory() * value)
    if 0 < value < MIN_MEMORY_LIMIT:
        raise ConfigError(
            f"{value:g} bytes is less than a Python process needs "
            f"({MIN_MEMORY_LIMIT >> 20} MiB); {hint}",
            setting,
        )
    if value == float("inf"):
        return 0
    return int(value)


def format_bytes(n: int) -> str:
    """Format a size for display."""
    if not n:
        return "none"
    for unit in ("B", "KB", "MB", "GB"):
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000  # type: ignore[assignment]
    return f"{n:.3g} TB"


# --- Resources and numbers ------------------------------------------------------------------------


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


def check_count(value: object, setting: str, low: int = 1) -> int:
    """Return `value` if it is a whole number from `low` to MAX_COUNT.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= MAX_COUNT:
        raise ConfigError(f"{value!r} is not a whole number from {low} to {MAX_COUNT}", setting)
    return value


def decide_counts(
    n_workers: int | None, nthreads: int | None, *, processes: bool = True
) -> WorkerCounts:
    """Choose the numbers that were not given, so that every core gets one thread.

    A worker process with one thread per core is the default, because Python threads of one process
    take turns; without processes it is one worker with all the threads.
    """
    cores = n_cores()
    if n_workers is None and nthreads is None:
        return WorkerCounts(cores, 1) if processes else WorkerCounts(1, cores)
    if n_workers is None:
        nthreads = check_count(nthreads, "threads_per_worker")
        return WorkerCounts(max(1, cores // nthreads), nthreads)
    n_workers = check_count(n_workers, "n_workers", 0)
    if nthreads is None:
        return WorkerCounts(n_workers, max(1, cores // max(1, n_workers)))
    return WorkerCounts(n_workers, check_count(nthreads, "threads_per_worker"))


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


def check_own_host(host: str, setting: str, *, may_be_every: bool = False) -> None:
    """Check that `host` is an address of this machine, to which others can connect.

    `may_be_every` allows the addresses that mean every interface.

    Raises:
        ConfigError: it is not.
    """
    try:
        infos = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        for family, type_, protocol, _, address in infos:
            if address[0] in ("0.0.0.0", "::") and not may_be_every:
                raise ConfigError(
                    f"{host} means every interface, which is no address to connect to; name one "
                    "of this machine",
                    setting,
                )
            with socket.socket(family, type_, protocol) as sock:
                sock.bind(address)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        every = ", or 0.0.0.0 for every one" if may_be_every else ""
        raise ConfigError(
            f"{host!r} is not an address of this machine ({reason}); name one that others "
            f"reach{every}",
            setting,
        ) from None


def check_free_port(host: str, port: int) -> None:
    """Check that pages can be served at this address, before anything is started.

    Raises:
        ConfigError: they cannot: the port is taken, or the address is not of this machine.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        for family, type_, protocol, _, address in infos:
            with socket.socket(family, type_, protocol) as sock:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind(address)
    except OSError as error:
        raise ConfigError(
            f"cannot serve pages at {host}:{port}: {error.strerror or error}; "
            "choose another --dashboard-address, or use --no-dashboard"
        ) from None


def make_local_directory(parent: str | os.PathLike[str] | None, setting: str) -> str:
    """Make a folder for files of workers, which only this user can enter.

    Args:
        parent: the folder around it, made if it does not exist. None = that for temporary files.
        setting: its name for the user.

    Raises:
        ConfigError: that is impossible.
    """
    if parent is not None and not isinstance(parent, (str, os.PathLike)):
        raise ConfigError(f"{parent!r} is not the path of a folder", setting)
    try:
        if parent is not None:
            parent = os.path.abspath(os.fspath(parent))
            os.makedirs(parent, exist_ok=True)
        return tempfile.mkdtemp(prefix="weft-", dir=parent)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            reason = "there is a file of that name"
        raise ConfigError(
            f"cannot make a folder in {parent or tempfile.gettempdir()}: {reason}; name a folder "
            "in which this user may write",
            setting,
        ) from None
