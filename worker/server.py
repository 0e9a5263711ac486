"""The worker process's event loop side: the scheduler's connection, the data port, the peers.

A shell: turns messages into events and what the core wants sent into messages, and decides nothing
about tasks. It holds no global state, so several workers can live in one loop (`processes=False`).

What is to be sent is written once per turn of the loop. While the socket is not writable the core's
out-box grows, and columns in it with it, so that batches form by themselves under load.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import platform
import random
import threading
from collections.abc import Callable
from typing import Any

from ..protocol.errors import (
    CommClosed,
    CommError,
    ConfigError,
    HandshakeError,
    InternalError,
    LocalProtocolError,
    NotAdmitted,
    ProtocolError,
    RemoteProtocolError,
    WrongCluster,
    WrongToken,
)
from ..protocol.net.address import parse_address
from ..protocol.net.connection import Connection
from ..protocol.net.deadline import unless, within
from ..protocol.net.liveness import MISSED_HEARTBEATS, Silence
from ..protocol.net.sockets import host_on_the_way_to
from ..protocol.net.transport import Listener, connect, listen
from ..protocol.trust.security import Security, is_loopback
from ..protocol.wire.handshake import Role
from ..protocol.wire.message import Message
from ..protocol.wire.messages import (
    AssignTasks,
    Bye,
    DropAttempts,
    DropFunctions,
    FetchKeys,
    Heartbeat,
    HoldersGone,
    LocatedKeys,
    Refused,
    RegisterWorker,
    ReturnAttempts,
    Stop,
    Welcome,
)
from .config import WorkerConfig
from .context import WorkerContext
from .core.events import Event, Leave, Received, SchedulerLost
from .core.state import WorkerState
from .executor import Executor
from .peers import Peers
from .serving import DataServer, LateHandler, for_listening
from .silence import BEAT_S
from .started import StartedRecord
from .store import Store

__all__ = ["WorkerServer"]

logger = logging.getLogger("weft.worker")

_FIRST_DELAY_S = 0.1
#: For so long a lost scheduler is looked for often: it may be started again at once.
_SOON_FOR_S, _SOON_DELAY_S = 30.0, 0.5
_MAX_DELAY_S = 5.0
#: Who loses a session sooner than this after it began looks again later each time.
_SOUND_SESSION_S = 10.0
#: How long the end waits until the goodbye is written.
_GOODBYE_S = 0.5
#: For so long, another token or cluster than the connection file's is a restart that is halfway.
_RESTART_S = 10.0

_FOR_CORE = frozenset(
    {AssignTasks, DropAttempts, ReturnAttempts, LocatedKeys, HoldersGone, DropFunctions}
)


class _Session:
    """One connection to the scheduler. What comes late from the last one cannot touch the next."""

    def __init__(self, worker: WorkerServer) -> None:
        loop = asyncio.get_running_loop()
        self._worker = worker
        self.connection: Connection | None = None
        #: Done when the session is: with None to stop, with an error to try again or give up.
        self.over: asyncio.Future[BaseException | None] = loop.create_future()
        #: Done when the connection is gone.
        self.gone: asyncio.Future[None] = loop.create_future()
        self.heartbeat: asyncio.TimerHandle | None = None
        self.silence = Silence()
        self.began: float | None = None

    def end(self, error: BaseException | None) -> None:
        """Let the session end; the first reason counts."""
        if not self.over.done():
            self.over.set_result(error)

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        self._worker._on_messages(self, connection, messages)

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`."""
        self._worker._on_writable(connection)

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        self._worker._on_closed(self, connection, error)
        self.gone.set_result(None)


class WorkerServer:
    """One worker. `run` is its whole life; `stop` ends it from outside."""

    def __init__(
        self, config: WorkerConfig, crashed: Callable[[BaseException], object] | None = None
    ) -> None:
        """Prepare to be what `config` says; `run` does the work.

        `crashed` is called, on any thread, when weft's own code has failed and the process is to
        end; None = end the worker only, in order.
        """
        self.config = config
        self._on_crash = crashed
        #: Of the data port; "" until it listens.
        self.address = ""
        self.name = config.name
        #: Set while the worker is registered.
        self.registered = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._rng = random.Random(config.worker_id)
        self._executor: Executor | None = None
        self._listener: Listener | None = None
        self._server: DataServer | None = None
        self._peers: Peers | None = None
        self._started: StartedRecord | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._process: Any = None
        #: Of the current session, once it was asked for.
        self._connection: Connection | None = None
        self._n_sessions = 0
        self._epoch = 0
        #: The scheduler is not there, and that was said.
        self._is_lost = False
        #: Since when whoever answers is of another cluster than the one that was looked up.
        self._foreign_since: float | None = None
        #: The one under way, or the last one.
        self._current: _Session | None = None
        self._stop_reason: str | None = None
        #: Ends the worker, which leaves, even if its tasks have not ended; None = it stays.
        self._grace: asyncio.TimerHandle | None = None
        self._fatal: BaseException | None = None
        self._stopping = asyncio.Event()

    @property
    def executor(self) -> Executor:
        """The executor; there is one from the first connection on."""
        assert self._executor is not None
        return self._executor

    # --- Life -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the scheduler or `stop` says that it is enough.

        Raises:
            NotAdmitted: the scheduler does not take this worker; trying again will not help.
            HandshakeError: whoever answers is not this worker's scheduler.
            ConfigError: no data port can be opened where the configuration says.
            CommError: the scheduler is out of reach and `config.reconnect` is off.
            InternalError: a bug of weft.
        """
        delay_s = _FIRST_DELAY_S
        patient_at = self._loop.time() + _SOON_FOR_S
        try:
            while not self._stopping.is_set():
                try:
                    await self._run_session()
                except (WrongToken, WrongCluster) as error:
                    if not self._may_be_restarting():
                        raise
                    logger.debug("cannot reach the scheduler yet: %s", error)
                except CommError as error:
                    if not self.config.reconnect:
                        if self._n_sessions:
                            logger.info("the scheduler is gone: %s", error)
                            return
                        raise
                    self._say_lost(error)
                if self._stopping.is_set() or self._grace is not None:
                    break
                if self._was_sound():
                    delay_s = _FIRST_DELAY_S
                    patient_at = self._loop.time() + _SOON_FOR_S
                await self._pause(self._rng.uniform(0, delay_s))
                limit_s = _SOON_DELAY_S if self._loop.time() < patient_at else _MAX_DELAY_S
                delay_s = min(2 * delay_s, limit_s)
        finally:
            await self._close()

    def _was_sound(self) -> bool:
        began = None if self._current is None else self._current.began
        return began is not None and self._loop.time() - began > _SOUND_SESSION_S

    def _say_lost(self, error: CommError) -> None:
        # A supervisor says it for all its workers.
        is_news = not (self._is_lost or self.config.supervisor_id)
        self._is_lost = True
        what = "the scheduler is gone" if self.registered_once else "no scheduler yet"
        level = logging.WARNING if is_news else logging.DEBUG
        logger.log(level, "%s: %s; trying again", what, error)

    def _may_be_restarting(self) -> bool:
        """Say whether the connection file may soon be that of the scheduler that answers.

        A scheduler that takes another's place opens the port before it writes the file.
        """
        if self.config.find is None or not self.config.reconnect:
            return False
        now = self._loop.time()
        if self._foreign_since is None:
            self._foreign_since = now
        return now - self._foreign_since < _RESTART_S

    def _say_nonsense(self, error: ProtocolError) -> None:
        logger.warning("the scheduler sent nonsense: %s", error)
        self._is_lost = True  # which this line has said

    @property
    def registered_once(self) -> bool:
        """Whether a scheduler has ever accepted this worker."""
        return self._epoch != 0

    def stop(self, reason: str) -> None:
        """End the worker, for the loop's thread. `run` returns soon after."""
        if self._stopping.is_set():
            return
        self._stop_reason = reason
        logger.info("worker %s stops: %s", self.name or self.config.worker_id, reason)
        self._stopping.set()
        if self._current is not None:
            self._current.end(None)

    def leave(self, reason: str) -> None:
        """End the worker when what it runs has ended, or the grace period; asked twice, at once."""
        grace_s = self.config.grace_period_s
        executor = self._executor
        is_busy = self.registered.is_set() and executor is not None and executor.is_executing()
        if self._grace is not None or not grace_s or not is_busy:
            self.stop(reason)
            return
        logger.info("worker %s leaves when its running tasks have ended: %s", self.name, reason)
        text = f"{reason}, and its tasks still ran {grace_s:g} s later"
        self._grace = self._loop.call_later(grace_s, self.stop, text)
        self._stop_reason = reason
        self._handle(Leave(reason))

    async def _pause(self, seconds: float) -> None:
        try:
            await within(seconds, self._stopping.wait())
        except TimeoutError:
            return

    async def _run_session(self) -> None:
        """Connect, register, and work until the connection ends."""
        self._current = session = _Session(self)
        try:
            # A handshake that breaks off would be a warning to the scheduler.
            await unless(session.over, self._join(session), _GOODBYE_S)
            error = await session.over
            if error is not None:
                raise error
        finally:
            self._leave(session)

    async def _join(self, session: _Session) -> None:
        address, security, session.connection = await self._connect(session)
        self._foreign_since = None
        if session.over.done():
            return
        if self._executor is None:
            await self._begin(address, security, session.connection.cluster_id)
        else:
            self._belong_to(security, session.connection.cluster_id)
        self._n_sessions += 1
        self._connection = session.connection
        session.connection.send([self._registration()])

    async def _connect(self, session: _Session) -> tuple[str, Security, Connection]:
        """Connect to the first address that answers; they may be others each time."""
        config = self.config
        addresses, security = config.find() if config.find else ([config.scheduler], None)
        failure = CommError("no address of a scheduler is known")
        for address in addresses:
            try:
                connection = await connect(
                    address,
                    role=Role.WORKER,
                    server_role=Role.SCHEDULER,
                    security=security or config.security,
                    handler=session,
                )
            except CommError as error:
                failure = error
            else:
                return address, security or config.security, connection
        raise failure

    def _leave(self, session: _Session) -> None:
        if session.heartbeat is not None:
            session.heartbeat.cancel()
        if session.connection is not None:
            # Before Welcome nothing but the registration may be sent.
            if self._stopping.is_set() and self.registered.is_set():
                session.connection.send([Bye(reason=self._stop_reason or "")])
            session.connection.close()
        self._connection = None
        self.registered.clear()
        if self._executor is not None:
            self._executor.handle(SchedulerLost())

    async def _begin(self, scheduler: str, security: Security, cluster_id: bytes) -> None:
        """Open the data port and start the threads; once, when the cluster is known."""
        config = self.config
        security = dataclasses.replace(security, cluster_id=cluster_id)
        address = config.data_address(scheduler, await self._own_host(scheduler))
        # Whoever let the scheduler talk in the clear has decided that for its workers as well.
        allow_plaintext = parse_address(scheduler).scheme == "tcp"
        # The executor needs the address and serves the connections that come to it.
        late = LateHandler()
        try:
            self._listener = await listen(
                address,
                role=Role.WORKER_DATA,
                accepted_roles={Role.PEER},
                security=for_listening(security, address),
                on_connection=lambda connection: late,
                allow_plaintext=allow_plaintext,
            )
        except CommError as error:
            # Not the scheduler's doing, so trying again as for a lost one would hide it for ever.
            raise ConfigError(
                f"no data port for other workers and clients: {error}; choose an address of this "
                "machine with --host"
            ) from error
        self.address = self._listener.address
        self.name = config.name or self.address
        if config.started_path is not None:
            self._started = StartedRecord(config.started_path, config.nthreads)
            self._beat(self._started)
        self._executor = Executor(
            WorkerState(config.nthreads, self.address),
            WorkerContext(
                self.name, self.address, config.worker_id, str(config.local_directory or "")
            ),
            Store(config.memory_limit),
            wake=self._wake,
            crashed=self._crashed,
            started=self._started,
        )
        self._server = late.server = DataServer(self._executor, self._started)
        self._peers = Peers(security, self._executor.store, self._handle)
        self._executor.start()

    def _beat(self, record: StartedRecord) -> None:
        record.beat()
        self._beating = self._loop.call_later(BEAT_S, self._beat, record)

    def _belong_to(self, security: Security, cluster_id: bytes) -> None:
        """Meet the others as one of this cluster: a scheduler that was restarted has a new one."""
        assert self._listener is not None
        assert self._peers is not None
        self._listener.belong_to(security.token, cluster_id)
        self._peers.belong_to(security.token, cluster_id)

    async def _own_host(self, scheduler: str) -> str:
        """Return this machine's address on the way to the scheduler."""
        target = parse_address(scheduler)
        if not target.is_tcp or is_loopback(target.host) or self.config.listen_address:
            return target.host  # nobody needs to know
        return await host_on_the_way_to(target.host, target.port or 0)

    async def _close(self) -> None:
        for timer in (self._grace, self._beating):
            if timer is not None:
                timer.cancel()
        if self._peers is not None:
            await self._peers.close()
        if self._server is not None:
            await self._server.close()
        if self._listener is not None:
            await self._listener.close()
        if self._executor is not None:
            ended = await self._end_threads(self._executor)
            if ended and self._started is not None:
                self._started.close()
        session = self._current
        if session is not None and session.connection is not None:
            try:
                await within(_GOODBYE_S, asyncio.shield(session.gone))
            except TimeoutError:
                session.connection.abort()
        if self._fatal is not None:
            raise InternalError(f"a thread of the worker ended: {self._fatal!r}") from self._fatal

    async def _end_threads(self, executor: Executor) -> bool:
        executor.stop()
        deadline = self._loop.time() + self.config.stop_timeout_s
        # The end of a thread wakes nobody, so there is no event to wait for.
        while not (ended := executor.join(0.0)) and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return ended

    # --- The scheduler's connection ---------------------------------------------------------------

    def _on_messages(
        self, session: _Session, connection: Connection, messages: list[Message]
    ) -> None:
        if session.over.done():
            return  # void: what the session had is dropped, and so is what was said in it
        try:
            if not set(map(type, messages)) <= _FOR_CORE:
                messages = [
                    message
                    for message in messages
                    if type(message) in _FOR_CORE or self._on_other(session, connection, message)
                ]
            if messages:
                self._handle(Received(messages))
        except RemoteProtocolError as error:
            self._say_nonsense(error)
            self._give_up(session, connection, f"it sent nonsense: {error}")

    def _on_other(self, session: _Session, connection: Connection, message: Message) -> bool:
        """Handle a message that is not for the core; return False."""
        if isinstance(message, Welcome) and not self.registered.is_set():
            self._on_welcome(session, connection, message)
        elif isinstance(message, FetchKeys):
            assert self._server is not None
            self._server.serve(connection, message.request, message.keys)
        elif isinstance(message, Stop):
            self.stop(message.reason or "the scheduler said so")
        elif isinstance(message, Refused):
            kind = NotAdmitted if message.is_final else HandshakeError
            session.end(kind(f"the scheduler refused it: {message.reason}"))
        elif isinstance(message, Bye):
            session.end(CommClosed(f"the scheduler said: {message.reason}"))
        elif not isinstance(message, Heartbeat):
            raise RemoteProtocolError(f"a worker cannot take {type(message).__name__}")
        return False

    def _on_welcome(self, session: _Session, connection: Connection, message: Welcome) -> None:
        is_back = self.registered_once
        connection.wire.epoch = self._epoch = message.epoch
        connection.wire.session = message.session
        self._is_lost = False
        logger.log(
            logging.DEBUG if is_back and self.config.supervisor_id else logging.INFO,
            "worker %s at %s registered at %s",
            self.name,
            self.address,
            connection.address,
        )
        self.registered.set()
        session.began = self._loop.time()
        self._send_heartbeat(session, connection, max(0.05, message.heartbeat_ms / 1000))

    def _on_writable(self, connection: Connection) -> None:
        if self._server is not None:
            self._server.on_writable(connection)
        self._flush()

    def _on_closed(
        self, session: _Session, connection: Connection, error: CommError | ProtocolError | None
    ) -> None:
        if self._server is not None:
            self._server.on_closed(connection, error)
        if session.over.done():
            return
        if isinstance(error, ProtocolError):
            self._say_nonsense(error)
        if not isinstance(error, CommError):
            error = CommClosed(
                "the connection to the scheduler ended" if error is None else str(error),
                connection.address,
            )
        session.end(error)

    def _registration(self) -> RegisterWorker:
        config = self.config
        return RegisterWorker(
            worker_id=config.worker_id,
            name=self.name,
            session=self._n_sessions,
            last_epoch=self._epoch,
            address=self.address,
            nthreads=config.nthreads,
            memory_limit=config.memory_limit,
            resources=config.resources,
            supervisor_id=config.supervisor_id,
            facts={
                "pid": os.getpid(),
                "host": platform.node(),
                "python": platform.python_version(),
            },
        )

    def _send_heartbeat(self, session: _Session, connection: Connection, interval_s: float) -> None:
        if session.silence.look(connection):
            seconds = round(MISSED_HEARTBEATS * interval_s, 1)
            self._give_up(session, connection, f"it was silent for {seconds:g} s")
            return
        # First of all: whatever goes wrong below must not end the heartbeats.
        session.heartbeat = self._loop.call_later(
            interval_s, self._send_heartbeat, session, connection, interval_s
        )
        connection.send([Heartbeat(facts=self._measure())])

    @staticmethod
    def _give_up(session: _Session, connection: Connection, reason: str) -> None:
        session.end(CommClosed(reason, connection.address))
        connection.abort()

    def _measure(self) -> dict[str, Any]:
        import psutil

        state = self.executor.state
        facts: dict[str, Any] = {"tasks": len(state.by_key), "ready": state.ready.n}
        try:
            if self._process is None:
                self._process = psutil.Process()
            facts["rss"] = self._process.memory_info().rss
            facts["cpu"] = self._process.cpu_percent(None)
        except (psutil.Error, OSError) as error:  # a task may have used up all file descriptors
            logger.debug("cannot measure this process: %s", error)
        return facts

    # --- Between the core and the loop ------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self.executor.handle(event)

    def _wake(self) -> None:
        """Have `_flush` called when this turn of the loop ends. Called on any thread."""
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(self._flush)
            return
        try:
            self._loop.call_soon_threadsafe(self._flush)
        except RuntimeError:  # the loop is closed: the process ends, and nobody is told any more
            return

    def _flush(self) -> None:
        executor = self._executor
        if executor is None:
            return
        connection = self._connection
        writable = connection is None or connection.writable
        # Before what is to be sent is taken: then all reports are among it.
        is_over = self._grace is not None and writable and not executor.is_executing()
        messages, after = executor.drain(writable)
        if messages and connection is not None:
            try:
                connection.send(messages)
            except LocalProtocolError as error:
                # They are lost. In a session without them the scheduler would wait for ever.
                logger.error("cannot tell the scheduler: %s", error)  # noqa: TRY400 - it says all
                assert self._current is not None
                self._give_up(self._current, connection, f"what was to be said: {error}")
        if after and self._peers is not None:
            for action in after:
                self._peers.do(action)
        if is_over:
            self.stop(self._stop_reason or "")

    def _crashed(self, error: BaseException) -> None:
        """A thread of ours ended by a bug. Without it tasks would hang, so all ends."""
        if self._on_crash is not None:
            self._on_crash(error)
        logger.error("a thread of the worker ended", exc_info=error)
        self._fatal = error
        try:
            self._loop.call_soon_threadsafe(self.stop, "a bug of weft")
        except RuntimeError:
            return
