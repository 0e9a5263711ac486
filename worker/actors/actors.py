"""Actors: objects of users that live on this worker, one thread each, and the calls of them.

A task of `make_actor` makes the object, on the thread of the actor: what belongs to one thread, as
a connection to a database may, is used where it was made. Its result, a `StoredActor`, is what
keeps the actor alive; the scheduler keeps that as any result, and holders want its key.

Calls come over the data port (`serving.py`), from clients and from other workers, and name a secret
that only holders know. `actor_thread.py` does them, `actor_waits.py` has long waits of the threads
reported.

Futures in an answer are kept until the holder reports that the scheduler has read of its own
(`ActorResultsTaken`), or until a minute after its connection has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import LocalProtocolError, RemoteProtocolError, StuckPeer
from ...protocol.net.connection import Connection
from ...protocol.values.actors import ActorInfo, StoredActor
from ...protocol.values.serialize import futures_met
from ...protocol.wire.failure import actor_lost
from ...protocol.wire.messages import ActorCalls, ActorFailures, ActorResults, ActorResultsTaken
from ...protocol.wire.payload import Blob, Payload
from ..context import WorkerContext, get_worker
from ..data.packing import PLAIN_TYPES, pack_result
from .actor_thread import UNREAD_S, ActorThread, Answer, Mail
from .core.actor_calls import HandedOver, HolderConnections

if TYPE_CHECKING:
    from ...protocol.wire.message import Message
    from .actor_waits import ActorWaits

#: So often the loop looks for answers that wait because the next call takes long.
_LOOK_S: Final = 0.005
#: An actor begins no call while so many bytes of answers wait for a holder that does not read;
#: for `UNREAD_S` at most.
_MAX_UNREAD_NBYTES: Final = 64 << 20
#: Characters of the name of a holder.
_MAX_HOLDER: Final = 64
#: Futures in answers are kept so long after the end of the connection that they went over.
_HAND_OVER_S: Final = 60.0
#: Calls over an earlier connection of a holder come at most so long after the end of a later one.
_OVER_S: Final = 60.0
_UNKNOWN: Final = (
    "is not on this worker: no holder was left, or the worker that had it is gone, and its state "
    "with it. Make a new one"
)
_NONE: Final[list[Any]] = []


def make_actor(cls: Callable[..., Any], /, *args: Any, **kwargs: Any) -> StoredActor:
    """Make an actor. This is the function of the task; see `client.submit`."""
    context = get_worker()
    assert context.actors is not None, "it is a worker with a data port"
    return context.actors.make(cls, args, kwargs, context)


class _Cell:
    """The object in the store that keeps an actor alive; the copies of its handle here share it."""

    __slots__ = ("__weakref__",)


class Actors:
    """All actors of one worker."""

    def __init__(self, worker: str, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.worker = worker
        self._address = address
        self._loop = loop
        self._loop_thread = threading.get_ident()
        #: {secret: actor}
        self._actors: dict[str, ActorThread] = {}
        #: Reports waits of their threads; None in a worker without a scheduler.
        self.waits: ActorWaits | None = None
        #: {actor: None} of those whose answers may wait too long.
        self._watched: dict[ActorThread, None] = {}
        #: `_look` will be called.
        self._is_looking = False
        self._handed: HandedOver[Connection] = HandedOver()
        #: Threads that may still run.
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        #: For the loop's thread.
        self._connections: HolderConnections[Connection] = HolderConnections()
        #: {called when it is writable or closed: a connection whose reader an actor waits for}
        self._readers: dict[Callable[[], object], Connection] = {}

    # --- Any thread -------------------------------------------------------------------------------

    def make(
        self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: WorkerContext
    ) -> StoredActor:
        """Make an actor, for the task of this thread."""
        secret = secrets.token_hex(16)
        actor = ActorThread(self, context.task_key, context.attempt)
        self._actors[secret] = actor  # first: who ends all actors finds it
        try:
            actor.make(cls, args, kwargs, context)
            return self._made(actor.cls, secret, context)
        except BaseException:  # also an interrupt of this thread when the object was made already
            self._end(secret)
            raise

    def _made(self, cls: type, secret: str, context: WorkerContext) -> StoredActor:
        cell = _Cell()
        weakref.finalize(cell, self._end, secret).atexit = False
        info = ActorInfo(
            context.task_key, self._address, self.worker, secret, cls.__name__, _methods_of(cls)
        )
        return StoredActor(info, None, cell)

    def note_thread(self, thread: threading.Thread) -> None:
        """Wait for this thread when the worker ends."""
        self._threads.add(thread)

    def running(self) -> list[tuple[str, int]]:
        """Return the key and the thread of each actor that does a call, but for coroutines."""
        actors = list(self._actors.values())
        return [(one.key, one.thread.ident or 0) for one in actors if one.is_calling]

    def _end(self, secret: str) -> None:
        actor = self._actors.pop(secret, None)
        if actor is not None:
            actor.put(None)

    def pack(self, value: Any, key: str, name: str) -> tuple[Blob, list[Any]]:
        """Pickle what a method of an actor has returned; return that, and the futures in it."""
        if value.__class__ in PLAIN_TYPES:
            return pack_result(value, name), _NONE
        with futures_met() as met:
            blob = pack_result(value, f"{key}.{name}")
        # The next call may change the object, whose memory the buffers of the pickle are.
        return blob.detached() if blob.__class__ is Payload and blob.buffers else blob, met

    def look_after(self, actor: ActorThread) -> None:
        """Have the answers of an actor sent although its thread is busy with the next call."""
        self._watched[actor] = None
        if not self._is_looking:
            self._is_looking = True
            with contextlib.suppress(RuntimeError):  # the worker ends
                self._loop.call_soon_threadsafe(self._loop.call_later, _LOOK_S, self._look)

    def send(self, connection: Connection, rows: list[Answer], key: str) -> None:
        """Send the answers of calls that came over one connection."""
        requests = [row[1] for row in rows if row[3] is None]
        messages: list[Message] = []
        if requests:
            results = [row[2] for row in rows if row[3] is None]
            keys: list[list[str]] = []
            if any([row[4] for row in rows]):  # noqa: C419 - faster, of many rows
                keys = self._hand_over(connection, [row for row in rows if row[3] is None])
            messages.append(ActorResults(requests=requests, results=results, keys=keys))
        if len(requests) < len(rows):
            messages.append(
                ActorFailures(
                    requests=[row[1] for row in rows if row[3] is not None],
                    failures=[row[3] for row in rows if row[3] is not None],
                )
            )
        self._send(connection, messages, key)

    def _hand_over(self, connection: Connection, rows: list[Answer]) -> list[list[str]]:
        """Keep the futures in results until they are taken; return their keys."""
        self._handed.add(connection, [(row[1], row[4]) for row in rows if row[4]])
        if connection.closed:  # just now, perhaps
            self._handed.end(connection)
        return [[*dict.fromkeys(future._state.key for future in row[4])] for row in rows]

    def _send(self, connection: Connection, messages: list[Message], key: str = "") -> None:
        if connection.closed:
            return
        try:
            if threading.get_ident() == self._loop_thread:
                connection.send(messages)
            elif not connection.send_past_loop(messages):
                with contextlib.suppress(RuntimeError):  # the worker ends
                    self._loop.call_soon_threadsafe(self._send, connection, messages, key)
        except LocalProtocolError as error:  # none was sent
            rows = [row for message in messages for row in message.parts(1)]
            for row in rows:
                if len(rows) == 1:  # it is larger than a frame can be
                    assert isinstance(row, (ActorResults, ActorFailures))
                    text = f"has done the call, but its result cannot be sent: {error}"
                    failure = ["actor-in-doubt", key, text]
                    row = ActorFailures(requests=row.requests, failures=[failure])
                self._send(connection, [row], key)

    def wait_for_reader(self, connection: Connection) -> None:
        """Wait until a holder has read what was sent, for the thread of an actor."""
        if _is_stuck(connection):
            event = threading.Event()
            self._when_read(connection, event.set)
            if not event.wait(UNREAD_S):
                self.give_up(connection, event.set)

    def has_to_wait(self, connection: Connection, go_on: Callable[[], object]) -> bool:
        """Return whether a holder has to read first; `go_on` is called then, on any thread."""
        if not _is_stuck(connection):
            return False
        self._when_read(connection, go_on)
        return True

    def _when_read(self, connection: Connection, go_on: Callable[[], object]) -> None:
        self._readers[go_on] = connection
        if not _is_stuck(connection):  # just now, before anybody was there to be called
            self.on_writable(connection)

    def give_up(self, connection: Connection, go_on: Callable[[], object]) -> None:
        """Close the connection of a holder for which an actor waits, unless it has read by now."""
        if self._readers.pop(go_on, None) is None:
            return
        go_on()
        if not _is_stuck(connection):
            return
        text = f"it calls an actor, and has not read the answers for {UNREAD_S:g} s"
        error = StuckPeer(text, connection.peer_address)
        with contextlib.suppress(RuntimeError):  # the worker ends
            self._loop.call_soon_threadsafe(connection.fail, error)

    def refuse(self, connection: Connection, message: ActorCalls, text: str) -> None:
        """Answer calls that are not done."""
        failures = [actor_lost("", text)] * len(message.requests)
        self._send(connection, [ActorFailures(requests=message.requests, failures=failures)])

    # --- The loop's thread ------------------------------------------------------------------------

    def on_calls(self, connection: Connection, message: ActorCalls) -> None:
        """Take calls that a holder has sent."""
        if len(message.holder) > _MAX_HOLDER:
            raise RemoteProtocolError(
                f"a holder of actors named itself by {len(message.holder)} characters"
            )
        if not self._connections.accept(connection, message.holder, message.connection):
            return
        connection.allow_bypass()
        actor = self._actors.get(message.actor)
        if actor is None:
            self.refuse(connection, message, _UNKNOWN)
        elif actor.is_over:
            self.refuse(connection, message, actor.end_text)
        else:
            actor.put(Mail(connection, message))

    def on_taken(self, connection: Connection, message: ActorResultsTaken) -> None:
        """Let go of the futures in results: the holder has its own."""
        self._handed.taken(connection, message.requests)

    def _look(self) -> None:
        """Send answers that have waited since the last look."""
        for actor in [*self._watched]:
            del self._watched[actor]  # first: its thread may put it there again meanwhile
            if actor.answer_late():
                self._watched[actor] = None
        if not self._watched:
            self._is_looking = False
        if self._watched:  # also if one has come between these two lines
            self._is_looking = True
            self._loop.call_later(_LOOK_S, self._look)

    def on_writable(self, connection: Connection) -> None:
        """Let the actors go on that wait for this connection. On any thread."""
        for go_on, known in list(self._readers.items()):
            if known is connection and self._readers.pop(go_on, None) is not None:
                go_on()

    def on_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.on_writable(connection)
        ended = self._connections.end(connection)
        if ended is not None:
            for actor in list(self._actors.values()):
                actor.forget(ended[0])
            self._loop.call_later(_OVER_S, self._connections.forget, *ended)
        futures = self._handed.end(connection)
        if futures:
            self._loop.call_later(_HAND_OVER_S, futures.clear)

    def close(self) -> None:
        """End all actors."""
        for secret in list(self._actors):
            self._end(secret)
        for connection in list(self._readers.values()):
            self.on_writable(connection)

    def have_ended(self) -> bool:
        """Return whether no thread of an actor runs any more."""
        return not any(thread.is_alive() for thread in self._threads)


def _is_stuck(connection: Connection) -> bool:
    is_full = connection.unsent >= _MAX_UNREAD_NBYTES
    return is_full and not (connection.writable or connection.closed)


def _methods_of(cls: type) -> frozenset[str]:
    names = (name for name in dir(cls) if not name.startswith("__"))
    return frozenset(name for name in names if callable(getattr(cls, name, None)))
