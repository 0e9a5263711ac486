"""The scheduler's process, embedded or as a daemon: the server, its HTTP process, its files.

HTTP runs in a process of its own because tornado imports pickle, and because a page must not delay
an assignment. It is a child of this process, connects as a viewer, and ends with this process.

Nothing here may import pickle, multiprocessing or tornado.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...protocol.errors import ConfigError, InternalError, TakenOver
from ...protocol.host.exits import EXIT_CRASHED, EXIT_TAKEN_OVER
from ...protocol.host.facts import process_facts
from ...protocol.host.file_limit import raise_file_limit
from ...protocol.net.deadline import within
from ...protocol.net.sockets import outward_host
from ...protocol.trust.connection_file import ConnectionFile
from ...protocol.trust.security import Security, needs_tls
from ...protocol.wire.address import Address, parse_address
from ...protocol.wire.levels import Level
from ...scheduler.config import SchedulerConfig
from ...scheduler.core.insight.info import describe_unfinished
from ...scheduler.core.members.membership import stop_cluster
from ...scheduler.journal.journal import Journal
from ...scheduler.journal.places import store_at
from ...scheduler.server import SchedulerServer, run
from ..http.browser_access import UsedLinks
from ..processes.child import RESTART_S, KeptServer, Parent

_log = logging.getLogger("weft.scheduler")

_HTTP_RETRY_S: Final = 0.1


@dataclass
class DaemonConfig:
    """A scheduler, its pages and its files.

    Attributes:
        scheduler: the server's own configuration.
        dashboard_host: host of the HTTP pages, "" = no pages.
        dashboard_port: 0 = any free one.
        dashboard_host_names: of the pages, beside those that this machine knows.
        dashboard_fallback: take any free port if that one is taken.
        dashboard_patience_s: time in which a port that is taken may become free.
        connection_file: returns the path of the file to write, None = no file.
        on_listening: called once, before a peer is answered.
        on_ready: called once, with the server and the dashboard's URL ("" = none).
        wait_stop: returns when the process is to end, beside SIGINT and SIGTERM.
        stop_reason: the reason for the end then.
        ends_workers: end the workers then, too: they cannot find another scheduler.
    """

    scheduler: SchedulerConfig
    dashboard_host: str = ""
    dashboard_port: int = 0
    dashboard_host_names: tuple[str, ...] = ()
    dashboard_fallback: bool = False
    dashboard_patience_s: float = 0.0
    connection_file: Callable[[SchedulerServer], Path] | None = None
    on_listening: Callable[[SchedulerServer], None] | None = None
    on_ready: Callable[[SchedulerServer, str], None] | None = None
    wait_stop: Callable[[], Coroutine[Any, Any, None]] | None = None
    stop_reason: str = "the owner of this cluster has closed it, or is gone"
    ends_workers: bool = False
    handle_signals: bool = True


class _Daemon:
    def __init__(self, config: DaemonConfig) -> None:
        self.config = config
        self.error: Exception | None = None
        self._written: tuple[ConnectionFile, Path] | None = None
        self._http = KeptServer(
            "http", "HTTP process", _log, config.dashboard_port, self._plain_of_http
        )
        self._began = time.time()
        #: One-time links that an HTTP process has accepted: none is accepted twice.
        self._used_links = UsedLinks()
        self._tasks: list[asyncio.Task[None]] = []

    def on_started(self, server: SchedulerServer) -> None:
        self._server = server
        if self.config.on_listening is not None:
            self.config.on_listening(server)
        loop = asyncio.get_running_loop()
        if self.config.handle_signals:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._on_signal, number)
        self._tasks.append(loop.create_task(self._accompany()))
        if self.config.wait_stop is not None:
            self._tasks.append(loop.create_task(self._stop_when_told(self.config.wait_stop())))

    def _on_signal(self, number: int) -> None:
        unfinished = describe_unfinished(self._server.state)
        if unfinished and not self._server.stopping:
            _log.info("%s; clients wait for the next scheduler of this cluster", unfinished)
        self._tasks.append(
            asyncio.get_running_loop().create_task(self._server.stop(signal.Signals(number).name))
        )

    async def _stop_when_told(self, told: Coroutine[Any, Any, None]) -> None:
        try:
            await told
        finally:
            if self.config.ends_workers:
                stop_cluster(self._server.state, self.config.stop_reason)
            # Also after an error of the wait: nothing else would stop this process.
            await self._server.stop(self.config.stop_reason)

    async def _accompany(self) -> None:
        """Start the HTTP process, write the connection file, report readiness; keep HTTP alive."""
        try:
            await self._begin()
            if self.config.dashboard_host:
                await self._http.keep(
                    self._is_stopping,
                    lambda report: self._used_links.add(report["used_link"], time.time()),
                )
        except Exception as error:
            # A failure while everything is being stopped is expected.
            if self._server.stopping:
                _log.debug("the scheduler was stopped during its start: %s", error)
                return
            self.error = error  # reported once, by the process that started this one
            await self._server.stop("it could not be started")

    async def _begin(self) -> None:
        url = ""
        if self.config.dashboard_host:
            url = await self._start_http_somewhere()
            self._server.state.facts["dashboard"] = url
        if self.config.connection_file is not None:
            addresses = [contact_address(address) for address in self._server.addresses]
            file = ConnectionFile.of_this_process(
                self.config.scheduler.security, addresses, url or None
            )
            path = self.config.connection_file(self._server)
            file.write(path)
            self._written = file, path
        if self.config.on_ready is not None:
            self.config.on_ready(self._server, url)

    async def _is_stopping(self) -> bool:
        """Return whether the HTTP process ended because the scheduler does; waits a moment."""
        if self._server.stopping:
            return True
        try:
            await within(RESTART_S, self._server.wait_stopped())
        except TimeoutError:
            return self._server.stopping
        return True

    async def _start_http_somewhere(self) -> str:
        deadline = time.monotonic() + self.config.dashboard_patience_s
        while True:
            try:
                await self._http.start_async()
                break
            except ConfigError:
                if time.monotonic() < deadline:
                    await asyncio.sleep(_HTTP_RETRY_S)
                    continue
                if not self.config.dashboard_fallback or not self._http.port:
                    raise
            self._http.port = 0
        scheme = "https" if needs_tls(self.config.dashboard_host) else "http"
        bound = Address("tcp", self.config.dashboard_host, self._http.port)
        return contact_address(str(bound)).replace("tcp", scheme, 1) + "/"

    def _plain_of_http(self) -> dict[str, Any]:
        security = self.config.scheduler.security.lowered(Level.VIEW)
        return {
            "host": self.config.dashboard_host,
            "host_names": list(self.config.dashboard_host_names),
            "scheduler_address": self._server.addresses[0],
            "security": security.to_plain(with_private_key=True),
            "began": self._began,
            "used_links": self._used_links.to_plain(),
        }

    def close(self) -> None:
        # The file first: signals are not handled any more, and the next may end this process.
        if self._written is not None:
            file, path = self._written
            file.remove(path)
        self._http.close()


def run_daemon(config: DaemonConfig) -> None:
    """Run a scheduler until it is stopped; the only work of this process.

    Raises:
        WeftError: it could not be started.
        InternalError: a bug of weft has ended it, which is logged.
        TakenOver: another scheduler of the cluster has taken over, which is logged.
    """
    raise_file_limit()
    daemon = _Daemon(config)
    try:
        run(config.scheduler, daemon.on_started)
    finally:
        daemon.close()
    if daemon.error is not None:
        raise daemon.error


def contact_address(address: str) -> str:
    """Return the address by which others reach `address`: one host, not "every interface"."""
    parsed = parse_address(address)
    if parsed.is_tcp and parsed.host in ("0.0.0.0", "::"):
        parsed = parsed._replace(host=outward_host(parsed.host))
    return str(parsed)


def run_embedded(parent: Parent) -> int:
    """Be the scheduler process of a `LocalCluster`; `local/cluster.py` configures it."""
    plain = parent.read_config()

    # When a program ends, its workers end too, perhaps before this process is notified of either.
    # Warnings about that in the user's terminal would be of no use.
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: record.levelno >= logging.ERROR or not parent.is_gone)

    def on_ready(server: SchedulerServer, url: str) -> None:
        parent.ready(address=server.addresses[0], dashboard=url)

    try:
        run_daemon(
            DaemonConfig(
                scheduler=SchedulerConfig(
                    addresses=[plain["address"]],
                    security=Security.from_plain(plain["security"]),
                    facts=process_facts() | {"name": plain.get("name", "")},
                    journal=Journal(store_at(place)) if (place := plain.get("journal")) else None,
                    **plain["options"],
                ),
                dashboard_host=plain["dashboard_host"],
                dashboard_port=plain["dashboard_port"],
                on_ready=on_ready,
                wait_stop=parent.wait_gone,
                ends_workers=plain.get("ends_workers", False),
                handle_signals=False,
            )
        )
    except TakenOver:
        return EXIT_TAKEN_OVER
    except InternalError:
        return EXIT_CRASHED  # the scheduler has logged the bug with its traceback
    finally:
        directory = plain["directory"]
        if directory:
            # This process had only its socket there; the last process removes the directory.
            with contextlib.suppress(OSError):
                os.rmdir(directory)
    return 0
