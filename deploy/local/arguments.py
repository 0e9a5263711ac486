"""The arguments of `LocalCluster`: each is checked, or chosen where it was left out."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping

from ...protocol.errors import ConfigError
from ...protocol.settings import local as table
from ...protocol.settings.kinds import parse_host_port
from ...protocol.settings.sources import read_settings
from ...protocol.trust.security import Security, is_loopback, new_cluster_id, new_token
from ...protocol.wire.levels import Level
from .. import settings

_log = logging.getLogger("weft.cluster")
#: Numbers the clusters of this process that the user does not name.
_numbers = itertools.count(1)


def with_settings(
    n_workers: int | None,
    threads_per_worker: int | None,
    local_directory: str | os.PathLike[str] | None,
    dashboard_address: str | int | None,
    *,
    processes: bool,
) -> tuple[settings.WorkerCounts, str | os.PathLike[str] | None, str | int | None]:
    """Return the arguments that were left out as the settings of section `[local]` have them."""
    found = read_settings()
    if n_workers is None:
        n_workers = found[table.N_WORKERS]
    if threads_per_worker is None:
        threads_per_worker = found[table.THREADS_PER_WORKER]
    if local_directory is None:
        local_directory = found[table.LOCAL_DIRECTORY]
    if dashboard_address is None and processes:
        dashboard_address = found[table.DASHBOARD_ADDRESS]
    counts = settings.decide_counts(n_workers, threads_per_worker, processes=processes)
    return counts, local_directory, dashboard_address


def choose_name(name: str | None) -> str:
    """Return the name; without one `local-<process>`, numbered from the second cluster on."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name= is a text, and {name!r} is of type {type(name).__name__}")
    if name:
        return name
    number = next(_numbers)
    return f"local-{os.getpid()}" if number == 1 else f"local-{os.getpid()}-{number}"


def choose_protocol(protocol: str | None, processes: bool, host: str | None) -> str:
    """Return "unix", "tcp" or "inproc".

    Raises:
        ConfigError: it does not fit the other arguments, or this machine.
    """
    if processes not in (True, False):
        raise ConfigError(f"{processes!r} is neither True nor False", "processes")
    if protocol is not None:
        protocol = protocol.removesuffix("://")
    if not processes:
        if protocol not in (None, "inproc"):
            raise ConfigError(
                f"{protocol!r} needs processes=True; without processes it is 'inproc'", "protocol"
            )
        return "inproc"
    if host is not None and not is_loopback(host):
        raise ConfigError(
            f"{host!r} can be reached from other machines; a LocalCluster is for this one. "
            "Start 'weft scheduler --host ...', which encrypts",
            "host",
        )
    if os.name != "posix":
        raise ConfigError(
            "worker processes need an operating system that can fork; use processes=False",
            "processes",
        )
    if protocol is None:
        return "tcp" if host is not None else "unix"
    if protocol not in ("unix", "tcp"):
        raise ConfigError(f"{protocol!r} is not 'unix' or 'tcp'", "protocol")
    return protocol


def parse_dashboard_address(address: object, processes: bool) -> tuple[str, int]:
    """Return host and port of the pages, ("", 0) for none; a number is a port, as in dask.

    Without processes there are none. Programs from dask ask for any port so that two clusters do
    not meet, and that is not worth an error.

    Raises:
        ConfigError: it is neither, or there is no process that could serve the pages at this port.
    """
    if address is None:
        return "", 0
    if type(address) is int:
        address = str(address)
    if not isinstance(address, str):
        raise ConfigError(
            f"{address!r} is not host:port; write for example 127.0.0.1:8787", "dashboard_address"
        )
    parsed = parse_host_port(address, "dashboard_address")
    if not processes:
        text = "it needs processes=True: the pages are served by a process beside the scheduler's"
        if parsed[1]:
            raise ConfigError(text, "dashboard_address")
        _log.warning(
            "no status page is served at dashboard_address=%r: %s",
            address,
            text,
            extra={"code": "status-page-missing"},
        )
        return "", 0
    return parsed


def parse_environment(env: object, processes: bool) -> dict[str, str]:
    """Return the environment variables of the worker processes."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise ConfigError(f"a mapping of names to texts, not {env!r}", "env")
    found: dict[str, str] = {}
    for name, value in env.items():
        if not isinstance(name, str) or not name or {"=", "\0"} & {*name}:
            raise ConfigError(f"{name!r} is no name of an environment variable", "env")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise ConfigError(f"the value of {name} is a text or a number, not {value!r}", "env")
        if "\0" in (text := str(value)):
            raise ConfigError(f"the value of {name} has a zero byte in it", "env")
        found[name] = text
    if found and not processes:
        raise ConfigError(
            "it needs processes=True: the workers are threads of this process, whose variables "
            "are in os.environ",
            "env",
        )
    return found


def choose_log_level(silence_logs: int | bool) -> int:
    """Return the level from which on the processes log."""
    if silence_logs is False:
        return logging.INFO
    if silence_logs is True:
        return logging.WARNING
    if not isinstance(silence_logs, int):
        raise ConfigError(
            f"{silence_logs!r} is not a level of logging, such as logging.WARNING",
            "silence_logs",
        )
    return silence_logs


def choose_security(security: Security | bool | None) -> Security:
    """Return the token and the cluster's id; new ones by default, and for True, as in dask."""
    if security is None or security is True:
        return Security(token=new_token().encode(), cluster_id=new_cluster_id())
    if not isinstance(security, Security):
        raise ConfigError(f"a weft Security, or None for a new token, not {security!r}", "security")
    if security.cluster_id is None:
        raise ConfigError("it must have a cluster_id", "security")
    if security.level < Level.ADMIN:
        raise ConfigError(
            f"its token must be that of an admin, not of role {security.level.label}: the tokens "
            "of workers and clients are derived from it",
            "security",
        )
    return security
