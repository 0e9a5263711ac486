"""Finds a client's cluster: a given one, that of a connection file, or a new `LocalCluster`."""

from __future__ import annotations

import logging
import os
import socket
from typing import Any, Protocol

from ...protocol.errors import CommClosed, ConfigError
from ...protocol.host.process_role import is_worker_process
from ...protocol.net.probing import why_nobody_answers
from ...protocol.net.session import Finder
from ...protocol.settings.common import CONNECTION_FILE
from ...protocol.settings.sources import Settings
from ...protocol.trust.addresses import with_port
from ...protocol.trust.finding import NoSchedulerFound, find, known_files
from ...protocol.trust.security import Security
from ...protocol.wire.levels import Level
from .. import upper_packages
from ..dask import absent_names
from ..shell.link import SchedulerEnded
from ..shell.loop import LoopThread

_log = logging.getLogger("weft.client")
#: The addresses of running schedulers that were reported: once is enough for a program.
_noted: set[str] = set()


class ClusterLike(Protocol):
    """The attributes of a cluster object that `Client` uses.

    It may also have `loop_thread`, a `LoopThread` or None: the thread in which a cluster without
    processes runs, from whose loop alone its inproc:// address can be reached. And `failure`, a str
    or None: the reason why its scheduler will never come back.
    """

    scheduler_address: str
    security: Security


class Location:
    """Looks up the scheduler's address, again at each attempt to connect."""

    def __init__(
        self,
        address: str | ClusterLike | None,
        connection_file: str | os.PathLike[str] | None,
        security: Security | bool | None,
        cluster_options: dict[str, Any],
        settings: Settings,
    ) -> None:
        if address is not None and not isinstance(address, str):
            is_located = isinstance(getattr(address, "scheduler_address", None), str)
            # A client has an address too, but no security.
            if not is_located or (security is None and not hasattr(address, "security")):
                hint = "; client.cluster is the cluster that a client has started"
                raise TypeError(
                    "address= is a str, or a cluster with scheduler_address and security, not "
                    f"{type(address).__name__}{hint if is_located else ''}"
                )
            if connection_file is not None:
                raise TypeError("give a cluster or a connection_file=, not both")
        where = settings.origin(CONNECTION_FILE)
        self._is_local = address is None and connection_file is None and not where
        if security is True and self._is_local:
            security = None  # dask's word for what a new cluster has anyway
        if security is not None and not isinstance(security, Security):
            raise TypeError(
                "security= is a weft Security, with the token of a running cluster, not "
                f"{security!r}; without it the token is looked up, or made for a new cluster"
            )
        self.cluster: Any = None if isinstance(address, str) else address
        self._address = with_port(address) if isinstance(address, str) else None
        self._connection_file = os.fspath(connection_file) if connection_file is not None else None
        self._security = security
        self._cluster_options = cluster_options
        self._owns_cluster = False
        self._was_found = False
        if cluster_options and not self._is_local:
            *others, last = [f"{name}=" for name in sorted(cluster_options)]
            names = (
                f"{', '.join(others)} and {last} are options" if others else f"{last} is an option"
            )
            why = ""
            if address is None and connection_file is None:
                why = f", because {where} is set: unset it to start a LocalCluster"
                if not where.startswith("$"):
                    why = f", because a connection-file is set in {where}"
            raise TypeError(
                f"{names} of a LocalCluster, but this client connects to a running one" + why
            )

    def start_cluster(self) -> None:
        """Start a LocalCluster if there is nothing to connect to.

        Raises:
            CommClosed: the given cluster has ended.
            ConfigError: the given cluster was not started.
        """
        self._check_given()
        if self._is_local:
            self._note_running()
            self.cluster = upper_packages.local_cluster()(**self._cluster_options)
            self._owns_cluster = True

    async def start_cluster_async(self) -> None:
        """Do what `start_cluster` does, in the loop that runs."""
        self._check_given()
        if self._is_local:
            self._note_running()
            cluster = upper_packages.local_cluster()(asynchronous=True, **self._cluster_options)
            self.cluster = await cluster
            self._owns_cluster = True

    def _check_given(self) -> None:
        if self.cluster is None:
            return
        failure = getattr(self.cluster, "failure", None)
        if isinstance(failure, str):
            raise CommClosed(failure)
        if not self.cluster.scheduler_address:
            raise ConfigError(
                f"this {type(self.cluster).__name__} was not started: await it, or enter it with "
                "`async with`, before a client is made",
                "address",
            )

    def _note_running(self) -> None:
        """Report a scheduler of this user that runs on this machine, and is perhaps the one meant.

        A user who gives an option of a LocalCluster means a new one. No process is asked: the file
        of a scheduler has the number of its process.
        """
        if self._cluster_options or is_worker_process():
            return
        here = socket.gethostname()
        for file in known_files()[0]:
            address = file.addresses[0]
            if file.host == here and address not in _noted:
                _noted.add(address)
                _log.warning(
                    "a scheduler of yours runs at %s, and this client starts a cluster of its own: "
                    "weft.Client(%r) joins that one, and an option such as n_workers= silences "
                    "this line",
                    address,
                    address,
                )

    def take_n_expected(self) -> int:
        """Return how many workers a new LocalCluster is starting; 0 at the second call."""
        take = getattr(self.cluster, "_take_n_expected", None)
        return int(take()) if callable(take) else 0

    def loop_thread(self) -> LoopThread | None:
        """Return the thread in which the cluster runs, if it runs in one."""
        found = getattr(self.cluster, "loop_thread", None)
        return found if isinstance(found, LoopThread) else None

    def finder(self) -> Finder:
        """Return the function that finds the scheduler's current address."""
        return self._find

    def _find(self) -> tuple[list[str], Security]:
        if self.cluster is not None:
            failure = getattr(self.cluster, "failure", None)
            if isinstance(failure, str):
                raise SchedulerEnded(failure)
            security = self._security or self.cluster.security
            if not isinstance(security, Security):
                raise ConfigError("the cluster object has no security to connect with")
            return [self.cluster.scheduler_address], security
        if self._security is not None and self._address is not None:
            return [self._address], self._security
        try:
            found = find(self._connection_file, self._address, os.environ)
        except NoSchedulerFound as error:
            if self._was_found:
                raise ConfigError(str(error)) from None
            raise _absent(self._address, error) from None
        self._was_found = True
        if self._security is not None:
            return list(found.addresses), self._security
        found.demand(Level.CLIENT, "a client")
        return list(found.addresses), found.to_security()

    def close(self) -> None:
        """End a cluster that was started here."""
        if self._owns_cluster:
            self._owns_cluster = False
            self.cluster.close()

    async def close_async(self) -> None:
        """Do what `close` does, in a coroutine."""
        if self._owns_cluster:
            self._owns_cluster = False
            await self.cluster.close()


def _absent(address: str | None, error: NoSchedulerFound) -> NoSchedulerFound:
    """Return an error with the advice for users of a client."""
    if address is None:
        advice = "start one with `weft scheduler --connection-file`, or correct the path"
        return NoSchedulerFound(error.what, advice, error.details)
    if problem := why_nobody_answers(address):
        advice = "start one there with `weft scheduler`, or correct the address; see `weft doctor`"
        return NoSchedulerFound(problem, advice, error.details)
    advice = "pass the connection_file= of its scheduler, or set $WEFT_TOKEN_FILE"
    return NoSchedulerFound(error.what, advice, error.details, is_answered=True)


def check_own_options(name: object, asynchronous: object) -> None:
    """Raise TypeError for options of `Client` itself that have a wrong type."""
    if name is not None and not isinstance(name, str):
        raise TypeError(f"name= is a text, and {name!r} is of type {type(name).__name__}")
    if type(asynchronous) is not bool:
        raise TypeError(f"asynchronous= is True or False, not {asynchronous!r}")


def check_options(options: dict[str, Any], client: type) -> None:
    """Raise TypeError for names that are options of neither `Client` nor `LocalCluster`.

    Options of dask with their default have no effect, and are removed.
    """
    if not options:
        return
    cluster = upper_packages.local_cluster()
    of_cluster = absent_names.options_of(cluster)
    for name in list(options):
        if name in of_cluster:
            continue
        if not absent_names.is_default(name, options[name], client):
            raise absent_names.unknown_option(name, client, cluster)
        del options[name]
