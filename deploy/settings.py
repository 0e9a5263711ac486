"""Reads users' settings for sizes, resources and numbers of workers.

Every function that reads a user's value raises `ConfigError` with the setting's name, the given
value, and an example of a right one.
"""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from dataclasses import dataclass
from typing import Any, Final

from ..protocol.errors import ConfigError
from ..protocol.host.machine import memory_limit, n_cores
from ..protocol.settings.kinds import MAX_COUNT, MemoryLimit
from ..protocol.settings.setting import Setting
from ..protocol.settings.sources import Settings


@dataclass(frozen=True)
class WorkerCounts:
    """The number of workers, and of threads per worker."""

    n_workers: int
    nthreads: int


# --- This machine ---------------------------------------------------------------------------------


#: Bytes of a container's limit that are not for workers: in it are also the command, the supervisor
#: and the process of its page, 35 to 45 MiB together, and what the kernel keeps for all of them.
CONTAINER_RESERVE: Final = 64 << 20


def total_memory() -> int:
    """Return how many bytes workers may share: the machine's, or the container's if less.

    Of a container's limit a part is kept back for weft's other processes in it, so that the limits
    of all workers together stay below it. The kernel would kill any of them, without a word.
    """
    import psutil

    total = int(psutil.virtual_memory().total)
    # Where the control groups cannot be read, as in some sandboxes, the chart's word counts.
    stated = os.environ.get("WEFT_POD_MEMORY", "")
    limits = [memory_limit() or total, int(stated) if stated.isdecimal() else total]
    limit = min(limits)
    if not 0 < limit < total:
        return total
    return max(limit - CONTAINER_RESERVE, limit // 2)


# --- Sizes ----------------------------------------------------------------------------------------


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
    limit = MemoryLimit().read(value, setting)
    if limit == "auto":
        n_workers = counts.n_workers or max(1, n_cores() // counts.nthreads)
        share = min(1 / n_workers, counts.nthreads / n_cores())
        return int(total_memory() * share)
    return int(total_memory() * limit) if isinstance(limit, float) else int(limit)


# --- Resources and numbers ------------------------------------------------------------------------


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
    if nthreads is None and not n_workers:  # those that are added later get what they get here
        return WorkerCounts(0, decide_counts(None, None, processes=processes).nthreads)
    if nthreads is None:
        return WorkerCounts(n_workers, max(1, cores // n_workers))
    return WorkerCounts(n_workers, check_count(nthreads, "threads_per_worker"))


def _bound(host: str, port: int) -> list[str]:
    """Return the addresses of a host, each of which a socket could be bound to at this port."""
    found = []
    for family, type_, protocol, _, address in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        with socket.socket(family, type_, protocol) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
        found.append(str(address[0]))
    return found


def check_own_host(host: str, setting: str, *, may_be_every: bool = False) -> None:
    """Check that `host` is an address of this machine, to which others can connect.

    `may_be_every` allows the addresses that mean every interface.

    Raises:
        ConfigError: it is not.
    """
    try:
        if {*_bound(host, 0)} & {"0.0.0.0", "::"} and not may_be_every:
            raise ConfigError(
                f"{host} means every interface, which is no address to connect to; name one of "
                "this machine",
                setting,
            )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        every = ", or 0.0.0.0 for every one" if may_be_every else ""
        raise ConfigError(
            f"{host!r} is not an address of this machine ({reason}); name one that others "
            f"reach{every}",
            setting,
        ) from None


def host_of_interface(given: Settings, setting: Setting[str | None], host: Setting[Any]) -> str:
    """Return the address of a network interface of this machine, an IPv4 one if it has any.

    Args:
        given: the settings.
        setting: the one that names the interface; "" is returned if it is not given.
        host: the one in whose place it stands.

    Raises:
        ConfigError: there is no such interface, or it has no address; or both are given.
    """
    name = given[setting]
    if not name:
        return ""
    if given.is_given(host):
        raise ConfigError("give --host or --interface, not both", "--interface")
    return address_of_interface(name, given.name_of(setting))


def address_of_interface(name: str, setting: str) -> str:
    """Return the address of a network interface of this machine; see `host_of_interface`."""
    import psutil

    interfaces = psutil.net_if_addrs()
    hosts = {
        found.family: found.address
        for found in reversed(interfaces.get(name, []))
        if found.family in (socket.AF_INET, socket.AF_INET6) and "%" not in found.address
    }
    if hosts:
        return hosts.get(socket.AF_INET) or hosts[socket.AF_INET6]
    why = "has no address" if name in interfaces else "is no network interface of this machine"
    text = f"{name!r} {why}; there are {', '.join(sorted(interfaces))}"
    raise ConfigError(text, setting)


def check_free_port(host: str, port: int) -> None:
    """Check that pages can be served at this address, before anything is started.

    Raises:
        ConfigError: they cannot: the port is taken, or the address is not of this machine.
    """
    try:
        _bound(host, port)
    except OSError as error:
        from ..protocol.trust.finding import known_files

        reason = str(error.strerror or error)
        for file in known_files()[0] if error.errno == errno.EADDRINUSE else ():
            is_here = file.host == socket.gethostname()
            if is_here and file.dashboard and file.dashboard.rstrip("/").endswith(f":{port}"):
                reason = f"the scheduler of yours at {file.addresses[0]} has its pages there"
        raise ConfigError(
            f"cannot serve pages at {host}:{port}: {reason}; choose another --dashboard-address, "
            "or use --no-dashboard"
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
