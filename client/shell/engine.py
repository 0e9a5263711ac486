"""The client's shell: a queue for the operations of users, the core, and its connections.

User threads call `post`; the loop takes the content of the queue as one event, or as one per slice
of it, so that a million releases hold up nothing else in this loop. The loop is woken at most once
for each time that it reads the queue. After each event `_drain` empties the core's out-boxes: one
frame per iteration of the loop, and none while the connection is not writable. Futures hold the
engine, not the client.

The core belongs to the thread that holds `lock`: as a rule that of the loop, but a caller that is
alone does the same work on its own thread (`past_loop`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final

from ...protocol.errors import ClientClosed
from ...protocol.host.forks import after_fork
from ...protocol.net.deadline import within
from ...protocol.net.session import Finder
from ...protocol.values.constants import Constants
from ...protocol.wire.failure import Failure
from ..core.events import (
    Borrow,
    ClientClosing,
    ClientEvent,
    ClientTick,
    Confirm,
    Disconnected,
    EndSession,
    FetchFrom,
    GaveUp,
    Operations,
    SpillRecipes,
    Tell,
    Unreadable,
    Warn,
)
from ..core.features import FEATURES
from ..core.features.notices import notices_of
from ..core.features.puts import PutAt
from ..core.operations import note_unreadable
from ..core.recipes import LIMIT_NBYTES
from ..core.state import ClientState
from ..core.table import FutureTable
from ..core.tasks import KEPT, FutureState, TaskColumns, Watcher
from .actor_connections import ActorConnections
from .awaiting import Awaiting
from .callbacks import CallbackThread, call_logged
from .data_links import DataLinks
from .engine_waiting import EngineWaiting
from .forking import close_in_fork
from .in_task import awaits_here, has_tasks
from .link import SchedulerLink
from .lone_caller import PastLoop
from .spilling import spill
from .unsent_limit import Gap
from .watchers import AsyncWaiter, Calling, ThreadWaiter, call_in

logger: Final = logging.getLogger("weft.client")

_CLOSE_TIMEOUT_S: Final = 2.0
#: Time that a release may wait for other operations after an event.
_SWEEP_S: Final = 0.01
#: How often the core looks at its deadlines.
_TICK_S: Final = 0.25
#: Operations, and rows of `map`, that one iteration of the loop hands to the core.
SLICE: Final = 10_000
#: Types of the operations that may have many rows.
_OF_ROWS: Final = frozenset({Borrow, TaskColumns})
#: Operations that an asynchronous client sends before its caller's loop has its next turn.
_BURST: Final = 512

#: How long a future that is pickled waits until the scheduler has its task.
_CONFIRM_TIMEOUT_S: Final = 10.0
#: How long a client that is closed waits until calls that borrow its futures were sent.
_LOANS_TIMEOUT_S: Final = 2.0

#: A task that submits: its attempt, and the key of the actor whose method it is, "" for none.
Caller = tuple[int, str]

#: Engines of this process, for `close_in_fork`, `Engine.is_alone` and `Engine._has_company`.
_engines: dict[weakref.ref[Engine], None] = {}


def _all_engines() -> list[Engine]:
    # `list` copies in one step; going through the dictionary fails if others come meanwhile.
    return [engine for ref in list(_engines) if (engine := ref()) is not None]


@after_fork
def _close_in_fork() -> None:
    close_in_fork(_all_engines())


def _n_in_slice(operations: list[Any]) -> int:
    """Return how many of the operations make up a slice, by their rows: at least one."""
    n_rows = 0
    for n, operation in enumerate(operations):
        if n_rows >= SLICE:
            return n
        task = operation.task if operation.__class__ is Borrow else operation
        n_rows += 1 + (len(task.states) if task.__class__ is TaskColumns else 0)
    return len(operations)


class Engine(EngineWaiting):
    """The shell of one client. Any thread may call the methods of the section of that name."""

    def __init__(
        self,
        client_id: str,
        name: str,
        loop: asyncio.AbstractEventLoop,
        is_asynchronous: bool,
        client: Callable[[], Any],
        recovery_nbytes: int = LIMIT_NBYTES,
    ) -> None:
        self.client_id = client_id
        #: The client uses the loop of a program, so nothing may block there.
        self.is_in_callers_loop = is_asynchronous
        #: `is_asynchronous` may be true somewhere; for the hot lane of `Future.result`.
        self.may_be_asynchronous = is_asynchronous or has_tasks()
        #: Returns the client, or None if it was collected.
        self.client = client
        self.name = name
        self.loop = loop
        self.table = FutureTable(threading.RLock())
        #: Held around each event of the core and the draining of its out-boxes.
        self.lock = threading.RLock()
        self.core = ClientState(self.table, FEATURES, Constants(), recovery_nbytes)
        #: Returns the id and the pass of the worker in whose tasks the client is; None = in none.
        self.worker_of_tasks: Callable[[], tuple[str, str]] | None = None
        #: What is submitted while there is no session.
        self.gap = Gap(recovery_nbytes)
        self.link: SchedulerLink | None = None
        self.data: DataLinks | None = None
        self._actor_connections: ActorConnections | None = None
        #: True from just before the last look into the queue: later operations are not handled.
        self.is_closed = False
        #: Why, for errors.
        self.closed_text = "the client is closed"
        _engines[weakref.ref(self, _engines.pop)] = None
        #: The users' operations that the core has not handled; any thread appends.
        self._operations: deque[Any] = deque()
        #: Number of times that the queue was read, and up to which the scheduler is known to have
        #: read it too, in this session. The second is written by the loop's thread.
        self.n_flushes = 0
        self._confirmed = -1
        #: The scheduler was asked for that, and has not answered.
        self._is_confirming = False
        #: Calls of other clients that read futures of this one, and that the scheduler is not known
        #: to have read. Any thread changes it.
        self._loans: weakref.WeakSet[Watcher] = weakref.WeakSet()
        #: Set when there is none any more; None unless `close` waits for that.
        self._loans_ended: asyncio.Event | None = None
        #: A flush is due. Set by the thread that wakes the loop, cleared before the queue is read.
        self._is_woken = False
        #: A sweep is due. Cleared before the sweep reads the queue: a thread that appends and then
        #: sees it set knows that the sweep is still to come.
        self._is_sweeping = False
        self._sweeper: asyncio.TimerHandle | None = None
        #: `n_flushes` at the last sweep.
        self._n_swept = 0
        self._thread_id = 0
        self._ticker: asyncio.TimerHandle | None = None
        #: To be called when no future is left, after the client was collected.
        self._when_unused: Callable[[], None] | None = None
        self._callbacks = CallbackThread()
        #: {topic: what waits for its events}
        self.subscriptions: dict[str, Any] = {}
        self._past_loop = PastLoop(self)
        #: For the coroutines of this engine's own loop.
        self.awaiting = Awaiting(self)

    # --- Any thread -------------------------------------------------------------------------------

    def post(self, operation: Any) -> None:
        """Hand an operation to the core. Takes no lock, so finalizers may call it."""
        self._operations.append(operation)
        if not self._is_woken:
            self.wake()

    def post_submission(self, operation: Any) -> None:
        """Hand a call to the core, which this thread may also send. Not for finalizers."""
        self._operations.append(operation)
        if not self._is_woken:
            if not (self._past_loop.note_submission() and self._past_loop.flush()):
                self.wake()
        elif (
            self.is_in_callers_loop
            and len(self._operations) >= _BURST
            and self.is_own_thread
            and not self.is_in_core
        ):
            self._flush()

    def post_later(self, operation: Any) -> None:
        """Hand in an operation that may wait for others, unless the loop is idle.

        The loop looks into the queue soon after it was busy (`_sweep`). So the release of a future
        that was collected does not cost a frame of its own when the next submission follows it, as
        in `submit(...).result()`. Takes no lock, so finalizers may call it.
        """
        self._operations.append(operation)
        if not (self._is_woken or self._is_sweeping):
            self.wake()

    def settle_releases(self) -> None:
        """Hand the queue to the core: no key counts as held whose futures were released before.

        Not for finalizers: it waits for the core, unless it is called within an event of it.
        """
        if self._operations and not self.is_in_core:
            self._past_loop.hand_over()

    @property
    def is_asynchronous(self) -> bool:
        """True if the calling thread is to await what takes time."""
        return awaits_here(self.is_in_callers_loop)

    def caller_here(self) -> Caller | None:
        """Return the task on whose behalf the calling thread submits."""
        return None

    def acting_for(self, caller: Caller) -> AbstractContextManager[None]:
        """Return a context in which the calling thread submits on behalf of this task."""
        return contextlib.nullcontext()

    def wake(self) -> None:
        """Have the loop read the queue, and receive."""
        try:
            # First the mark, then the call: the flush, which may come at once, clears the mark.
            self._is_woken = True
            if threading.get_ident() == self._thread_id:
                self.loop.call_soon(self._on_woken)
            else:
                self.loop.call_soon_threadsafe(self._on_woken)
        except RuntimeError:
            # The loop is closed, and so is the client. The mark stays: no retry can succeed.
            if not self.loop.is_closed():
                self._is_woken = False
                raise
        except BaseException:  # an interrupt: it must not leave a mark without a call
            self._is_woken = False
            raise

    def note_look(self) -> None:
        """Have the loop receive: a caller looks at a future again and again, and does not wait."""
        if self._past_loop.is_lent and not self._is_woken:
            self.wake()

    def check_open(self) -> None:
        """Raise ClientClosed if nothing that is posted now would be handled."""
        if self.is_closed or self.loop.is_closed():  # `is_gone`, in a hot lane
            raise ClientClosed(self.closed_text)

    @property
    def is_gone(self) -> bool:
        """True if the client is closed, or its event loop ended without closing it."""
        return self.is_closed or self.loop.is_closed()

    def attach(
        self, keys: list[str], spec_hashes: list[bytes] | None
    ) -> tuple[list[FutureState], list[FutureState]]:
        """Attach to keys that are perhaps in use, for the user's thread; see `FutureTable.attach`.

        Raises:
            ValueError: a key is in use for another task, by a future that was not released.
            ClientClosed: the client was closed while this waited.
        """
        with contextlib.suppress(ValueError):
            return self.table.attach(keys, spec_hashes)
        self.settle()  # the release of that future may still be in the queue
        return self.table.attach(keys, spec_hashes)

    def settle(self) -> None:
        """Wait until the core has handled all earlier operations."""
        if self.is_in_core:
            return  # a finalizer asks: the event in which it runs has to end first
        if threading.get_ident() == self._thread_id:
            while self._flush():
                pass
        else:
            waiter = ThreadWaiter(1, wants_data=False)
            self.wait(waiter, Tell(waiter), None)

    async def settle_async(self) -> None:
        """Do what `settle` does, in a coroutine."""
        waiter = AsyncWaiter(1, wants_data=False)
        await self.wait_async(waiter, Tell(waiter), None)

    @staticmethod
    def is_alone() -> bool:
        """Return whether no other client of this process can have made a future."""
        return len(_engines) < 2

    @property
    def is_confirmed(self) -> bool:
        """True if the scheduler is known to have read all submissions."""
        # In this order: the loop counts before it takes anything from the queue.
        return not self._operations and self.n_flushes == self._confirmed

    def confirm(self, state: FutureState) -> None:
        """Wait until the scheduler has the task of `state`, if this thread may wait."""
        if self.is_in_callers_loop or self.is_gone or threading.get_ident() == self._thread_id:
            return
        if self.is_confirmed and state.phase != KEPT:
            return
        self._ask_to_confirm()
        waiter = ThreadWaiter(1, wants_data=False)
        with contextlib.suppress(ClientClosed):
            self.wait(waiter, Confirm(waiter, [state]), _CONFIRM_TIMEOUT_S)

    def _ask_to_confirm(self) -> None:
        # The request comes with the next flush at the earliest, behind all earlier operations.
        self.post(Confirm(Calling(partial(self._on_confirmed, self.n_flushes + 1))))

    def loan_begins(self, loan: Watcher) -> None:
        """Note that another client's call borrows futures of this one."""
        self._loans.add(loan)

    def loan_ends(self, loan: Watcher) -> None:
        """Note that the scheduler has read that call, or never will."""
        self._loans.discard(loan)
        ended = self._loans_ended
        if ended is not None and not self._loans:
            call_in(self.loop, ended.set)

    def fail_unreadable(self, state: FutureState, failure: Failure) -> None:
        """Report to the core that a result cannot be unpickled; return when `state` has failed."""
        if not self.is_closed:
            self.post(Unreadable(state, failure))
            with contextlib.suppress(ClientClosed):  # meanwhile
                self.settle()
                return
        # The core has ended and changes no state any more.
        note_unreadable(state, failure)

    def when_unused(self, callback: Callable[[], None]) -> None:
        """Call `callback`, in the loop, when no future is left. Takes no lock: see `post`."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is left to be done
            self.loop.call_soon_threadsafe(self._set_when_unused, callback)

    def actor_connections(self) -> ActorConnections:
        """Return the connections to actors, which begin with the first call of one."""
        if self._actor_connections is None:
            with self.lock:
                if self._actor_connections is None:
                    self._actor_connections = ActorConnections(self)
        return self._actor_connections

    @property
    def is_own_thread(self) -> bool:
        """Return whether the caller runs in the thread of the event loop."""
        return threading.get_ident() == self._thread_id

    @property
    def is_in_core(self) -> bool:
        """True within an event of the core on this thread, where only finalizers can ask."""
        return self.lock._is_owned()  # type: ignore[attr-defined,no-any-return]

    # --- The loop's thread ------------------------------------------------------------------------

    def call_back(self, callback: Callable[[Any], object], argument: Any) -> None:
        """Call a user's function: in the user's loop, or in a thread beside this one."""
        if self.is_in_callers_loop:
            self.loop.call_soon(call_logged, callback, argument)
        else:
            self._callbacks.call(callback, argument)

    async def open(
        self, find: Finder, facts: dict[str, Any], timeout_s: float, reconnect_timeout_s: float
    ) -> None:
        """Connect to the scheduler."""
        self._thread_id = threading.get_ident()
        self.link = link = SchedulerLink(self, find, facts, reconnect_timeout_s)
        notices_of(self.core).output = self.shown
        if self.shown is not None:
            self.shown.place = self._place
        self.data = DataLinks(lambda: link.security, self.on_event)
        await self.link.open(timeout_s)
        self._ticker = self.loop.call_later(_TICK_S, self._on_tick)

    def _place(self) -> int:
        """Return which scheduler this client is connected to, 0 = none."""
        core = self.core
        return core.epoch if core.is_linked and not self.is_gone else 0

    def give_up(self, reason: str) -> None:
        """End what waits, and refuse what comes: there will be no session."""
        self.closed_text = reason
        self.on_event(GaveUp(reason))

    def _set_when_unused(self, callback: Callable[[], None]) -> None:
        self._when_unused = callback
        self._on_woken()
        self._check_unused()

    def _check_unused(self) -> None:
        callback = self._when_unused
        if callback is not None and not self.table.states and not self.is_closed:
            self._when_unused = None
            callback()

    def count_pending(self) -> int:
        """Return the number of futures that are pending."""
        return sum(state.status == "pending" for state in self.core.table.snapshot())

    def _on_woken(self) -> None:
        if self._past_loop.is_lent:
            self._past_loop.take_back()
        self._read_queue()

    def _read_queue(self) -> None:
        if self._flush() and not self._is_woken:
            self.wake()

    def _flush(self) -> bool:
        """Do what `handle_slice` does, and what follows; return the same."""
        self._is_woken = False
        with self.lock:
            more = self.handle_slice()
            self._drain()
        if not self.is_alone():
            self._sweep_soon()
        return more

    def handle_slice(self) -> bool:
        """Hand a slice of the queue to the core; return whether more can be taken at once.

        The caller holds the lock, and then does the actions and sends the messages.
        """
        queue = self._operations
        n = len(queue)
        if not n:
            return False
        self.n_flushes += 1
        take = queue.popleft
        operations = [take() for _ in range(min(n, SLICE))]
        if not _OF_ROWS.isdisjoint(map(type, operations)):
            n_taken = _n_in_slice(operations)
            queue.extendleft(reversed(operations[n_taken:]))
            del operations[n_taken:]
        self.core.handle(Operations(operations), time.monotonic())
        return n > len(operations)

    def _sweep(self) -> None:
        is_left_to_caller = False
        if self._past_loop.is_lent and self._past_loop.is_used():
            self._sweeper = self.loop.call_later(_SWEEP_S, self._sweep)
            # A caller that submits call after call sends the releases with the next one.
            is_left_to_caller = self.n_flushes != self._n_swept
            self._n_swept = self.n_flushes
        else:
            self._is_sweeping = False
            if self._past_loop.is_lent:
                self._past_loop.take_back()
        if not (self.is_alone() or self._is_confirming or self.is_confirmed) and (
            self._has_company()
        ):
            # Known in advance, so that another client can borrow while this loop is blocked.
            self._is_confirming = True
            self._ask_to_confirm()
        elif self._operations and not is_left_to_caller:
            self._read_queue()

    def _sweep_soon(self) -> None:
        if not (self._is_sweeping or self.is_closed):
            self._sweeper = self.loop.call_later(_SWEEP_S, self._sweep)
            self._is_sweeping = True

    def _has_company(self) -> bool:
        return any(engine is not self and not engine.is_gone for engine in _all_engines())

    def _on_confirmed(self, n_flushes: int) -> None:
        self._confirmed = n_flushes
        self._is_confirming = False

    def on_event(self, event: ClientEvent) -> None:
        """Handle an event of the link or a connection; messages may come on a caller's thread."""
        with self.lock:
            if event.__class__ is Disconnected:
                self._confirmed = -1
                self.gap = Gap(self.gap.limit_nbytes)
                self._past_loop.is_lent = False  # a new connection is read by the loop
            self.core.handle(event, time.monotonic())
            if threading.get_ident() != self._thread_id:
                self._past_loop.drain()
                return
            self._drain()
        self._sweep_soon()
        if self._past_loop.may_begin:
            self.loop.call_soon(self._past_loop.begin)

    def on_writable(self) -> None:
        """Send what waits: the connection takes messages again."""
        with self.lock:
            self._drain()

    def notify(self) -> None:
        """Do the actions of `before`."""
        # An action may lead to the next event at once, and so to another draining within this one:
        # each takes the lists as they are then, which keeps the order.
        before, self.core.before = self.core.before, []
        for notify in before:
            notify.watcher.on_ready(notify.items)

    def _drain(self) -> None:
        if self.core.before:
            self.notify()
        core, link = self.core, self.link
        if core.to_scheduler and link is not None and link.writable:
            messages, core.to_scheduler = core.to_scheduler, []
            link.send(messages)
        if core.after:
            after, core.after = core.after, []
            for action in after:
                if isinstance(action, (FetchFrom, PutAt)):
                    assert self.data is not None
                    self.data.do(action)
                elif isinstance(action, SpillRecipes):
                    spill(action, self.loop, self.on_event)
                elif isinstance(action, EndSession):
                    assert self.link is not None
                    # Not here: a thread other than the loop's may have received the message.
                    self.loop.call_soon_threadsafe(self.link.end, action.reason)
                else:
                    assert isinstance(action, Warn)
                    logger.warning("%s", action.text)

    def _on_tick(self) -> None:
        self._ticker = self.loop.call_later(_TICK_S, self._on_tick)
        if self.output is not None:
            self.note_level()
        self.on_event(ClientTick())
        self._check_unused()

    async def close(self, reason: str = "the client was closed") -> None:
        """End the session. Pending futures are cancelled; results in this process stay readable."""
        try:
            await self._wait_for_loans()
        finally:
            await self._end(reason)

    async def _wait_for_loans(self) -> None:
        """Wait until the scheduler has read the calls that borrow futures, but not for long."""
        self._loans_ended = asyncio.Event()
        if self._loans and self.core.is_linked and not self.is_closed:
            with contextlib.suppress(TimeoutError):
                await within(_LOANS_TIMEOUT_S, self._loans_ended.wait())

    async def _end(self, reason: str) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        while self._flush():
            pass
        self.is_closed = True
        self._past_loop.take_back()
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._is_sweeping = False
        while self._flush():
            pass
        self.on_event(ClientClosing())
        try:
            if self._actor_connections is not None:
                await self._actor_connections.close()
                while self._flush():  # watchers of calls are notified that these have failed
                    pass
            if self.data is not None:
                await self.data.close()
            if self.link is not None:
                await self.link.close(reason, _CLOSE_TIMEOUT_S)
        finally:
            if self.link is not None:  # also when this is cancelled: the connection must end
                self.link.abort()
            self._callbacks.end()
            if self.shown is not None and self.shown.is_waiting:
                self.shown.show()
