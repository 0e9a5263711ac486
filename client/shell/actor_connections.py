"""Sends the calls of actors to their workers: one connection per worker, apart from data.

The thread that calls sends the call itself if no other call is under way to that worker, so that a
single call costs no wake-up of the loop. Otherwise the call waits for the loop, which sends all
that wait as one batch. So many calls made at once become few messages, and their order stays.

A call is sent once. When the connection ends, it is not known which of the calls that were sent
have run: they fail as such. Those that were not sent fail, too, because they came behind these. The
next call opens another connection.

What is sent when, and how each call ends, is decided in `core/features/actor_calls.py`.
"""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import (
    CommError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    WeftError,
)
from ...protocol.net.connection import Connection, settle_unknown
from ...protocol.net.data_connection import connect_to_data_port
from ...protocol.wire.messages import (
    ActorFailures,
    ActorResults,
    ActorResultsTaken,
    Unsupported,
)
from ..core.events import Confirm
from ..core.features.actor_calls import ActorCall, ConnectionCalls
from .delayed_signals import delay_handlers, has_room_for_calls, run_delayed
from .watchers import Calling, call_in

if TYPE_CHECKING:
    from ...protocol.wire.message import Message
    from .engine import Engine

_CONNECT_TIMEOUT_S: Final = 10.0
#: How often the futures of actors are looked at while calls are under way: the scheduler may have
#: lost a worker whose connections stay open, because its process is suspended.
_LOOK_S: Final = 1.0
#: A connection without calls is closed after so many looks.
_IDLE_LOOKS: Final = 60


class _ActorConnection:
    """The connection to one worker, until it ends. `owner.lock` guards it."""

    def __init__(self, owner: ActorConnections, address: str, number: int) -> None:
        self._owner = owner
        self.loop = owner.engine.loop
        self.address = address
        self._calls = ConnectionCalls(owner.holder, number)
        self._connection: Connection | None = None
        self._can_bypass = False
        #: `_flush` will be called.
        self._is_woken = False
        self._n_idle = 0
        self._timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    # --- Any thread, with the lock ----------------------------------------------------------------

    @property
    def is_clear(self) -> bool:
        """True if a call could be sent now: no other one is under way."""
        calls = self._calls
        is_ready = self._connection is not None and self._connection.writable
        return is_ready and not (calls.sent or calls.waiting)

    def add_behind(self, call: ActorCall) -> None:
        """Send a call behind others, by the loop."""
        self._calls.add(call, can_send=False)
        self.wake()

    def add(self, call: ActorCall) -> None:
        """Send a call now, or behind others. The handlers of signals are delayed."""
        connection = self._connection
        can_send = connection is not None and connection.writable
        message = self._calls.add(call, can_send=can_send)
        if message is not None:
            assert connection is not None, "it can send"
            try:
                if self._owner.engine.is_own_thread:
                    connection.send([message])
                    is_sent = True
                else:
                    is_sent = self._can_bypass and connection.send_past_loop([message])
            except LocalProtocolError as error:
                self._calls.fail_unsent(call, str(error))
                return
            if is_sent:
                call.arguments = None
                return
            self._calls.put_back(call)
        self.wake()

    def wake(self) -> None:
        """Have the loop send what waits."""
        if self._is_woken:
            return
        self._is_woken = True
        try:
            self.loop.call_soon_threadsafe(self._flush)
        except RuntimeError:  # it is closed, and so is the client
            self._is_woken = False
        except BaseException:  # of a handler of signals: a mark that stayed would stop later calls
            self._is_woken = False
            raise

    # --- The loop's thread ------------------------------------------------------------------------

    def _flush(self) -> None:
        notify: list[Callable[[], object]] = []
        with self._owner.lock:
            self._is_woken = False
            connection = self._connection
            if connection is None:
                if self.task is None and not self._calls.is_over:
                    self.task = self.loop.create_task(self._connect())
                return
            while connection.writable:
                calls = self._calls.take_next()
                if not calls:
                    break
                try:
                    connection.send([self._calls.message(calls)])
                except LocalProtocolError:  # too much for one frame: one by one
                    for call in calls:
                        notify += self._send_alone(connection, call)
                for call in calls:
                    call.arguments = None
        _call_all(notify)

    def _send_alone(self, connection: Connection, call: ActorCall) -> list[Callable[[], object]]:
        try:
            connection.send([self._calls.message([call])])
        except LocalProtocolError as error:
            return self._calls.fail_unsent(call, str(error))
        return []

    async def _connect(self) -> None:
        engine = self._owner.engine
        assert engine.link is not None, "the client is open"
        try:
            connection = await connect_to_data_port(
                self.address, engine.link.security, self, _CONNECT_TIMEOUT_S
            )
        except WeftError as error:
            self.end(f"cannot be reached at its worker's address {self.address} ({error})", "")
            return
        with self._owner.lock:
            self._connection = connection
            self._can_bypass = connection.allow_bypass()
        self._look()
        self._flush()

    def _look(self) -> None:
        """Fail the calls of actors that the scheduler has lost; without calls close it."""
        with self._owner.lock:
            calls = self._calls
            if calls.is_over:
                return
            notify = calls.fail_lost()
            if calls.waiting:  # perhaps of a thread that was interrupted before it woke the loop
                self.wake()
            self._n_idle = 0 if calls.sent or calls.waiting else self._n_idle + 1
            is_idle = self._n_idle >= _IDLE_LOOKS
        self._timer = self.loop.call_later(_LOOK_S, self._look)
        _call_all(notify)
        if is_idle:
            self.close("it was not used")

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        """See `Handler`."""
        notify: list[Callable[[], object]] = []
        with self._owner.lock:
            for message in settle_unknown(connection, messages):
                if isinstance(message, ActorResults):
                    notify += self._calls.on_results(message, self._owner.hold)
                    if message.keys:
                        taken = partial(call_in, self.loop, self.confirm, message)
                        self._owner.engine.post(Confirm(Calling(taken)))
                elif isinstance(message, ActorFailures):
                    notify += self._calls.on_failures(message)
                elif isinstance(message, Unsupported):
                    reason = "its worker's version of weft has no actors; install the same version"
                    self.loop.call_soon(self.close, reason)
                else:
                    raise RemoteProtocolError(
                        f"a data port sent {type(message).__name__} to a holder of actors"
                    )
            if self._calls.waiting:
                self.wake()
        _call_all(notify)

    def confirm(self, message: ActorResults) -> None:
        """Report that the scheduler has read that this client wants the futures in results."""
        with self._owner.lock:
            if self._connection is not None and not self._calls.is_over:
                self._connection.send([ActorResultsTaken(requests=message.requests)])

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
        with self._owner.lock:
            if self._calls.is_over:
                return
            self._owner.forget(self)
            notify = self._calls.end(unsent, sent)
        if self._timer is not None:
            self._timer.cancel()
        _call_all(notify)


class ActorConnections:
    """The connections of one client to the workers of actors."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        #: Guards all connections and their calls. It is held for moments only.
        self.lock = threading.RLock()
        self.holder = uuid.uuid4().hex
        self._by_address: dict[str, _ActorConnection] = {}
        self._n_connections = 0
        self._is_closed = False

    def send(self, call: ActorCall) -> None:
        """Send a call, on any thread."""
        assert call.actor is not None, "it is new"
        address = call.actor._info.address
        with self.lock:
            connection = self._by_address.get(address)
            if connection is not None and not (connection.is_clear and has_room_for_calls()):
                connection.add_behind(call)
                return
        # Not for the calls above, of which this would double the cost.
        delayed = delay_handlers()
        try:
            with self.lock:
                self._add(call, address)
        finally:
            run_delayed(delayed)

    def _add(self, call: ActorCall, address: str) -> None:
        if self._is_closed:
            call.finish(None, ["client-closed", call.actor_key])
            return
        connection = self._by_address.get(address)
        if connection is None:
            self._n_connections += 1
            connection = self._by_address[address] = _ActorConnection(
                self, address, self._n_connections
            )
        connection.add(call)

    def hold(self, keys: list[str]) -> list[Any]:
        """Return futures of these keys, for a result in which they are."""
        from .current import future_of

        return [future_of(self.engine, key) for key in keys]

    def forget(self, connection: _ActorConnection) -> None:
        """Let the next call open another connection."""
        if self._by_address.get(connection.address) is connection:
            del self._by_address[connection.address]

    async def close(self) -> None:
        """Close all connections."""
        with self.lock:
            self._is_closed = True
            connections = list(self._by_address.values())
        tasks = [connection.task for connection in connections if connection.task is not None]
        for task in tasks:
            task.cancel()
        for connection in connections:
            connection.close("this client was closed")
        await asyncio.gather(*tasks, return_exceptions=True)


def _call_all(callbacks: list[Callable[[], object]]) -> None:
    for callback in callbacks:
        callback()
