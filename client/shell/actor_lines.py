"""Sends the calls of actors to their workers: one connection per worker, apart from data.

The thread that calls sends the call itself if no other call is under way to that worker, so that a
single call costs no wake-up of the loop. Otherwise the call waits for the loop, which sends all
that wait as one batch. So many calls made at once become few messages, and their order stays.

A call is sent once. When the connection ends, it is not known which of the calls that were sent
have run: they fail as such. Those that were not sent fail, too, because they came behind these. The
next call opens another connection.

At most `_MAX_SENT` calls, or `_MAX_SENT_NBYTES` of arguments, are under way to a worker; the others
wait here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import (
    CommError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WeftError,
)
from ...protocol.net.connection import Connection, settle_unknown
from ...protocol.wire.failure import Failure, actor_lost
from ...protocol.wire.handshake import Role
from ...protocol.wire.messages import (
    ActorCalls,
    ActorFailures,
    ActorResults,
    ActorResultsTaken,
    Unsupported,
)
from ...protocol.wire.payload import Blob, blob_nbytes
from ..core.events import Confirm
from ..core.tasks import Watcher
from .watchers import call_in

if TYPE_CHECKING:
    from ...protocol.values.actors import Actor
    from ...protocol.wire.message import Message
    from .engine import Engine

_CONNECT_TIMEOUT_S: Final = 10.0
_MAX_SENT: Final = 8192
_MAX_SENT_NBYTES: Final = 16 << 20
#: How often the futures of actors are looked at while calls are under way: the scheduler may have
#: lost a worker whose connections stay open, because its process is suspended.
_LOOK_S: Final = 1.0
#: A connection without calls is closed after so many looks.
_IDLE_LOOKS: Final = 60


class ActorCall:
    """One call of an actor: what is sent, and its answer. The base of `ActorFuture`."""

    __slots__ = (
        "__weakref__",
        "_callbacks",
        "actor",
        "actor_key",
        "arguments",
        "blob",
        "engine",
        "failure",
        "is_done",
        "kept",
        "line",
        "name",
        "nbytes",
        "request",
    )

    def __init__(
        self, engine: Engine, actor: Actor, name: str, arguments: Blob | None, kept: Any
    ) -> None:
        self.engine = engine
        #: None when the call is done: until then it keeps the actor alive.
        self.actor: Actor | None = actor
        self.actor_key = actor.key
        self.name = name
        #: None = an attribute is read, or the call was sent
        self.arguments = arguments
        self.nbytes = 0 if arguments is None else blob_nbytes(arguments)
        #: The futures in the arguments; then those in the result, until that is unpickled.
        self.kept = kept
        #: Numbers: of the connection over which it is sent, and its own there.
        self.line = 0
        self.request = 0
        self.blob: Blob | None = None
        self.failure: Failure | None = None
        self.is_done = False
        self._callbacks: list[Callable[[], object]] | None = None

    def notify(self, callback: Callable[[], object]) -> bool:
        """Have `callback` called when the call is done; False if it is done already."""
        with self.engine.actor_lines().lock:
            if self.is_done:
                return False
            if self._callbacks is None:
                self._callbacks = []
            self._callbacks.append(callback)
            return True

    def forget(self, callback: Callable[[], object]) -> bool:
        """Do not call `callback`; False if it was called, or will be at once."""
        with self.engine.actor_lines().lock:
            if self._callbacks is None or callback not in self._callbacks:
                return False
            self._callbacks.remove(callback)
            return True

    def finish(
        self, blob: Blob | None, failure: Failure | None, kept: Any = None
    ) -> list[Callable[[], object]]:
        """Set the answer; return the callbacks. The caller holds the lock."""
        self.blob = blob
        self.failure = failure
        self.kept = kept
        self.actor = self.arguments = None
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, None
        return callbacks or []


class _ActorLine:
    """The connection to one worker, until it ends. `lines.lock` guards it."""

    def __init__(self, lines: ActorLines, address: str, number: int) -> None:
        self._lines = lines
        self.loop = lines.engine.loop
        self.address = address
        self._number = number
        self._connection: Connection | None = None
        self._can_bypass = False
        #: Calls to be sent.
        self._waiting: deque[ActorCall] = deque()
        #: {request: call} of the calls that were sent.
        self._sent: dict[int, ActorCall] = {}
        self._sent_nbytes = 0
        self._n_requests = 0
        #: `_flush` will be called.
        self._is_woken = False
        self.is_over = False
        self._n_idle = 0
        self._timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    # --- Any thread, with the lock ----------------------------------------------------------------

    def add(self, call: ActorCall) -> None:
        """Send a call now, or behind others."""
        call.line, call.request = self._number, self._n_requests
        self._n_requests += 1
        connection = self._connection
        if connection is None or self._sent or self._waiting or not connection.writable:
            self._waiting.append(call)
            self.wake()
            return
        message = self._message([call])
        if self._lines.engine.is_own_thread:
            connection.send([message])
        elif not (self._can_bypass and connection.send_past_loop([message])):
            self._take_back(call)
            self._waiting.append(call)
            self.wake()
            return
        call.arguments = None

    def _message(self, calls: list[ActorCall]) -> ActorCalls:
        """Note calls of one actor as sent, and return the message."""
        requests = [call.request for call in calls]
        self._sent.update(zip(requests, calls, strict=True))
        for call in calls:
            self._sent_nbytes += call.nbytes
        actor = calls[0].actor
        assert actor is not None, "it is kept until the answer"
        return ActorCalls(
            actor=actor._info.secret,
            holder=self._lines.holder,
            line=self._number,
            requests=requests,
            names=[call.name for call in calls],
            arguments=[call.arguments for call in calls],
        )

    def _take_back(self, call: ActorCall) -> None:
        """Undo `_message` for a call."""
        del self._sent[call.request]
        self._sent_nbytes -= call.nbytes

    def wake(self) -> None:
        """Have the loop send what waits."""
        if self._is_woken:
            return
        self._is_woken = True
        try:
            self.loop.call_soon_threadsafe(self._flush)
        except RuntimeError:  # it is closed, and so is the client
            self._is_woken = False

    # --- The loop's thread ------------------------------------------------------------------------

    def _flush(self) -> None:
        notify: list[Callable[[], object]] = []
        with self._lines.lock:
            self._is_woken = False
            connection = self._connection
            if connection is None:
                if self.task is None and not self.is_over:
                    self.task = self.loop.create_task(self._connect())
                return
            while self._waiting and connection.writable and not self.is_over:
                calls = self._next_calls()
                if not calls:
                    break
                try:
                    connection.send([self._message(calls)])
                except LocalProtocolError:  # too much for one frame: one by one
                    for call in calls:
                        self._take_back(call)
                    for call in calls:
                        notify += self._send_alone(connection, call)
                for call in calls:
                    call.arguments = None
        _call_all(notify)

    def _next_calls(self) -> list[ActorCall]:
        """Take the next calls of one actor, as many as may be under way."""
        waiting = self._waiting
        calls: list[ActorCall] = []
        nbytes = self._sent_nbytes
        room = _MAX_SENT - len(self._sent)
        secret = None
        while waiting and len(calls) < room and (nbytes < _MAX_SENT_NBYTES or not self._sent):
            call = waiting[0]
            assert call.actor is not None, "it is kept until the answer"
            if secret is None:
                secret = call.actor._info.secret
            elif call.actor._info.secret != secret or nbytes >= _MAX_SENT_NBYTES:
                break
            calls.append(waiting.popleft())
            nbytes += call.nbytes
        return calls

    def _send_alone(self, connection: Connection, call: ActorCall) -> list[Callable[[], object]]:
        try:
            connection.send([self._message([call])])
        except LocalProtocolError as error:
            self._take_back(call)
            text = f"was not called: the arguments of {call.name}() cannot be sent: {error}"
            return call.finish(None, actor_lost(call.actor_key, text))
        return []

    async def _connect(self) -> None:
        from ...protocol.net.transport import connect

        engine = self._lines.engine
        assert engine.link is not None, "the client is open"
        # A worker's data port shows a certificate that the worker made; see `DataLines`.
        security = dataclasses.replace(
            engine.link.security, certificate_pem=None, private_key_pem=None
        )
        try:
            connection = await connect(
                self.address,
                role=Role.PEER,
                server_role=Role.WORKER_DATA,
                security=security,
                handler=self,
                timeout_s=_CONNECT_TIMEOUT_S,
            )
        except WeftError as error:
            self.end(f"cannot be reached at its worker's address {self.address} ({error})", "")
            return
        with self._lines.lock:
            self._connection = connection
            self._can_bypass = connection.allow_bypass()
        self._look()
        self._flush()

    def _look(self) -> None:
        """Fail the calls of actors that the scheduler has lost; close a line without calls."""
        notify: list[Callable[[], object]] = []
        with self._lines.lock:
            if self.is_over:
                return
            for request, call in list(self._sent.items()):
                hold = None if call.actor is None else call.actor._hold
                if hold is not None and hold._state.failure is not None:
                    del self._sent[request]
                    self._sent_nbytes -= call.nbytes
                    notify += call.finish(None, _in_doubt(call, "its worker is lost"))
            self._n_idle = 0 if self._sent or self._waiting else self._n_idle + 1
            is_idle = self._n_idle >= _IDLE_LOOKS
        self._timer = self.loop.call_later(_LOOK_S, self._look)
        _call_all(notify)
        if is_idle:
            self.close("it was not used")

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        notify: list[Callable[[], object]] = []
        with self._lines.lock:
            for message in settle_unknown(connection, messages):
                if isinstance(message, ActorResults):
                    n = len(message.requests)
                    keys: Iterable[list[str]] = message.keys or repeat([], n)
                    for request, blob, wanted in zip(
                        message.requests, message.results, keys, strict=True
                    ):
                        call = self._pop(request)
                        if call is not None:
                            kept = self._lines.hold(wanted) if wanted else None
                            notify += call.finish(blob, None, kept)
                    if message.keys:
                        self._lines.engine.post(Confirm(_Taken(self, message)))
                elif isinstance(message, ActorFailures):
                    for request, failure in zip(message.requests, message.failures, strict=True):
                        call = self._pop(request)
                        if call is not None:
                            if failure[0] != "exception":
                                failure = [failure[0], call.actor_key, *failure[2:]]
                            notify += call.finish(None, failure)
                elif isinstance(message, Unsupported):
                    reason = "its worker's release of weft has no actors; install the same release"
                    self.loop.call_soon(self.close, reason)
                else:
                    raise RemoteProtocolError(
                        f"a data port sent {type(message).__name__} to a holder of actors"
                    )
            if self._waiting:
                self.wake()
        _call_all(notify)

    def confirm(self, message: ActorResults) -> None:
        """Report that the scheduler has read that this client wants the futures in results."""
        with self._lines.lock:
            if self._connection is not None and not self.is_over:
                self._connection.send([ActorResultsTaken(requests=message.requests)])

    def _pop(self, request: int) -> ActorCall | None:
        call = self._sent.pop(request, None)
        if call is not None:
            self._sent_nbytes -= call.nbytes
        return call

    def on_writable(self, connection: Connection) -> None:
        """See `Handler`."""
        self._flush()

    def on_closed(self, connection: Connection, error: CommError | ProtocolError | None) -> None:
        """See `Handler`."""
        reason = "it was closed" if error is None else str(error)
        self.end(
            f"was not called: the connection to its worker has ended ({reason}); call again",
            f"the connection to its worker has ended ({reason})",
        )

    def close(self, reason: str) -> None:
        """Close the connection; calls fail."""
        if self._connection is not None:
            self._connection.abort()
        self.end(f"was not called: {reason}", reason)

    def end(self, unsent: str, sent: str) -> None:
        """Fail all calls, by whether they were sent."""
        notify: list[Callable[[], object]] = []
        with self._lines.lock:
            if self.is_over:
                return
            self.is_over = True
            self._lines.forget(self)
            for call in self._sent.values():
                notify += call.finish(None, _in_doubt(call, sent))
            for call in self._waiting:
                notify += call.finish(None, actor_lost(call.actor_key, unsent))
            self._sent.clear()
            self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
        _call_all(notify)


class _Taken(Watcher):
    """Waits until the scheduler has read that this client wants the futures in some results."""

    __slots__ = ("_line", "_message")

    def __init__(self, line: _ActorLine, message: ActorResults) -> None:
        super().__init__(wants_data=False)
        self._line = line
        self._message = message

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        call_in(self._line.loop, self._line.confirm, self._message)


class ActorLines:
    """The connections of one client to the workers of actors."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        #: Guards all lines and their calls. It is held for moments only.
        self.lock = threading.RLock()
        self.holder = uuid.uuid4().hex
        self._by_address: dict[str, _ActorLine] = {}
        self._n_lines = 0
        self._is_closed = False

    def send(self, call: ActorCall) -> None:
        """Send a call, on any thread."""
        assert call.actor is not None, "it is new"
        address = call.actor._info.address
        with self.lock:
            if self._is_closed:
                call.finish(None, ["client-closed", call.actor_key])
                return
            line = self._by_address.get(address)
            if line is None:
                self._n_lines += 1
                line = self._by_address[address] = _ActorLine(self, address, self._n_lines)
            line.add(call)

    def hold(self, keys: list[str]) -> list[Any]:
        """Return futures of these keys, for a result in which they are."""
        from .current import future_of

        return [future_of(self.engine, key) for key in keys]

    def forget(self, line: _ActorLine) -> None:
        """Let the next call open another connection."""
        if self._by_address.get(line.address) is line:
            del self._by_address[line.address]

    async def close(self) -> None:
        """Close all connections."""
        with self.lock:
            self._is_closed = True
            lines = list(self._by_address.values())
        tasks = [line.task for line in lines if line.task is not None]
        for task in tasks:
            task.cancel()
        for line in lines:
            line.close("this client was closed")
        await asyncio.gather(*tasks, return_exceptions=True)


def _in_doubt(call: ActorCall, reason: str) -> Failure:
    text = (
        f"may have run {call.name}(), or not: {reason} before the answer came. The call is not "
        "repeated; if the actor is alive, ask it, and call again if that is right"
    )
    return ["actor-in-doubt", call.actor_key, text]


def _call_all(callbacks: list[Callable[[], object]]) -> None:
    for callback in callbacks:
        callback()
