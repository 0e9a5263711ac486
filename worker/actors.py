"""Actors: objects of users that live on this worker, one thread each, and the calls of them.

A task of `make_actor` makes the object, on the thread of the actor: what belongs to one thread, as
a connection to a database may, is used where it was made. Its result, a `StoredActor`, is what
keeps the actor alive; the scheduler keeps that as any result, and holders want its key.

Calls come over the data port (`serving.py`), from clients and from other workers, and name a secret
that only holders know. They are put into the actor's inbox in the order in which they come. The
thread does one after the other. It sends the answers itself, in batches, past the loop.

An actor whose class has coroutine functions has an event loop in its thread. Calls begin in their
order there as well; while a coroutine waits, others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import logging
import queue
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..protocol.errors import LocalProtocolError, StuckPeer
from ..protocol.host.blocking import blocked
from ..protocol.net.connection import Connection
from ..protocol.values.actors import ActorInfo, StoredActor
from ..protocol.values.exceptions import pack_exception
from ..protocol.values.serialize import futures_met, loads_arguments
from ..protocol.wire.failure import Failure, actor_lost
from ..protocol.wire.messages import ActorCalls, ActorFailures, ActorResults
from ..protocol.wire.payload import Blob, Payload
from .context import WorkerContext, get_worker, set_worker
from .packing import PLAIN_TYPES, pack_result

if TYPE_CHECKING:
    from ..protocol.wire.message import Message

__all__ = ["Actors", "make_actor"]

logger: Final = logging.getLogger("weft.worker")

#: Answers wait for those of the next calls at most this long.
_ANSWER_AFTER_NS: Final = 1_000_000
#: An actor begins no call while so many bytes of answers wait for a holder that does not read.
_MAX_UNREAD_NBYTES: Final = 64 << 20
#: That connection is closed after this time.
_UNREAD_S: Final = 60.0
#: Futures in an answer are kept so long, for the holder to make its own.
_HAND_OVER_S: Final = 60.0
_UNKNOWN: Final = (
    "is not on this worker: no holder was left, or the worker that had it is gone, and its state "
    "with it. Make a new one"
)
_RELEASED: Final = "has ended, because no holder was left; keep its handle or its future"


def make_actor(cls: Callable[..., Any], /, *args: Any, **kwargs: Any) -> StoredActor:
    """Make an actor. This is the function of the task; see `client.submit`."""
    context = get_worker()
    assert context.actors is not None, "it is a worker with a data port"
    return context.actors.make(cls, args, kwargs, context)


class _Mail(NamedTuple):
    """Calls of one message."""

    connection: Connection
    message: ActorCalls


class _ActorTask:
    """Stands for the task of a thread that has made its object."""

    __slots__ = ("attempt", "key")

    def __init__(self, key: str, attempt: int) -> None:
        self.key = key
        self.attempt = attempt


class _ActorSeat:
    """Stands for the seat of a slot: the thread of an actor has none to give up."""

    __slots__ = ("_at_end", "actor")

    def __init__(self, actor: str) -> None:
        #: Its key, on whose behalf its methods submit tasks.
        self.actor = actor
        self._at_end: dict[Callable[[], object], None] = {}

    def secede(self) -> None:
        """Do nothing."""

    def rejoin(self) -> None:
        """Do nothing."""

    def when_task_ends(self, action: Callable[[], object]) -> None:
        """Call `action` before the call that runs is answered."""
        self._at_end[action] = None

    def end_call(self) -> None:
        """Do what is due before an answer."""
        if self._at_end:
            actions, self._at_end = list(self._at_end), {}
            for action in actions:
                action()


class _Cell:
    """The object in the store that keeps an actor alive; the copies of its handle here share it."""

    __slots__ = ("__weakref__",)


class _Actor:
    """One actor: its object, its inbox and its thread."""

    def __init__(self, actors: Actors, key: str, secret: str) -> None:
        self._actors = actors
        self.key = key
        self.secret = secret
        #: calls, and None for the end
        self.inbox: queue.SimpleQueue[_Mail | None] = queue.SimpleQueue()
        self.thread: threading.Thread
        self._seat = _ActorSeat(key)
        self._made = threading.Lock()
        self._made.acquire()
        #: Why there is no object, if making it has raised.
        self._error: BaseException | None = None
        self._is_over = False
        #: of an actor with coroutine functions
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event
        self._made_object: Any = None
        self._rows: Any = iter(())
        #: A call of `_next` is due.
        self._goes_on = False
        self._running: set[asyncio.Task[None]] = set()
        #: (connection, request, result or failure) of calls that are not answered
        self._done: list[tuple[Connection, int, Blob | None, Failure | None]] = []

    # --- Any thread -------------------------------------------------------------------------------

    def make(
        self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: WorkerContext
    ) -> None:
        """Make the object, on a thread of its own; wait for that. Raise what it raises."""
        own = copy.copy(context)
        is_async = _has_coroutines(cls)
        run = self._run_loop if is_async else self._run
        self.thread = threading.Thread(
            target=run, args=(cls, args, kwargs, own), name=f"weft-actor-{self.key}", daemon=True
        )
        with blocked():
            self._actors.note_thread(self.thread)
            self.thread.start()
            self._made.acquire()
        if self._error is not None:
            error, self._error = self._error, None
            self.thread.join()
            raise error

    def put(self, mail: _Mail | None) -> None:
        """Put calls into the inbox, or the end behind them. On any thread; takes no lock."""
        self.inbox.put(mail)
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._on_mail)

    # --- The actor's thread -----------------------------------------------------------------------

    def _begin(self, cls: Any, args: Any, kwargs: Any, context: WorkerContext) -> Any:
        """Make the object; None if that raises."""
        set_worker(context)
        task = context.task
        assert task is not None, "a task makes it"
        made = None
        try:
            made = cls(*args, **kwargs)
        except BaseException as error:  # it is the task that fails
            self._error = error
        # The seat of the task's own thread was good while that waited.
        context.seat = self._seat  # type: ignore[assignment]
        context.task = _ActorTask(task.key, task.attempt)  # type: ignore[assignment]
        return made

    def _run(self, *make: Any) -> None:
        made = self._begin(*make)
        del make
        if self._error is not None:
            self._made.release()
            return
        self._made.release()
        take = self.inbox.get
        while True:
            mail = take()
            if mail is None:
                break
            self._do_all(made, mail)
            mail = None
        del made
        self._refuse_rest()

    def _do_all(self, made: Any, mail: _Mail) -> None:
        connection, message = mail
        since = time.perf_counter_ns()
        for request, name, arguments in zip(
            message.requests, message.names, message.arguments, strict=True
        ):
            try:
                value = _do(made, name, arguments)
                if self._seat._at_end:
                    self._seat.end_call()
                blob = self._actors.pack(value, name)
                del value
            except BaseException as error:  # of user code: SystemExit ends the call only
                self._done.append((connection, request, None, self._failure(error, name)))
            else:
                self._done.append((connection, request, blob, None))
            now = time.perf_counter_ns()
            if now - since > _ANSWER_AFTER_NS:
                self._answer()
                since = now
        self._answer()
        self._actors.wait_for_reader(connection)

    def _failure(self, error: BaseException, name: str) -> Failure:
        where = f"{self.key}.{name}"
        return ["exception", where, *pack_exception(error, where, self._actors.worker)]

    def _answer(self) -> None:
        """Send the answers of the calls that are done."""
        done, self._done = self._done, []
        while done:
            connection = done[0][0]
            ours = [row for row in done if row[0] is connection]
            done = [row for row in done if row[0] is not connection]
            self._actors.send(connection, ours, self.key)

    def _refuse_rest(self) -> None:
        """Answer the calls behind the end."""
        self._is_over = True
        with contextlib.suppress(queue.Empty):
            while True:
                mail = self.inbox.get_nowait()
                if mail is not None:
                    self._actors.refuse(*mail, _RELEASED)

    # --- With an event loop -----------------------------------------------------------------------

    def _run_loop(self, *make: Any) -> None:
        asyncio.run(self._main(make))

    async def _main(self, make: Any) -> None:
        self._over = asyncio.Event()
        self._made_object = self._begin(*make)
        del make
        if self._error is None:
            self._loop = asyncio.get_running_loop()
        self._made.release()
        if self._loop is None:
            return
        self._on_mail()  # what came before the loop was there to be woken
        await self._over.wait()
        if self._running:
            await asyncio.wait(self._running)
        self._flush()
        self._made_object = None
        self._refuse_rest()

    def _on_mail(self) -> None:
        if not (self._goes_on or self._is_over):
            self._goes_on = True
            self._next()

    def _next(self) -> None:
        """Begin the next call; the one after it begins when this one has waited, or has ended."""
        row = next(self._rows, None)
        while row is None:
            try:
                mail = self.inbox.get_nowait()
            except queue.Empty:
                self._goes_on = False
                return
            if mail is None:
                self._is_over = True
                # A caller that waits for its answer holds the actor, so none of these is awaited.
                for task in self._running:
                    task.cancel()
                self._over.set()
                return
            connection, message = mail
            self._rows = iter(
                [
                    (connection, *one)
                    for one in zip(message.requests, message.names, message.arguments, strict=True)
                ]
            )
            row = next(self._rows, None)
        connection, request, name, arguments = row
        try:
            value = _do(self._made_object, name, arguments)
            if inspect.iscoroutine(value):
                task = asyncio.get_running_loop().create_task(
                    self._finish(connection, request, name, value)
                )
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            else:
                self._note(connection, request, self._actors.pack(value, name), None)
        except BaseException as error:  # of user code
            self._note(connection, request, None, self._failure(error, name))
        asyncio.get_running_loop().call_soon(self._next)

    async def _finish(self, connection: Connection, request: int, name: str, value: Any) -> None:
        try:
            blob = self._actors.pack(await value, name)
        except BaseException as error:  # of user code
            self._note(connection, request, None, self._failure(error, name))
        else:
            self._note(connection, request, blob, None)

    def _note(
        self, connection: Connection, request: int, blob: Blob | None, failure: Failure | None
    ) -> None:
        if not self._done:
            asyncio.get_running_loop().call_soon(self._flush)
        self._done.append((connection, request, blob, failure))

    def _flush(self) -> None:
        self._seat.end_call()
        self._answer()


class Actors:
    """All actors of one worker."""

    def __init__(self, worker: str, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.worker = worker
        self._address = address
        self._loop = loop
        self._loop_thread = threading.get_ident()
        #: {secret: actor}
        self._actors: dict[str, _Actor] = {}
        #: Threads that may still run.
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        #: {holder: (the connection that it uses, its number)}. For the loop's thread.
        self._lines: dict[str, tuple[Connection, int]] = {}
        #: {connection: set when it is writable or closed}, of those that an actor waits for
        self._readers: dict[Connection, threading.Event] = {}

    # --- Any thread -------------------------------------------------------------------------------

    def make(
        self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: WorkerContext
    ) -> StoredActor:
        """Make an actor, for the task of this thread."""
        secret = secrets.token_hex(16)
        actor = _Actor(self, context.task_key, secret)
        actor.make(cls, args, kwargs, context)
        self._actors[secret] = actor
        cell = _Cell()
        weakref.finalize(cell, self._end, secret).atexit = False
        name = getattr(cls, "__name__", type(cls).__name__)
        info = ActorInfo(
            context.task_key, self._address, self.worker, secret, name, _methods_of(cls)
        )
        return StoredActor(info, None, cell)

    def note_thread(self, thread: threading.Thread) -> None:
        """Wait for this thread when the worker ends."""
        self._threads.add(thread)

    def _end(self, secret: str) -> None:
        actor = self._actors.pop(secret, None)
        if actor is not None:
            actor.put(None)

    def pack(self, value: Any, name: str) -> Blob:
        """Pickle what a method has returned; futures in it stay until the holder has its own."""
        if value.__class__ in PLAIN_TYPES:
            return pack_result(value, name)
        with futures_met() as met:
            blob = pack_result(value, name)
        if met:
            with contextlib.suppress(RuntimeError):  # the worker ends
                self._loop.call_soon_threadsafe(self._loop.call_later, _HAND_OVER_S, met.clear)
        # The next call may change the object, whose memory the buffers of the pickle are.
        return blob.detached() if blob.__class__ is Payload and blob.buffers else blob

    def send(
        self,
        connection: Connection,
        rows: list[tuple[Connection, int, Blob | None, Failure | None]],
        key: str,
    ) -> None:
        """Send the answers of calls that came over one connection."""
        requests = [row[1] for row in rows if row[3] is None]
        messages: list[Message] = []
        if requests:
            results = [row[2] for row in rows if row[3] is None]
            messages.append(ActorResults(requests=requests, results=results))
        if len(requests) < len(rows):
            messages.append(
                ActorFailures(
                    requests=[row[1] for row in rows if row[3] is not None],
                    failures=[row[3] for row in rows if row[3] is not None],
                )
            )
        try:
            self._send(connection, messages)
        except LocalProtocolError as error:
            if len(rows) > 1:
                for row in rows:
                    self.send(connection, [row], key)
                return
            text = f"has done the call, but its result cannot be sent: {error}"
            failure = ["actor-in-doubt", key, text]
            messages = [ActorFailures(requests=[rows[0][1]], failures=[failure])]
            self._send(connection, messages)

    def _send(self, connection: Connection, messages: list[Message]) -> None:
        if connection.closed:
            return
        if threading.get_ident() == self._loop_thread:
            connection.send(messages)
        elif not connection.send_past_loop(messages):
            with contextlib.suppress(RuntimeError):  # the worker ends
                self._loop.call_soon_threadsafe(self._send_here, connection, messages)

    def _send_here(self, connection: Connection, messages: list[Message]) -> None:
        try:
            connection.send(messages)
        except LocalProtocolError as error:
            self._send_one_by_one(connection, messages, str(error))

    def _send_one_by_one(
        self, connection: Connection, messages: list[Message], reason: str
    ) -> None:
        """Send answers of which at least one is larger than a frame can be."""
        for message in messages:
            for row in message.parts(1):
                try:
                    connection.send([row])
                except LocalProtocolError:
                    assert isinstance(row, (ActorResults, ActorFailures))
                    text = f"has done the call, but its result cannot be sent: {reason}"
                    failure = ["actor-in-doubt", "", text]
                    connection.send([ActorFailures(requests=row.requests, failures=[failure])])

    def wait_for_reader(self, connection: Connection) -> None:
        """Wait until a holder has read what was sent, for the thread of an actor."""
        if not _is_stuck(connection):
            return
        event = self._readers.setdefault(connection, threading.Event())
        if not _is_stuck(connection):  # just now
            self._readers.pop(connection, None)
        elif not event.wait(_UNREAD_S):
            text = f"it calls an actor, and has not read the answers for {_UNREAD_S:g} s"
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
        known = self._lines.get(message.holder)
        if known is None or known[0] is not connection:
            if known is not None and message.line < known[1]:
                return  # the holder has given that connection up
            self._lines[message.holder] = connection, message.line
            connection.allow_bypass()
        actor = self._actors.get(message.actor)
        if actor is None or actor._is_over:
            self.refuse(connection, message, _UNKNOWN)
        else:
            actor.put(_Mail(connection, message))

    def on_writable(self, connection: Connection) -> None:
        """Let the actors go on that wait for this connection."""
        event = self._readers.pop(connection, None)
        if event is not None:
            event.set()

    def on_closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.on_writable(connection)
        for holder in [name for name, line in self._lines.items() if line[0] is connection]:
            del self._lines[holder]

    def close(self) -> None:
        """End all actors."""
        for secret in list(self._actors):
            self._end(secret)
        for connection in list(self._readers):
            self.on_writable(connection)

    def have_ended(self) -> bool:
        """Return whether no thread of an actor runs any more."""
        return not any(thread.is_alive() for thread in self._threads)


def _is_stuck(connection: Connection) -> bool:
    is_full = connection.unsent >= _MAX_UNREAD_NBYTES
    return is_full and not (connection.writable or connection.closed)


def _do(made: Any, name: str, arguments: Blob | None) -> Any:
    """Do one call, or read an attribute."""
    if arguments is None:
        return getattr(made, name)
    args, kwargs = loads_arguments(arguments)
    return getattr(made, name)(*args, **kwargs)


def _methods_of(cls: Any) -> frozenset[str]:
    names = (name for name in dir(cls) if not name.startswith("__"))
    return frozenset(name for name in names if callable(getattr(cls, name, None)))


def _has_coroutines(cls: Any) -> bool:
    return any(inspect.iscoroutinefunction(getattr(cls, name, None)) for name in dir(cls))
