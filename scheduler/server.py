"""The scheduler's shell: connections to events, out-boxes to frames, a clock, a log.

It decides nothing.

An exception of the core is a bug of weft, and leaves a state of which only half has changed. If the
scheduler went on with it, tasks would hang, and leases and silence go unnoticed. So every event
passes one guard, `_handle`: after an exception the scheduler logs it and ends at once. Its peers
come back to the scheduler that is started next.

Received messages are queued per peer (`turns.py`) and handled in turns: some slices, then one flush
of the out-boxes. Between two turns the loop reads its sockets. A short frame that comes alone needs
no turn. A peer with many waiting rows is not read from until most of them are handled.

While a peer's socket is not writable its out-box stays and grows, so batches form by themselves
under load, and an idle system answers at once. There are no batching timers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import Any, Final

from ..protocol.errors import (
    CommError,
    InternalError,
    LocalProtocolError,
    ProtocolError,
    StuckPeer,
    TakenOver,
    WeftError,
)
from ..protocol.host import event_loop
from ..protocol.host.memory import return_memory
from ..protocol.net.connection import Connection
from ..protocol.net.listen import one_line
from ..protocol.net.transport import Listener
from ..protocol.net.unfinished import UnfinishedFrames
from ..protocol.wire.message import Message
from ..protocol.wire.messages import Bye, GetMetrics, Welcome
from ..protocol.wire.roles import Role
from .answering import answer_of_process, send_or_fail
from .config import SchedulerConfig
from .configuring import state_of
from .core.actions import Action, CloseConnection, CutOff, LogLine, StopServer
from .core.events import Event, PeerClosed, PeerConnected, PeerSent, SchedulerTick
from .core.insight.questions import AskShell
from .core.journal.entries import AskJournal, ReadEnds, ReadJobs, Report, WriteJournal
from .core.members.epochs import GiveWay, KeepMembers, StartOver, next_epoch
from .core.records.presence import Members
from .core.state import SchedulerState
from .core.upkeep.memory_return import ReturnMemory
from .core.upkeep.turns import TURN_COST, Turns
from .measuring import Meter, tune_collector

_log = logging.getLogger("weft.scheduler")

#: A peer that does not read is looked at so often.
SLOW_READERS_S: Final = 0.1
#: A frame that comes so long after the out-boxes were written is alone: the loop has slept, or
#: looked at its sockets again. Its answers leave at once, seconds.
ALONE_S: Final = 50e-6
_ACCEPTED: Final = (Role.CLIENT, Role.WORKER, Role.SUPERVISOR, Role.VIEWER, Role.TASK_CLIENT)
# Reading a member of an enumeration from its class takes longer than comparing it.
_CLIENTS: Final = (Role.CLIENT, Role.TASK_CLIENT)
_VIEWER: Final = Role.VIEWER
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class SchedulerServer:
    """A running scheduler. `await start()`, then `await wait_stopped()`; `stop()` ends it."""

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self.state = self._new_state(next_epoch(time.time_ns(), config.epoch_before()))
        self._listeners: list[Listener] = []
        self._unfinished = UnfinishedFrames(config.max_unfinished_nbytes)
        self._connections: dict[int, Connection] = {}
        self._next_peer = 1
        self._turns = Turns()
        self._meter = Meter()
        #: {peer: None} of peers that are not read from now
        self._paused: dict[int, None] = {}
        #: `_turn` is due
        self._turn_scheduled = False
        #: when the out-boxes were last written (monotonic clock)
        self._flushed_at = -inf
        #: the next tick, and when it is due (monotonic clock); inf = there is none
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self._stopped: asyncio.Event = asyncio.Event()
        #: why it ends at once: another scheduler has taken over, or its journal is out of reach
        self._given_way: WeftError | None = None
        #: the bug of weft that ends this scheduler
        self._bug: Exception | None = None
        #: Strong reference: the loop holds tasks weakly.
        self._stop_task: asyncio.Task[None] | None = None

    def _new_state(self, epoch: int) -> SchedulerState:
        #: when the clock showed the epoch, or less (monotonic clock)
        self._began = time.monotonic()
        return state_of(self._config, epoch)

    @property
    def stopping(self) -> bool:
        """True once the end has begun."""
        return self._stop_task is not None

    @property
    def addresses(self) -> list[str]:
        """The addresses that it listens at, with real port numbers."""
        return [listener.address for listener in self._listeners]

    async def start(self) -> None:
        """Listen. Raises what `Listener.start` and the keeper raise; nothing is left open then."""
        self._loop = asyncio.get_running_loop()
        if self._config.keeper is not None:
            self._config.keeper.keep_epoch(self.state.epoch)
        self._read_journal()
        try:
            for address in self._config.addresses:
                listener = await Listener(
                    address,
                    role=Role.SCHEDULER,
                    accepted_roles=_ACCEPTED,
                    security=self._config.security,
                    on_connection=self._on_connection,
                    handshake_timeout_s=self._config.handshake_timeout_s,
                    progress_timeout_s=self._config.progress_timeout_s,
                    unfinished=self._unfinished,
                ).start()
                self._listeners.append(listener)
        except BaseException:
            await self._close_listeners()
            await self._close_journal()
            raise
        self._meter.start()
        if self._config.idle_timeout_s:
            self._tick(time.monotonic())  # there may never be a peer
        self._set_alarm()
        _log.info("scheduler listens at %s", ", ".join(self.addresses))

    async def wait_stopped(self) -> None:
        """Wait until a client asked for the end or `stop` was called, and all is closed.

        Raises:
            InternalError: a bug of weft has ended the scheduler, which is logged.
            WeftError: why it has ended at once, for instance TakenOver, which is logged.
        """
        await self._stopped.wait()
        if self._given_way:
            raise self._given_way
        if self._bug is not None:
            raise InternalError(f"a bug of weft ended the scheduler: {self._bug!r}") from self._bug

    async def stop(self, reason: str = "stopped") -> None:
        """Send a Bye to all peers, close every connection and listener.

        Cancelling a caller that waits here does not interrupt the end.
        """
        self._begin_stop(reason)
        await self._stopped.wait()

    def _begin_stop(self, reason: str) -> None:
        if self._stop_task is None:
            self._stop_task = asyncio.get_running_loop().create_task(self._stop(reason))

    async def _stop(self, reason: str) -> None:
        _log.info("scheduler stops: %s", reason)
        self.state.finish(time.monotonic())
        try:
            self._flush(time.monotonic())
            self._clear_alarm()
            for connection in list(self._connections.values()):
                connection.send([Bye(reason=reason)])
                connection.close()
        finally:
            await self._close_listeners()
            await self._close_journal()
            self._meter.stop()
            self._stopped.set()

    async def _close_listeners(self) -> None:
        for listener in self._listeners:
            await listener.close()
        self._listeners.clear()

    # -- the journal -----------------------------------------------------------------------------
    def _read_journal(self) -> None:
        """Begin with the jobs that earlier schedulers have recorded; nothing else has come yet."""
        journal = self._config.journal
        if journal is not None:
            journal.on_bug = lambda bug: self._in_loop(self._crash, bug, "the journal's work")
            journal.on_taken_over = lambda error: self._in_loop(self._end_for, error)
            journal.on_probed = partial(self._in_loop, self._on_journal, self.state)
            self._handle(SchedulerTick(journal=[journal.read(self.state.epoch)]), time.monotonic())

    def _in_loop(self, call: Callable[..., None], *args: Any) -> None:
        """Make a call of the journal's thread in the loop, unless that has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(call, *args)

    def _on_journal(self, state: SchedulerState, report: Report) -> None:
        if state is self.state:  # else another epoch has begun
            self._handle(SchedulerTick(journal=[report]), time.monotonic())
            self._schedule_flush()

    def _end_for(self, error: WeftError) -> None:
        if self._given_way is None:
            self._given_way = error
            _log.error("the scheduler ends: %s", error, extra={"code": "scheduler-superseded"})
        self._give_way()

    async def _close_journal(self) -> None:
        if self._config.journal is not None:
            await asyncio.to_thread(self._config.journal.close)

    # -- connections to events -------------------------------------------------------------------
    def _on_connection(self, connection: Connection) -> _Peer:
        peer = self._next_peer
        self._next_peer = peer + 1
        self._connections[peer] = connection
        role, level, user = connection.peer_role, connection.level, connection.user
        self._handle(PeerConnected(peer, role, level, user), time.monotonic())
        self._schedule_flush()
        return _Peer(self, peer)

    def on_messages(self, peer: int, role: Role, messages: list[Message]) -> None:
        """Queue the messages of one frame; stop reading from the peer if too many wait."""
        turns = self._turns
        now = time.monotonic()
        if role is _VIEWER and any(type(message) is GetMetrics for message in messages):
            self._tick(now, self._meter.measurements(self._listeners))
        is_alone = now - self._flushed_at > ALONE_S and not self._turn_scheduled
        if turns.passes(peer, role, messages, now, is_alone=is_alone):
            self._handle(PeerSent(peer, messages), now)
            if not is_alone:
                self._schedule_flush()
                return
            handled = time.monotonic()
            try:
                self._flush(handled)
            except Exception as bug:
                self._crash(bug, "a turn")
            self._meter.note_work(handled - now, self._flushed_at - handled)
            return
        turns.add(peer, role, messages, now)
        if turns.is_full(peer) and peer not in self._paused:
            connection = self._connections.get(peer)
            if connection is not None:
                self._paused[peer] = None
                connection.pause_reading()
        self._schedule_flush()

    def on_closed(self, peer: int, error: CommError | ProtocolError | None) -> None:
        """Note the end of a connection; the transport has logged a breach of the protocol."""
        self._paused.pop(peer, None)
        if self._connections.pop(peer, None) is not None:
            if isinstance(error, ProtocolError):
                self.state.counters.protocol_errors += 1
            self._turns.close(peer)
            self._schedule_flush()

    # -- ticks -----------------------------------------------------------------------------------
    def _set_alarm(self) -> None:
        """Let the next tick come when the core's next deadline is due, and not much later."""
        due = self.state.next_deadline
        if self.state.outboxes:  # of peers that do not read now
            due = min(due, time.monotonic() + SLOW_READERS_S)
        if due < self._alarm_at and not self.stopping:
            self._clear_alarm()
            self._alarm_at = due
            delay_s = max(due - time.monotonic(), 0.0)
            self._alarm = self._loop.call_later(delay_s, self._on_alarm)

    def _clear_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm, self._alarm_at = None, inf

    def _on_alarm(self) -> None:
        self._alarm, self._alarm_at = None, inf
        now = time.monotonic()
        if now >= self.state.next_deadline or self.state.outboxes:
            self._tick(now)
        else:  # what was due has moved, or the loop's clock is coarse
            self._set_alarm()

    def _tick(self, now: float, measurements: dict[str, Any] | None = None) -> None:
        try:
            self._handle(self._make_tick(now, measurements), now)
        except Exception as bug:
            self._crash(bug, "a tick")
        self._schedule_flush()

    def _make_tick(self, now: float, measurements: dict[str, Any] | None = None) -> SchedulerTick:
        connections = self._connections
        waiting = [(peer, connections.get(peer)) for peer in self.state.outboxes]
        behind_s = self.state.epoch / 1e9 + now - self._began - time.time()
        load = self._meter.load(now, behind_s)
        tick = SchedulerTick(measurements or {}, self._turns.waiting(), load=load)
        tick.unwritable = [peer for peer, c in waiting if c is not None and not c.writable]
        if now >= self.state.seen.next_reassurance:
            tick.receiving = [p for p, c in connections.items() if c.receiving and c.writable]
        return tick

    # -- turns -----------------------------------------------------------------------------------
    def _turn(self) -> None:
        """Handle some waiting messages, write the out-boxes, and read the sockets before more."""
        self._turn_scheduled = False
        now = handled = time.monotonic()
        try:
            self._handle_slices()
            handled = time.monotonic()
            self._flush(handled)
        except Exception as bug:
            self._crash(bug, "a turn")
        self._meter.note_work(handled - now, max(self._flushed_at - handled, 0.0))
        if self._turns.n_waiting:
            self._schedule_flush()

    def _handle_slices(self) -> None:
        turns = self._turns
        scale = turns.begin(time.monotonic())
        cost = 0
        while turns.n_waiting and cost < TURN_COST * scale:
            taken = turns.take(scale)
            if taken is None:
                break
            peer, messages, slice_cost = taken
            # At least one, so that many connections that end at once do not make one long turn.
            cost += slice_cost + 1
            event = PeerSent(peer, messages) if messages else PeerClosed(peer)
            self._handle(event, time.monotonic())
            if peer in self._paused and turns.has_room(peer):
                del self._paused[peer]
                self._connections[peer].resume_reading()

    # -- the guard -------------------------------------------------------------------------------
    def _handle(self, event: Event, now: float) -> None:
        """Pass an event to the core. An exception is a bug of weft and ends the scheduler."""
        if self._bug is not None:
            return
        try:
            self.state.handle(event, now)
        except Exception as bug:
            self._crash(bug, _describe(event), self.state.story_of(event))

    def _crash(self, bug: Exception, during: str, story: Sequence[str] = ()) -> None:
        """End the scheduler at once: messages of a broken core are not sent."""
        if self._bug is not None:
            return
        self._bug = bug
        text = (
            "the scheduler ends: a bug of weft has left its state half changed, during %s. Peers "
            "come back when it is started again; please report this with the whole text%s"
        )
        _log.critical(
            text,
            during,
            "".join(f"\n  {line}" for line in story),
            exc_info=bug,
            extra={"code": "internal-error"},
        )
        self._turns = Turns()
        self._paused.clear()
        self._clear_alarm()
        for connection in list(self._connections.values()):
            connection.abort()
        if self._stop_task is None:
            self._stop_task = asyncio.get_running_loop().create_task(self._end())

    async def _end(self) -> None:
        try:
            await self._close_listeners()
            await self._close_journal()
        finally:
            self._meter.stop()
            self._stopped.set()

    # -- other schedulers ------------------------------------------------------------------------
    def _start_over(self, seen: int) -> None:
        """Begin again, with an epoch above one that a peer has seen; all peers connect anew."""
        epoch = next_epoch(time.time_ns(), self.state.epoch, seen)
        self._write_log()
        if self._config.keeper is not None:
            self._config.keeper.keep_epoch(epoch)
        self.state = self._new_state(epoch)
        try:
            self._read_journal()
        except WeftError as error:
            self._end_for(error)
        else:
            self._drop_connections()
            self._clear_alarm()
            self._set_alarm()

    def _give_way(self) -> None:
        """End at once: peers must not be kept from the other scheduler."""
        self._given_way = self._given_way or TakenOver("another scheduler has taken over")
        self._write_log()
        self._clear_alarm()
        self._drop_connections()
        if self._stop_task is None:
            self._stop_task = asyncio.get_running_loop().create_task(self._end())

    def _write_log(self) -> None:
        for action in self.state.after:
            if type(action) is LogLine:
                self._act(action)

    def _drop_connections(self) -> None:
        self._turns = Turns()
        self._paused.clear()
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.abort()

    # -- out-boxes to frames ---------------------------------------------------------------------
    def schedule_flush(self) -> None:
        """Write the out-boxes when this iteration of the loop ends."""
        self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _flush(self, now: float) -> None:
        """Empty the core's out-boxes: `before`, the messages, `after`."""
        if self._bug is not None:
            return
        state = self.state
        if state.before:
            before, state.before = state.before, []
            for action in before:
                self._act(action)
            if state is not self.state or self._given_way:
                return  # nothing of it leaves any more
        outboxes = state.outboxes
        for peer in list(outboxes):
            connection = self._connections.get(peer)
            if connection is None:
                del outboxes[peer]
            elif connection.writable:
                messages = outboxes.pop(peer)
                if connection.peer_role in _CLIENTS:
                    self._turns.note_sent(peer, messages, now)
                if type(messages[0]) is Welcome:
                    connection.wire.epoch = messages[0].epoch
                    connection.wire.session = messages[0].session
                try:
                    send_or_fail(connection, messages)
                except LocalProtocolError as error:
                    # The other peers must get theirs. This one gets the state when it is back.
                    _log.error(
                        "closing %s: %s",
                        connection.peer_address,
                        error,
                        extra={"code": "message-unsendable"},
                    )
                    connection.abort()
        if state.after:
            after, state.after = state.after, []
            for action in after:
                self._act(action)
        self._set_alarm()
        self._flushed_at = time.monotonic()

    def _act(self, action: Action) -> None:
        if type(action) is LogLine:
            _log.log(
                _LEVELS[action.level], "%s", one_line(action.text), extra={"code": action.code}
            )
        elif type(action) is CloseConnection:
            self._turns.drop(action.peer)
            self._paused.pop(action.peer, None)
            connection = self._connections.pop(action.peer, None)
            if connection is not None:
                level = logging.WARNING if action.is_error else logging.INFO
                if action.reason:
                    reason = one_line(action.reason)
                    extra = {"code": "protocol-error"} if action.is_error else None
                    _log.log(level, "closing %s: %s", connection.peer_address, reason, extra=extra)
                connection.close()
        elif type(action) is CutOff:
            connection = self._connections.get(action.peer)
            if connection is not None:
                connection.fail(StuckPeer(action.reason, connection.peer_address))
        elif type(action) is StopServer:
            if self._config.keeper is not None:
                # The workers and clients end with it: the next scheduler waits for none of them.
                self._config.keeper.keep_members(Members())
            self._begin_stop(action.reason)
        elif type(action) is StartOver:
            self._start_over(action.seen)
        elif type(action) is GiveWay:
            self._give_way()
        elif type(action) is ReturnMemory:
            return_memory()
        elif type(action) is KeepMembers:
            if self._config.keeper is not None and not self.stopping:
                self._config.keeper.keep_members(action.members)
        elif type(action) is WriteJournal:
            assert self._config.journal is not None
            report = partial(self._in_loop, self._on_journal, self.state)
            self._config.journal.write(action, report)
        elif isinstance(action, (ReadJobs, ReadEnds)):
            assert self._config.journal is not None
            report = partial(self._in_loop, self._on_journal, self.state)
            self._config.journal.read_for(action, report)
        elif type(action) is AskJournal:
            assert self._config.journal is not None
            send = partial(self._in_loop, self._answer, action.peer)
            self._config.journal.answer(action.question, send)
        elif type(action) is AskShell:
            peer = action.peer
            answer_of_process(action.question, lambda message: self._answer(peer, message))

    def _answer(self, peer: int, message: Message) -> None:
        """Send a peer the answer to a question about this process."""
        if self._bug is None and peer in self.state.roles:
            self.state.send(peer, message)
            self._schedule_flush()


def _describe(event: Event) -> str:
    if type(event) is SchedulerTick:
        return "a tick"
    if type(event) is PeerSent:
        names = dict.fromkeys(type(message).__name__ for message in event.messages)
        return f"messages of peer {event.peer} ({', '.join(names)})"
    return repr(event)


class _Peer:
    """The handler of one connection: it adds the peer's number to its messages."""

    __slots__ = ("_peer", "_server")

    def __init__(self, server: SchedulerServer, peer: int) -> None:
        self._server = server
        self._peer = peer

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        self._server.on_messages(self._peer, connection.peer_role, messages)

    def on_writable(self, connection: Connection) -> None:
        self._server.schedule_flush()

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        self._server.on_closed(self._peer, error)


async def serve(
    config: SchedulerConfig, on_started: Callable[[SchedulerServer], None] | None = None
) -> None:
    """Run a scheduler until it is stopped or this is cancelled.

    Raises:
        InternalError: a bug of weft has ended it.
    """
    server = SchedulerServer(config)
    await server.start()
    try:
        if on_started is not None:
            on_started(server)
        await server.wait_stopped()
    finally:
        await server.stop("interrupted")


def run(
    config: SchedulerConfig, on_started: Callable[[SchedulerServer], None] | None = None
) -> None:
    """Run a scheduler as this process's only work: uvloop where present, collector tuned."""
    tune_collector()
    event_loop.run(serve(config, on_started))
