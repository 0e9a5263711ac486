"""One actor: its object, its inbox, and the thread that does its calls. A part of `actors`.

Calls are put into the inbox in the order in which they come. The thread does one after the other,
and sends the answers itself, in batches, past the loop. An answer waits for those of later calls
for a moment only: the loop sends it if the next call takes long, the thread before it waits.

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
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ...protocol.host.blocking import blocked, on_blocked_here, on_interrupts_here
from ...protocol.values.exceptions import pack_exception
from ...protocol.values.serialize import loads_arguments
from ...protocol.wire.failure import Failure
from ...protocol.wording import counted
from ..context import WorkerContext, set_worker
from ..slots.coroutines import finish_loop
from ..slots.interrupting import SlotGate
from .actor_seat import ActorSeat, ActorTask

if TYPE_CHECKING:
    from ...protocol.net.connection import Connection
    from ...protocol.wire.messages import ActorCalls
    from ...protocol.wire.payload import Blob
    from ..output.output import OutputCatcher
    from .actors import Actors

logger = logging.getLogger("weft.worker")

#: Answers wait for those of the next calls at most this long.
_ANSWER_AFTER_NS: Final = 1_000_000
#: With more holders it is not known which of their calls were answered: see `begun`.
_MAX_HOLDERS: Final = 1000
#: The connection of a holder that does not read its answers is closed after this time.
UNREAD_S: Final = 60.0
#: At the end of its event loop, what takes no notice of its cancellation is awaited so long.
_LEFT_S: Final = 30.0
_RELEASED: Final = "has ended, because no holder was left; keep its handle or its future"
_NONE: Final[list[Any]] = []

#: (connection, request, result or failure, futures in the result) of a call that is done
Answer: TypeAlias = "tuple[Connection, int, Blob | None, Failure | None, list[Any]]"
#: What an actor is made with, until it is: class, arguments, the description of its worker.
_Make: TypeAlias = "list[tuple[Any, tuple[Any, ...], dict[str, Any], WorkerContext]]"
#: (holder, number of its connection, request)
CallId: TypeAlias = tuple[str, int, int]


class Mail(NamedTuple):
    """Calls of one message."""

    connection: Connection
    message: ActorCalls


def _handler_except_of(told: BaseException) -> Callable[[asyncio.AbstractEventLoop, Any], None]:
    """Return a handler of what an event loop reports, silent about an error that was told."""

    def handle(loop: asyncio.AbstractEventLoop, report: dict[str, Any]) -> None:
        if report.get("exception") is not told:
            loop.default_exception_handler(report)

    return handle


class ActorThread:
    """One actor."""

    def __init__(self, actors: Actors, key: str, attempt: int) -> None:
        self.actors = actors
        self.key = key
        self.attempt = attempt
        #: calls, and None for the end
        self.inbox: queue.SimpleQueue[Mail | None] = queue.SimpleQueue()
        self.thread: threading.Thread
        self._seat = ActorSeat(self, key, attempt)
        #: What sends what its methods print; None in the process of a client.
        self._output: OutputCatcher | None = None
        #: Where the thread may be interrupted: while it makes the object.
        self._gate = SlotGate()
        #: The object is there, or there will be none.
        self._made = threading.Event()
        #: Why there is no object, if making it has raised.
        self._error: BaseException | None = None
        #: Nothing in the inbox is done any more, for this reason.
        self.is_over = False
        self.end_text = _RELEASED
        #: The calls that an actor without coroutine functions does.
        self._mail: Mail | None = None
        #: Answers that were not sent. The thread appends; who holds the lock takes.
        self._done: deque[Answer] = deque()
        self._taking = threading.Lock()
        #: `answer_late` will be called.
        self._is_watched = False
        #: The first of `_done` at its last call.
        self._seen: Answer | None = None
        #: {holder: the last call of its messages before this one}
        self._begun: dict[str, tuple[int, int]] = {}
        #: The holder whose calls are being done, and the number of its connection.
        self._caller = "", 0
        #: The call of it that runs outside of coroutines.
        self._request: int | None = None
        #: the event loop of an actor with coroutine functions
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event
        #: The class of the object, once that is made.
        self.cls: type
        self._made_object: Any = None
        self._connection: Connection
        self._rows: deque[tuple[int, str, Blob | None]] = deque()
        #: A call of `_next` is due, or comes when the caller has read.
        self._goes_on = False
        #: Closes the connection of a caller that does not read.
        self._unread: asyncio.TimerHandle | None = None
        self._running: dict[asyncio.Task[None], tuple[Connection, CallId]] = {}

    # --- Any thread -------------------------------------------------------------------------------

    def make(
        self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], context: WorkerContext
    ) -> None:
        """Make the object, on a thread of its own; wait for that. Raise what it raises."""
        own = copy.copy(context)
        self._output = context.output
        # What a function will make is not known.
        has_loop = not isinstance(cls, type) or any(
            inspect.iscoroutinefunction(getattr(cls, name, None)) for name in dir(cls)
        )
        self.thread = threading.Thread(
            target=self._live,
            args=(self._run_loop if has_loop else self._run, [(cls, args, kwargs, own)]),
            name=f"weft-actor-{self.key}",
            daemon=True,
        )
        with blocked():
            self.actors.note_thread(self.thread)
            self.thread.start()
            try:
                context.here.stand_in = self.thread.ident or 0, self._gate
                self._made.wait()
            finally:
                context.here.stand_in = None
        if self._error is not None:
            error, self._error = self._error, None
            self.thread.join()
            raise error

    @property
    def is_calling(self) -> bool:
        """True while its thread does a call, outside of coroutines."""
        return self._request is not None

    def put(self, mail: Mail | None) -> None:
        """Put calls into the inbox, or the end behind them. On any thread."""
        self.inbox.put(mail)
        if self.is_over:  # the thread may have looked into the inbox for the last time
            self._refuse_rest()
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(self._on_mail)

    def answer(self) -> None:
        """Send the answers of the calls that are done."""
        with self._taking:
            done = [self._done.popleft() for _ in range(len(self._done))]
        while done:
            connection = done[0][0]
            ours = [row for row in done if row[0] is connection]
            done = [row for row in done if row[0] is not connection]
            self.actors.send(connection, ours, self.key)

    def answer_late(self) -> bool:
        """Send the answers that were there at the last call; False if there are none at all."""
        try:
            first = self._done[0]
        except IndexError:
            self._seen = None
            self._is_watched = False
            return bool(self._done)  # one has come just now
        if first is self._seen:
            self.answer()
        self._seen = first
        return True

    # --- While the thread waits -------------------------------------------------------------------

    def begun(self) -> list[CallId] | None:
        """Return the last call of each holder that has begun; None if there are too many."""
        if len(self._begun) >= _MAX_HOLDERS:
            return None
        begun = {holder: (holder, *last) for holder, last in list(self._begun.items())}
        if self._request is not None:
            begun[self._caller[0]] = *self._caller, self._request
        return [*begun.values()]

    def forget(self, holder: str) -> None:
        """Forget a holder whose connection has ended: none of its calls is waited for."""
        self._begun.pop(holder, None)

    def open(self) -> list[CallId]:
        """Return the calls that have begun and not ended."""
        calls = [call for _, call in list(self._running.values())]
        if self._request is not None:
            calls.append((*self._caller, self._request))
        return calls

    # --- The actor's thread -----------------------------------------------------------------------

    def _live(self, body: Callable[[_Make], None], make: _Make) -> None:
        """Do calls until the end. Whatever ends the thread, nobody waits for it afterwards."""
        try:
            body(make)
        except BaseException as error:  # of a task of its loop; no loop can be made; a bug of weft
            if self._made.is_set():
                self._note_fault(error)
            else:
                self._error = self._error or error
        finally:
            self._made.set()
            if self.is_over:
                self._fail_begun()
            self._refuse_rest()

    def _note_fault(self, error: BaseException) -> None:
        """Note why the thread ends although the actor has holders."""
        if self.end_text is _RELEASED:
            what = "".join(traceback.format_exception_only(type(error), error)).strip()
            self.end_text = f"has ended: its thread was ended by {what}; make a new one"
            logger.warning(
                "the actor %s %s",
                self.key,
                self.end_text,
                exc_info=error,
                extra={"code": "actor-ended"},
            )
        self.is_over = True

    def _fail_begun(self) -> None:
        """Answer the calls that have begun; an answer that was sent counts before this one."""
        left = [(connection, call[2]) for connection, call in self._running.values()]
        self._running.clear()
        mail, self._mail = self._mail, None
        if mail is not None and self._request is not None:
            begun = mail.message.requests.index(self._request)
            left += [(mail.connection, request) for request in mail.message.requests[begun:]]
        left += [(self._connection, row[0]) for row in self._rows]
        self._rows.clear()
        for connection, request in left:
            self._done.append((connection, request, None, self._in_doubt(), _NONE))
        self._request = None
        self.answer_before_wait()

    def _in_doubt(self) -> Failure:
        text = f"may have run the call, or not: the actor {self.end_text}"
        return ["actor-in-doubt", self.key, text]

    def _begin(self, make: _Make) -> Any:
        """Make the object; None if that raises."""
        # Taken out: a thread keeps what it was started with, and this must not live as long.
        cls, args, kwargs, context = make.pop()
        set_worker(context)
        task = context.task
        assert task is not None, "a task makes it"
        made = None
        try:
            try:
                on_interrupts_here(self._gate)
                self._gate.open()
                made = cls(*args, **kwargs)
                self.cls = type(made)
            finally:
                self._gate.close()
                on_interrupts_here(None)
        except BaseException as error:  # it is the task that fails
            self._error, made = error, None
        # The seat of the task's own thread was good while that waited.
        context.here.seat = self._seat  # type: ignore[assignment]
        context.here.task = ActorTask(task.key, task.attempt)  # type: ignore[assignment]
        on_blocked_here(self._seat.blocked)
        self._end_lines()
        return made

    def _end_lines(self) -> None:
        """Have the client see what was printed without an end of the line."""
        output = self._output
        if output is not None and output.is_filled:
            output.end_lines()

    def _run(self, make: _Make) -> None:
        made = self._begin(make)
        if self._error is not None:
            return
        self._made.set()
        take = self.inbox.get
        while True:
            mail = take()
            if mail is None:
                break
            self._do_all(made, mail)
            mail = None

    def _do_all(self, made: Any, mail: Mail) -> None:
        self._mail = mail
        connection, message = mail
        last = message.requests[-1] if message.requests else 0
        self._caller = message.holder, message.connection
        since = time.perf_counter_ns()
        for request, name, arguments in zip(
            message.requests, message.names, message.arguments, strict=True
        ):
            self._request = request
            blob = failure = None
            futures = _NONE
            try:
                value = _do(made, name, arguments)
                blob, futures = self.actors.pack(value, self.key, name)
                del value
            except BaseException as error:  # of user code: SystemExit ends the call only
                failure = self._failure(error, name)
            self._end_lines()
            row = connection, request, blob, failure, futures
            self._done.append(self._ended([row])[0] if self._seat.at_end else row)
            now = time.perf_counter_ns()
            if now - since > _ANSWER_AFTER_NS:
                self.answer()
                self.actors.wait_for_reader(connection)
                since = time.perf_counter_ns()
            elif request != last and not self._is_watched:
                self._is_watched = True
                self.actors.look_after(self)
        self._request = None
        self._note_begun(connection, last)
        self.answer()
        self._mail = None
        self.actors.wait_for_reader(connection)

    def _note_begun(self, connection: Connection, request: int) -> None:
        holder, number = self._caller
        if holder in self._begun or len(self._begun) < _MAX_HOLDERS:
            self._begun[holder] = number, request
        if connection.closed:  # `forget` came before this, perhaps
            self.forget(holder)

    def _ended(self, rows: list[Answer]) -> list[Answer]:
        """Do what is due before these answers; if that raises, the calls have failed."""
        error = self._seat.end_calls()
        if error is None:
            return rows
        failure = self._failure(error)
        return [row if row[3] is not None else (*row[:2], None, failure, _NONE) for row in rows]

    def _failure(self, error: BaseException, name: str = "") -> Failure:
        where = f"{self.key}.{name}" if name else self.key
        return ["exception", where, *pack_exception(error, where, self.actors.worker)]

    def _refuse_rest(self) -> None:
        """Answer the calls behind the end. On any thread."""
        self.is_over = True
        with contextlib.suppress(queue.Empty):
            while True:
                mail = self.inbox.get_nowait()
                if mail is not None:
                    self.actors.refuse(*mail, self.end_text)

    def answer_before_wait(self) -> None:
        """Send all answers: the thread does not return to them for a while."""
        if self._loop is None:
            self.answer()
        else:
            self._flush()

    # --- With an event loop -----------------------------------------------------------------------

    def _run_loop(self, make: _Make) -> None:
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            loop.run_until_complete(self._main(make))
        except BaseException as error:  # SystemExit of a task that the user's code has started
            loop.set_exception_handler(_handler_except_of(error))
            if self._made.is_set():
                # First: a coroutine may take its cancellation for no reason to end.
                self._note_fault(error)
                self._fail_begun()
            raise
        finally:
            try:
                n_left = finish_loop(loop, _LEFT_S)
                if n_left:
                    what = counted(n_left, "coroutine")
                    logger.warning(
                        "%s of the actor %s did not end with it",
                        what,
                        self.key,
                        extra={"code": "coroutines-left"},
                    )
            finally:
                asyncio.set_event_loop(None)
                loop.close()

    async def _main(self, make: _Make) -> None:
        self._over = asyncio.Event()
        self._made_object = self._begin(make)
        if self._error is None:
            self._loop = asyncio.get_running_loop()
            self._made.set()
        if self._loop is None:
            return
        self._on_mail()  # what came before the loop was there to be woken
        await self._over.wait()
        self._refuse_rest()  # first: a coroutine may take its cancellation for no reason to end
        if self._running:
            await asyncio.wait([*self._running])
        self._flush()
        self._made_object = None

    def _on_mail(self) -> None:
        if not (self._goes_on or self.is_over):
            self._goes_on = True
            self._next()

    def _next(self) -> None:
        """Begin the next call; the one after it begins when this one has waited, or has ended."""
        if self.is_over:
            return  # its calls have been answered
        loop = asyncio.get_running_loop()
        while not self._rows:
            try:
                mail = self.inbox.get_nowait()
            except queue.Empty:
                self._goes_on = False
                return
            if mail is None:
                self.is_over = True
                # A caller that waits for its answer holds the actor, so none of these is awaited.
                for task in self._running:
                    task.cancel()
                self._over.set()
                return
            self._connection, message = mail
            self._caller = message.holder, message.connection
            self._rows.extend(zip(message.requests, message.names, message.arguments, strict=True))
        if self.actors.has_to_wait(self._connection, self._on_read):
            self._unread = loop.call_later(
                UNREAD_S, self.actors.give_up, self._connection, self._on_read
            )
            return
        self._begin_call(*self._rows.popleft())
        loop.call_soon(self._next)

    def _on_read(self) -> None:
        """Go on: the caller has read its answers, or is gone. On any thread."""
        assert self._loop is not None, "it has begun"
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._next()

    def _begin_call(self, request: int, name: str, arguments: Blob | None) -> None:
        connection = self._connection
        self._request = request
        try:
            value = _do(self._made_object, name, arguments)
            if inspect.iscoroutine(value):
                task = asyncio.get_running_loop().create_task(
                    self._finish(connection, request, name, value)
                )
                self._running[task] = connection, (*self._caller, request)
            else:
                self._note((connection, request, *self._packed(value, name)))
        except BaseException as error:  # of user code
            self._note((connection, request, None, self._failure(error, name), _NONE))
        self._request = None
        self._end_lines()
        self._note_begun(connection, request)

    async def _finish(self, connection: Connection, request: int, name: str, value: Any) -> None:
        try:
            row: Answer = (connection, request, *self._packed(await value, name))
        except GeneratorExit:  # it is destroyed, after its loop, and was answered when that ended
            raise
        except BaseException as error:  # of user code; or it is cancelled, as the actor ends
            row = connection, request, None, self._failure(error, name), _NONE
        task = asyncio.current_task()
        assert task is not None, "it is a coroutine"
        was_answered = self._running.pop(task, None) is None  # when the thread was ended
        self._end_lines()
        if not was_answered:
            self._note(row)

    def _packed(self, value: Any, name: str) -> tuple[Blob, None, list[Any]]:
        blob, futures = self.actors.pack(value, self.key, name)
        return blob, None, futures

    def _note(self, row: Answer) -> None:
        if not self._done:
            asyncio.get_running_loop().call_soon(self._flush)
        self._done.append(row)

    def _flush(self) -> None:
        if self._seat.at_end:
            self._done = deque(self._ended([*self._done]))
        self.answer()


def _do(made: Any, name: str, arguments: Blob | None) -> Any:
    """Do one call, or read an attribute."""
    if arguments is None:
        return getattr(made, name)
    args, kwargs = loads_arguments(arguments)
    return getattr(made, name)(*args, **kwargs)


#: The code around the calls of an actor.
OWN_CODE: Final = frozenset({ActorThread._live.__code__})
