"""The supervisor's side of its plugins: does the actions of `Hosting`, and speaks with the host.

A part of the shell. The host is a child of the spawner; its channel is one end of a socket pair,
which goes to the spawner with the order to start it. Nothing that the host sends is unpickled, and
nothing of it can do more than end the host: an answer that is none is the end of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgpack

from ...protocol.errors import PluginFailed
from ...protocol.host.exits import describe_exit
from ...protocol.net.connection import Connection
from ...protocol.net.deadline import within
from ...protocol.reported import RENEWED
from ...protocol.wire.payload import Payload
from ..plugins.calling_plugins import packed, report_done
from .exits import take_failure
from .hosting import (
    PATIENCE_S,
    EndFamily,
    HoldWorkers,
    Hosting,
    KillHost,
    LetHostEnd,
    Order,
    PluginJob,
    ReleaseWorkers,
    ReplaceWorkers,
    ReportJob,
    RunJob,
    StartHost,
    WatchJob,
)
from .plugin_host import LENGTH, is_environment

if TYPE_CHECKING:
    from .supervisor import Supervisor

_log = logging.getLogger("weft.supervisor")

#: How often it is tried to send the channel, while the spawner does not read.
_LOOK_S: Final = 0.05
#: A longer answer is not one of the host, but of code that has got hold of its channel.
_MAX_ANSWER: Final = 64 << 20


class SupervisorPlugins:
    """The plugins of one supervisor. For the loop's thread only."""

    def __init__(
        self, family: Supervisor, supervisor_id: str, directory: str, options: dict[str, Any]
    ) -> None:
        """Prepare; a host is started when it is needed.

        Args:
            family: the supervisor.
            supervisor_id: of it.
            directory: the folder of the family.
            options: the configuration of workers, of which the host gets what holds for it.
        """
        self._family = family
        self._supervisor_id = supervisor_id
        self._directory = directory
        self._options = options
        self._core = Hosting()
        self._loop = asyncio.get_running_loop()
        self._host_id = ""
        self._pid = 0
        self._started = 0.0
        self._jobs: asyncio.Queue[PluginJob | None] = asyncio.Queue()
        self._speaking: asyncio.Task[None] | None = None
        self._starting: asyncio.TimerHandle | None = None
        self._ended = asyncio.Event()
        self._ended.set()

    @property
    def is_holding(self) -> bool:
        """Whether no worker may be started."""
        return self._core.is_holding

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which workers are started."""
        return self._core.environment

    def on_order(self, connection: Connection, order: Order) -> None:
        """Do what the scheduler asks."""
        self._core.on_order(connection, order)
        self._act()

    def on_worker_started(self, worker_id: str) -> None:
        """Note that a worker was requested."""
        self._core.on_worker_started(worker_id)

    def on_worker_ended(self, worker_id: str) -> None:
        """Note that the process of a worker has ended."""
        self._core.on_worker_ended(worker_id)
        self._act()

    async def close(self, patience_s: float) -> None:
        """Have all plugins torn down, and end the host; after this time it is killed."""
        self._core.close()
        self._act()
        self._cancel_start()
        try:
            await within(patience_s, self._ended.wait())
        except TimeoutError:
            _log.warning(
                "plugins of the supervisor were not torn down within %g s: their process is killed",
                patience_s,
                extra={"code": "plugin-failed"},
            )
            self._kill()
            if not self._pid:  # it was never forked
                self.abort()
            await self._ended.wait()

    def abort(self) -> None:
        """Forget the host: the spawner ends it."""
        self._core.close()
        self._core.actions.clear()
        self._cancel_start()
        self._hang_up()
        self._ended.set()

    # --- The host, as the spawner reports it ------------------------------------------------------

    def takes(self, kind: str, rest: list[Any]) -> bool:
        """Take a report of the spawner; False if it is not about the host."""
        if kind == "started" and rest[0] == self._host_id:
            self._on_started(rest[1])
        elif kind == "failed" and rest[0] == self._host_id:
            self._on_end(rest[1], 0.0)
        elif kind == "exited" and rest[0] == self._pid:
            self._on_exited(os.waitstatus_to_exitcode(rest[1]))
        else:
            return False
        return True

    def _on_started(self, pid: int) -> None:
        """Note that the process of the host was forked."""
        self._pid = pid
        self._core.on_host_started()
        self._act()

    def _on_exited(self, code: int) -> None:
        """Note that the process of the host has ended."""
        failure = take_failure(self._record) if code > 0 else ""
        how = describe_exit(code) + (f": {failure}" if failure else "")
        self._on_end(how, time.monotonic() - self._started)

    def _on_end(self, why: str, lived_s: float) -> None:
        self._pid = 0
        self._host_id = ""
        self._hang_up()
        self._ended.set()
        self._core.on_host_ended(why, lived_s)
        self._act()

    # --- Actions ----------------------------------------------------------------------------------

    def _act(self) -> None:
        while self._core.actions:
            actions, self._core.actions = self._core.actions, []
            for action in actions:
                if isinstance(action, StartHost):
                    self._starting = self._loop.call_later(action.pause_s, self._start)
                elif isinstance(action, RunJob):
                    self._jobs.put_nowait(action.job)
                elif isinstance(action, ReportJob):
                    self._report(action)
                elif isinstance(action, HoldWorkers):
                    if action.ends_running:
                        self._family.end_workers(
                            "it is started after the plugins of its supervisor"
                        )
                elif isinstance(action, ReleaseWorkers):
                    self._family.release_workers()
                elif isinstance(action, ReplaceWorkers):
                    self._family.end_workers(RENEWED)
                elif isinstance(action, EndFamily):
                    _log.error(
                        "the workers end: %s", action.reason, extra={"code": "plugin-failed"}
                    )
                    self._family.stop(action.reason, 1)
                elif isinstance(action, LetHostEnd):
                    self._let_end()
                elif isinstance(action, WatchJob):
                    self._loop.call_later(PATIENCE_S, self._on_overdue, action.job)
                elif isinstance(action, KillHost):
                    self._kill()

    def _on_overdue(self, job: PluginJob) -> None:
        self._core.on_overdue(job)
        self._act()

    @property
    def _record(self) -> Path:
        return Path(self._directory, f"{self._host_id}.started")

    def _start(self) -> None:
        self._starting = None
        self._host_id = uuid.uuid4().hex
        self._started = time.monotonic()
        self._ended.clear()
        config = {
            **self._options,
            "worker_id": self._host_id,
            "name": "plugins",
            "supervisor_id": self._supervisor_id,
            "started_path": str(self._record),
        }
        self._jobs = asyncio.Queue()
        self._speaking = self._family.accompany(self._speak(config, self._jobs))

    def _cancel_start(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None

    async def _speak(self, config: dict[str, Any], jobs: asyncio.Queue[PluginJob | None]) -> None:
        """Start the host, give it its jobs and read its answers, one by one, until it ends."""
        channel, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=channel)
        try:
            with theirs:
                # No event tells that the spawner has read what waits before.
                while not self._family.ask_for_host(config, theirs):  # noqa: ASYNC110
                    await asyncio.sleep(_LOOK_S)
            # The end of the host, whatever its reason, is reported by the spawner.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while (job := await jobs.get()) is not None:
                    for part in _message_of(job):
                        writer.write(part)
                    await writer.drain()
                    failure, environment = await _read_answer(reader)
                    self._core.on_result(failure, environment)
                    self._act()
                writer.write_eof()
                await reader.read()
        except ValueError as error:
            _log.error(
                "the process of the plugins sent no valid answer: %s",
                error,
                extra={"code": "plugin-failed"},
            )
            self._kill()
        finally:
            writer.close()

    def _let_end(self) -> None:
        self._jobs.put_nowait(None)

    def _kill(self) -> None:
        if self._pid:
            self._family.kill(self._pid)

    def _hang_up(self) -> None:
        if self._speaking is not None:
            self._speaking.cancel()
            self._speaking = None

    def _report(self, report: ReportJob) -> None:
        failure, names = report.failure, (f"plugin {report.name!r}", "its supervisor")
        if isinstance(failure, str):
            failure = packed(PluginFailed(report.name, failure), *names)
        connection, request = report.asked.connection, report.asked.request
        report_done(connection, request, failure, *names, was_ready=report.was_ready)


def _message_of(job: PluginJob) -> list[Any]:
    """Return the parts of the message that gives the host a job."""
    blob = b"" if job.blob is None else job.blob
    data, buffers = (blob.data, blob.buffers) if isinstance(blob, Payload) else (blob, ())
    body = msgpack.packb(
        {
            "step": job.step,
            "plugin": job.plugin,
            "name": job.name,
            "data": bytes(data),
            "buffers": [bytes(buffer) for buffer in buffers],
        }
    )
    return [LENGTH.pack(len(body)), body]


async def _read_answer(
    reader: asyncio.StreamReader,
) -> tuple[list[Any] | None, dict[str, str]]:
    """Return the failure, or None, and the variables that an answer of the host has.

    Raises:
        ValueError: it is no answer.
        IncompleteReadError, ConnectionError: the host has ended.
    """
    (nbytes,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if nbytes > _MAX_ANSWER:
        raise ValueError(f"it has {nbytes} bytes, more than the limit of {_MAX_ANSWER}")
    try:
        answer = msgpack.unpackb(await reader.readexactly(nbytes))
        failure, environment = answer["failure"], answer["environment"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if not (failure is None or type(failure) is list) or not is_environment(environment):
        raise ValueError("a part of it is of the wrong type")
    return failure, environment
