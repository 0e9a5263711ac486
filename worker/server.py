"""The event loop side of a worker: the session with the scheduler, the data port, the peers.

A shell: it turns messages into events and the core's out-boxes into messages, and decides nothing
about tasks. It holds no global state, so several workers can live in one loop (`processes=False`).

Messages are written once per iteration of the loop. While the socket is not writable, the columns
of messages in the core's out-box grow, so that batches form under load.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import threading
from collections.abc import Callable
from typing import Any

from ..protocol.amounts import MAX_PER_CORE, N_BESIDE, announced
from ..protocol.errors import (
    CommClosed,
    CommError,
    ConfigError,
    InternalError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WeftError,
)
from ..protocol.host.facts import process_facts
from ..protocol.net.connection import Connection
from ..protocol.net.session import SessionOwner, SessionRunner
from ..protocol.net.sockets import host_on_the_way_to
from ..protocol.net.transport import Listener
from ..protocol.reported import QUEUES_RESOURCES, with_metrics_url
from ..protocol.trust.security import Security, is_loopback
from ..protocol.wire.address import parse_address
from ..protocol.wire.message import Message
from ..protocol.wire.messages import (
    ACTOR_FUNCTION,
    Ask,
    AttemptsErred,
    AttemptsFinished,
    Bye,
    FetchKeys,
    Heartbeat,
    LeaveCluster,
    Put,
    Reconciled,
    RegisterWorker,
    SetUpPlugin,
    Stop,
    TearDownPlugin,
    Welcome,
)
from ..protocol.wire.roles import Role
from ..protocol.wire.session import GiveUp, Outage, Session
from ..protocol.wording import counted
from .actors.actor_waits import ActorWaits
from .actors.actors import Actors, make_actor
from .answering import Answering
from .config import WorkerConfig
from .context import TaskHost, WorkerContext
from .core.events import (
    EndWorker,
    Leave,
    SchedulerLost,
    SchedulerSent,
    SessionOpened,
    WorkerEnding,
)
from .core.features import FEATURES
from .core.seats import MAX_BLOCKED
from .core.state import WorkerState
from .data.parts import PartReader
from .data.peers import Peers
from .data.serving import DataServer, for_listening
from .data.store import Store
from .isolation import executor_for
from .leaving import Grace
from .measuring.numbers import SUFFIX
from .measuring.status import StatusReporter
from .memory import watch_memory
from .output.output import catcher_for
from .policy import WorkerPolicy
from .slots.activity import Transfers
from .slots.executor import TaskExecutor
from .slots.silence import BEAT_S
from .slots.slot_reading import SlotReading
from .slots.started import StartedRecord, attempts_of_unsendable

logger = logging.getLogger("weft.worker")

#: Time that a worker waits at its end until its goodbye is written.
_GOODBYE_S = 0.5


class WorkerServer(SessionOwner):
    """One worker. `run` runs it until its end; `stop` ends it from outside."""

    def __init__(
        self, config: WorkerConfig, crashed: Callable[[BaseException], object] | None = None
    ) -> None:
        """Prepare a worker of this configuration; `run` does the work.

        `crashed` is called, on any thread, when weft's own code has failed; None = end in order.
        """
        self.config = config
        self._offered = announced(config.resources, config.nthreads, config.memory_limit)
        self._on_crash = crashed
        #: The address of the data port; "" until it listens.
        self.address = ""
        self.name = config.name
        #: Set while the worker is registered.
        self.registered = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._executor: TaskExecutor | None = None
        self._listener: Listener | None = None
        self._server: DataServer | None = None
        #: The types of the scheduler's messages that the core handles.
        self._of_core: frozenset[type[Message]] = frozenset()
        self._answering: Answering | None = None
        self._peers: Peers | None = None
        self._started: StartedRecord | None = None
        self._beating: asyncio.TimerHandle | None = None
        self._reporter: StatusReporter | None = None
        policy = WorkerPolicy(
            again_s=config.orphan_lease_s if config.reconnect else 0.0,
            reconnect=config.reconnect,
            is_found_anew=config.find is not None,
        )
        self._find = config.find or (lambda: ([config.scheduler], config.security))
        self._runner = SessionRunner(
            Session(policy, random.Random(config.worker_id).random),
            self,
            self._find,
            role=Role.WORKER,
        )
        #: The connection of the open session; None between two sessions.
        self._connection: Connection | None = None
        #: The session that is being opened is the first one of this process.
        self._is_first = True
        #: Held while the session ends, and while a slot's thread handles messages of it.
        self._session_lock = threading.Lock()
        self._stop_reason = ""
        #: Ends a leaving worker even if its tasks have not ended, or only it has their results.
        self._grace = Grace(config.grace_period_s, self.stop)
        #: The core has put out `EndWorker`.
        self._is_over = False
        self._fatal: BaseException | None = None
        #: Done when the worker is to end.
        self._stopped: asyncio.Future[None] = self._loop.create_future()

    @property
    def executor(self) -> TaskExecutor:
        """The executor, which exists from the first connection on."""
        assert self._executor is not None
        return self._executor

    @property
    def is_leaving(self) -> bool:
        """True once it leaves or ends."""
        return bool(self._stop_reason)

    # --- Start and end ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Work until the scheduler sends `Stop`, or `stop` is called.

        Raises:
            NotAdmitted: the scheduler refuses this worker; trying again will not help.
            HandshakeError: the process that answers is not this worker's scheduler.
            ConfigError: no data port can be opened at the configured address.
            CommError: the scheduler is out of reach and `config.reconnect` is off.
            PluginFailed: this new worker could not set up a plugin.
            InternalError: a bug of weft.
        """
        self._runner.start()
        over = self._runner.over
        try:
            both: list[asyncio.Future[Any]] = [over, self._stopped]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            end = None if self._stopped.done() else over.result()
            if end is not None and end.is_final and not self.is_leaving:
                raise end.error
        finally:
            await self._close()

    def stop(self, reason: str) -> None:
        """End the worker, for the loop's thread. `run` returns soon after."""
        if self._stopped.done():
            return
        self._stop_reason = reason
        logger.info("worker %s stops: %s", self.name or self.config.worker_id, reason)
        self._stopped.set_result(None)

    def leave(self, reason: str) -> None:
        """End the worker when it may leave, or after the grace period; a second call: at once."""
        if self.registered.is_set() and self._grace.begin(reason):
            self._begin_to_leave(reason, self._grace.seconds)
        else:
            self.stop(reason)

    def _begin_to_leave(self, reason: str, within_s: float) -> None:
        text = "worker %s leaves when its tasks have ended and others have its results: %s"
        logger.info(text, self.name, reason)
        self._stop_reason = reason
        self.executor.handle(Leave(reason, within_s))

    # --- The data port ----------------------------------------------------------------------------

    async def _begin(self, scheduler: str, security: Security, cluster_id: bytes) -> None:
        """Open the data port and start the threads; once, when the cluster is known."""
        config = self.config
        security = dataclasses.replace(security, cluster_id=cluster_id)
        address = config.data_address(scheduler, await self._own_host(scheduler))
        # If the scheduler may be reached unencrypted, so may its workers.
        allow_plaintext = parse_address(scheduler).scheme == "tcp"
        try:
            self._listener = await Listener(
                address,
                role=Role.WORKER_DATA,
                accepted_roles={Role.PEER},
                security=for_listening(security, address),
                on_connection=self._on_data_connection,
                allow_plaintext=allow_plaintext,
            ).start()
        except CommError as error:
            # The scheduler is not the cause, so retrying would hide this for ever.
            raise ConfigError(
                f"no data port for other workers and clients: {error}; choose an address of this "
                "machine with --host"
            ) from error
        self.address = config.contact_address(self._listener.address)
        self.name = config.name or self.address
        if config.started_path is not None:
            n_slots = config.nthreads * MAX_PER_CORE + N_BESIDE + MAX_BLOCKED
            self._started = StartedRecord(config.started_path, n_slots)
            self._beat(self._started, self._loop.time())
        folder = str(config.local_directory or "")
        context = WorkerContext(self.name, self.address, config.worker_id, folder, config.resources)
        actors = Actors(self.name, self.address, self._loop)
        context.set_own(actors=actors, host=TaskHost(self.name, config.worker_id, self._find))
        self._executor = executor_for(config)(
            WorkerState(config.nthreads, self.address, FEATURES, self._offered),
            context,
            Store(config.memory_limit),
            wake=self._wake,
            watch=self._watch,
            send=self._send_past_loop,
            crashed=self._crashed,
            started=self._started,
            output=catcher_for(self._loop, config),
            own={ACTOR_FUNCTION: make_actor},
        )
        actors.waits = ActorWaits(self._executor, self._loop, self._crashed)
        transfers = Transfers()
        # Before anything is awaited: from then on connections may come.
        self._server = DataServer(self._executor, transfers, self._started)
        own = self._executor.store, transfers, self._executor.handle, self._server.answer_promises
        self._peers = Peers(security, self.address, *own)
        context.set_own(parts=PartReader(self._executor, self._peers, self._loop).fetch)
        self._of_core = frozenset(self._executor.state.messages)
        self._answering = Answering(self._executor, self.stop, self._peers.reach)
        await self._answering.plugins.begin_with(config.preloaded)
        self._reporter = StatusReporter(self._executor, transfers)
        if config.metrics_url and config.started_path is not None:
            self._reporter.write_to(config.started_path.with_suffix(SUFFIX), self.name)
        watch_memory(config, self._executor, self._reporter, self._loop)
        self._executor.start()

    def _on_data_connection(self, connection: Connection) -> DataServer:
        assert self._server is not None
        return self._server

    def _beat(self, record: StartedRecord, due: float) -> None:
        record.beat(self._executor.children_nbytes() if self._executor is not None else 0)
        now = self._loop.time()
        if self._reporter is not None:
            self._reporter.beat(now - due)
        self._beating = self._loop.call_later(BEAT_S, self._beat, record, now + BEAT_S)

    async def _own_host(self, scheduler: str) -> str:
        """Return this machine's address on the way to the scheduler."""
        target = parse_address(scheduler)
        if not target.is_tcp or is_loopback(target.host) or self.config.listen_address:
            return target.host  # the worker's own address is not used
        return await host_on_the_way_to(target.host, target.port or 0)

    async def _close(self) -> None:
        if self._started is not None:
            self._started.note_left()
        self._grace.close()
        if self._beating is not None:
            self._beating.cancel()
        try:
            self._end_session()
            if self._executor is not None:
                self._executor.handle(WorkerEnding())
        except Exception as bug:
            self._fatal = self._fatal or bug
        await self._runner.leave(self._stop_reason, _GOODBYE_S)
        if self._peers is not None:
            await self._peers.close()
        if self._answering is not None:
            self._answering.close()
        if self._server is not None:
            await self._server.close()
        if self._listener is not None:
            await self._listener.close()
        if self._executor is not None:
            ended = await self._end_threads(self._executor)
            if ended and self._started is not None:
                self._started.close()
        if self._reporter is not None:
            self._reporter.close()
        if self._fatal is not None:
            raise InternalError(f"a bug of weft: {self._fatal!r}") from self._fatal
        if self._answering is not None and self._answering.plugins.failure is not None:
            raise self._answering.plugins.failure

    async def _end_threads(self, executor: TaskExecutor) -> bool:
        executor.stop()
        if executor.context.actors is not None:
            executor.context.actors.close()
        deadline = self._loop.time() + self.config.stop_timeout_s
        # The end of a thread wakes no waiter, so there is no event to wait for.
        while not (ended := self._have_ended(executor)) and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        return ended

    def _have_ended(self, executor: TaskExecutor) -> bool:
        assert self._answering is not None
        actors = executor.context.actors
        return executor.join(0.0) and self._answering.join() and (not actors or actors.have_ended())

    # --- The session with the scheduler -----------------------------------------------------------

    async def prepare(self, connection: Connection, address: str, security: Security) -> None:
        """See `SessionOwner`: open the data port, once, when the cluster is known."""
        if self._executor is None:
            await self._begin(address, security, connection.cluster_id)
            return
        # A restarted scheduler has a new cluster id: accept the peers of that cluster.
        assert self._listener is not None
        assert self._peers is not None
        self._listener.belong_to(security.token, connection.cluster_id)
        self._peers.belong_to(security.token, connection.cluster_id)

    def registration(self, number: int, last_epoch: int) -> Message:
        """See `SessionOwner`."""
        config = self.config
        self._is_first = not last_epoch
        facts = with_metrics_url(process_facts(), config.metrics_url)
        return RegisterWorker(
            worker_id=config.worker_id,
            name=self.name,
            session=number,
            last_epoch=last_epoch,
            address=self.address,
            nthreads=config.nthreads,
            memory_limit=config.memory_limit,
            resources=self._offered,
            supervisor_id=config.supervisor_id,
            facts={**facts, **config.facts(), QUEUES_RESOURCES: True},
            is_unused=self.executor.state.is_unused,
        )

    def heartbeat(self) -> list[Message]:
        """See `SessionOwner`."""
        assert self._reporter is not None
        return [*self._reporter.report(), Heartbeat()]

    def on_welcome(self, connection: Connection, welcome: Welcome, outage: Outage) -> None:
        """See `SessionOwner`."""
        is_back = outage.error is not None
        log = logger.debug if is_back and self.config.supervisor_id else logger.info
        log("worker %s at %s registered at %s", self.name, self.address, connection.address)
        executor = self.executor
        assert executor.context.host is not None
        executor.context.host.task_pass = welcome.task_pass
        # At once for the threads of slots: what they send follows the inventory.
        with executor.sending:
            self._connection = connection
            executor.handle(SessionOpened(self._is_first))
        if connection.allow_bypass():
            executor.slot_reading = SlotReading(connection, executor.is_alone)
        if self._started is not None:
            self._started.note_joined()
        self.registered.set()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `SessionOwner`. Messages may come on the thread of a slot (`slot_reading`)."""
        in_slot = threading.get_ident() != self._thread_id
        executor = self.executor
        of_core = self._of_core
        if not of_core.issuperset(map(type, messages)):
            others = [message for message in messages if type(message) not in of_core]
            messages = [message for message in messages if type(message) in of_core]
            if in_slot:
                self._loop.call_soon_threadsafe(self._on_others, connection, others)
            else:
                for message in others:
                    self._on_other(connection, message)
                if connection is not self._connection:
                    return  # one of them ended the session
        if not messages:
            return
        if in_slot:
            with self._session_lock:
                if connection is self._connection:
                    executor.handle(SchedulerSent(messages))
            return
        executor.handle(SchedulerSent(messages))
        reading = executor.slot_reading
        if reading is not None and not reading.is_lent:
            reading.on_messages()

    def _on_others(self, connection: Connection, messages: list[Message]) -> None:
        if connection is self._connection:
            try:
                self.on_messages(connection, messages)
            except RemoteProtocolError as error:
                connection.fail(error)

    def _on_other(self, connection: Connection, message: Message) -> None:
        """Handle a message that is not for the core."""
        if isinstance(message, (FetchKeys, Put)):
            assert self._server is not None
            self._server.on_relayed(connection, message)
        elif isinstance(message, (Ask, SetUpPlugin, TearDownPlugin)):
            assert self._answering is not None
            self._answering.on_ask(connection, message)
        elif isinstance(message, Reconciled):
            had_nothing = message.n_kept == message.n_adopted == message.n_dropped == 0
            logger.log(
                logging.DEBUG if had_nothing else logging.INFO,
                "worker %s is back with %s and %s%s",
                self.name,
                counted(message.n_kept, "result"),
                counted(message.n_adopted, "unfinished task"),
                f"; {message.n_dropped} more are not needed" if message.n_dropped else "",
            )
        elif isinstance(message, LeaveCluster):
            self._begin_to_leave(message.reason, 0.0)
        elif isinstance(message, Stop):
            self.stop(message.reason or "the scheduler requested it")
        elif isinstance(message, Bye):
            self._runner.fail(CommClosed(f"the scheduler closed the session: {message.reason}"))
        else:
            raise RemoteProtocolError(f"a worker does not handle {type(message).__name__}")

    def on_writable(self, connection: Connection) -> None:
        """See `SessionOwner`."""
        assert self._server is not None
        self._server.on_writable(connection)
        self._flush()

    def on_lost(self, reason: WeftError) -> None:
        """See `SessionOwner`."""
        self._end_session()
        if isinstance(reason, ProtocolError):
            text = "the scheduler sent an invalid message: %s"
            logger.warning(text, reason, extra={"code": "protocol-error"})
        elif not self.config.reconnect:
            logger.info("the scheduler is gone: %s", reason)
        else:
            self._log_outage("the scheduler is gone: %s; trying again", reason)

    def on_retry(self, outage: Outage, left_s: float) -> None:
        """See `SessionOwner`."""
        if outage.error is None and outage.n_attempts == 1:
            self._log_outage("no scheduler yet: %s; trying again", outage.last_error)
        else:
            logger.debug("cannot reach the scheduler yet: %s", outage.last_error)

    def _log_outage(self, text: str, error: WeftError | None) -> None:
        # The supervisor logs it for all its workers.
        level = logging.DEBUG if self.config.supervisor_id else logging.WARNING
        logger.log(level, text, error, extra={"code": "scheduler-away"})

    def on_over(self, end: GiveUp) -> None:
        """See `SessionOwner`."""
        if isinstance(end.error, InternalError):
            self._fail(end.error.__cause__ or end.error)
        elif self.config.reconnect and not end.is_final:
            text = "worker %s ends, with its results: no scheduler has come back within %g s (%s)"
            facts = self.name, self.config.orphan_lease_s, end.error
            logger.warning(text, *facts, extra={"code": "workers-orphaned"})

    def _end_session(self) -> None:
        """Let go of the connection of the session, if there is one."""
        with self._session_lock:
            connection, self._connection = self._connection, None
            if self._executor is not None:
                reading, self._executor.slot_reading = self._executor.slot_reading, None
                if reading is not None:
                    reading.end()
                self._executor.handle(SchedulerLost())
        self.registered.clear()
        if self._server is not None and connection is not None:
            self._server.on_closed(connection, None)

    # --- Between the core and the loop ------------------------------------------------------------

    def _wake(self) -> None:
        """Have `_flush` called when this iteration of the loop ends. Called on any thread."""
        if threading.get_ident() == self._thread_id:
            self._loop.call_soon(self._flush)
            return
        try:
            self._loop.call_soon_threadsafe(self._flush)
        except RuntimeError:  # the loop is closed: the process ends, and nothing is sent any more
            return

    def _watch(self, after_s: float) -> None:
        """Have reports that wait looked at after this time. Called on any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process ends
            self._loop.call_soon_threadsafe(self._loop.call_later, after_s, self._look, after_s)

    def _look(self, after_s: float) -> None:
        if self.executor.send_waiting():
            self._loop.call_later(after_s, self._look, after_s)

    def _flush(self) -> None:
        try:
            self._drain()
        except Exception as bug:
            text = "a bug of weft ends the worker: its messages cannot be sent"
            logger.exception(text, extra={"code": "internal-error"})
            self._fail(bug)

    def _drain(self) -> None:
        executor = self._executor
        if executor is None:
            return
        with executor.sending:
            connection = self._connection
            writable = connection is None or connection.writable
            messages, after = executor.drain(writable)
            if messages and connection is not None:
                try:
                    connection.send(messages)
                except LocalProtocolError:  # none was sent
                    self._send_one_by_one(connection, messages)
                except Exception:
                    if self._started is not None:
                        # They are not running any more, and would run again, for ever.
                        self._started.note_reported(attempts_of_unsendable(messages))
                    raise
        if after and self._peers is not None:
            for action in after:
                if isinstance(action, EndWorker):
                    self._is_over = True
                elif not executor.interrupts.do(action, self._loop):
                    self._peers.do(action)
        if self._is_over and writable:  # else the last reports are not sent yet
            self.stop(self._stop_reason)

    def _send_past_loop(self, messages: list[Message]) -> bool:
        """Send messages on the thread of a slot; return False if the loop has to do it."""
        connection = self._connection
        if connection is None or connection.closed:
            return True  # as `_drain`: they are of a session that is over
        try:
            return connection.send_past_loop(messages)
        except LocalProtocolError:
            return False

    def _send_one_by_one(self, connection: Connection, messages: list[Message]) -> None:
        """Send messages of which at least one cannot be encoded; a task that it reports fails."""
        for message in messages:
            for row in message.parts(1):
                try:
                    connection.send([row])
                except LocalProtocolError as error:
                    if not isinstance(row, (AttemptsFinished, AttemptsErred)):
                        # Its report is lost; in this session the scheduler would wait for it.
                        text = "cannot send reports to the scheduler: %s"
                        logger.error(text, error, extra={"code": "message-unsendable"})  # noqa: TRY400
                        self._runner.fail(CommClosed(f"reports could not be sent: {error}"))
                        return
                    connection.send([self.executor.fail_unsendable(row, error)])

    def _crashed(self, error: BaseException) -> None:
        """End the worker: a bug ended a slot's thread, whose tasks would hang. On any thread."""
        self._fail(error)  # first: after some bugs the logger fails as well
        text = "a thread of this worker ended"
        logger.error(text, exc_info=error, extra={"code": "internal-error"})

    def _fail(self, error: BaseException) -> None:
        """End because of a bug: the process at once, or in order a worker that shares it."""
        if self._on_crash is not None:
            self._on_crash(error)
        self._fatal = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.stop, "a bug of weft")
