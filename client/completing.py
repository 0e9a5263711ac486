"""`as_completed`: futures one by one, in the order in which they complete.

It has one queue that the loop feeds with batches of states; the consumer takes from it without
waiting, and is woken once for each batch that comes while it sleeps.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

from ..protocol.durations import Duration, seconds_or_none
from ..protocol.errors import ClientClosed
from ..protocol.host.blocking import awaited, blocked
from .actors import ActorFuture, split
from .core.events import Unwatch, Watch
from .core.tasks import FutureState, Watcher
from .display import ticking
from .display.painting import make_painter
from .display.progress import Progress
from .future import Future, load
from .modes import Mode, Result, T, Waited, waits
from .results.failures import exception_of
from .results.future_arguments import engine_of, flat_futures, of_two_clients
from .results.lateness import too_late
from .shell.both_ways import blocks_here, result_of
from .shell.engine_waiting import CallNotes, LastWait, forget_calls, watch_calls
from .shell.in_task import check_not_own, check_not_own_calls, is_in_task
from .shell.interruptible import SLICE_S
from .shell.short_tracebacks import short_tracebacks
from .shell.watchers import call_in, pending, settle, unready
from .waiting import count_futures

if TYPE_CHECKING:
    from .shell.engine import Engine


class _Completions(Watcher):
    """The queue of one `as_completed`: the loop appends batches, consumers take."""

    __slots__ = ("async_waiters", "event", "queue")

    def __init__(self, wants_data: bool) -> None:
        super().__init__(wants_data)
        self.queue: deque[FutureState] = deque()
        self.event = threading.Event()
        self.async_waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self.queue.extend(items)
        self.wake()

    def new_waiter(self) -> asyncio.Future[None]:
        """Return what a coroutine awaits until the queue has changed."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self.async_waiters.append((loop, waiter))
        return waiter

    def wake(self) -> None:
        """Make all consumers check for completed futures."""
        self.event.set()
        with contextlib.suppress(IndexError):  # another thread was faster
            while self.async_waiters:
                loop, future = self.async_waiters.popleft()
                call_in(loop, settle, future)


class as_completed(Waited[Result, Mode]):
    """Iterate over futures in the order in which they complete.

    Works in `for` and in `async for`. Futures may be added while it runs; iteration ends when none
    is left. A future that is released meanwhile is left out. With results, the data of large ones
    is fetched ahead of the consumer.

    Args:
        futures: of one client; calls of actors, too.
        loop: ignored; accepted for compatibility with dask.
        with_results: yield `(future, result)` instead of the future.
        raise_errors: with results: raise the exception of a failed future. False: yield
            `(future, exception)`.
        timeout: for the whole iteration, in seconds or as "30s", ...; after it, `TimeoutError` is
            raised.
        progress: show how many futures are done, as `weft.progress` does.

    Example:
        >>> futures = client.map(abs, [-1, -2])
        >>> sorted(result for _, result in weft.as_completed(futures, with_results=True))
        [1, 2]
    """

    @overload
    def __init__(
        self: as_completed[Future[T, Mode], Mode],
        futures: Iterable[Future[T, Mode]] | None = None,
        loop: object = None,
        with_results: Literal[False] = False,
        raise_errors: bool = True,
        *,
        timeout: Duration | None = None,
        progress: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: as_completed[tuple[Future[T, Mode], T], Mode],
        futures: Iterable[Future[T, Mode]] | None = None,
        loop: object = None,
        *,
        with_results: Literal[True],
        raise_errors: Literal[True] = True,
        timeout: Duration | None = None,
        progress: bool = False,
    ) -> None: ...
    @overload
    def __init__(
        self: as_completed[tuple[Future[T, Mode], T | BaseException], Mode],
        futures: Iterable[Future[T, Mode]] | None = None,
        loop: object = None,
        *,
        with_results: Literal[True],
        raise_errors: bool,
        timeout: Duration | None = None,
        progress: bool = False,
    ) -> None: ...
    def __init__(
        self,
        futures: Iterable[Any] | None = None,
        loop: object = None,
        with_results: bool = False,
        raise_errors: bool = True,
        *,
        timeout: Duration | None = None,
        progress: bool = False,
    ) -> None:
        del loop
        #: {state: its futures, not yet yielded}.
        self._futures: dict[FutureState, Future | list[Future]] = {}  # first, for `__del__`
        self.with_results = with_results
        self.raise_errors = raise_errors
        self._timeout_s = seconds_or_none(timeout, "timeout")
        self._deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        self._engine: Engine | None = None
        self._completions = _Completions(with_results)
        #: More futures of a state that was taken from the queue, and futures that were put back.
        self._more: deque[Future] = deque()
        #: The calls of actors among the futures that were not done.
        self._calls: CallNotes = {}
        self._n = 0
        #: A wait for the last future was reported, so a consumer may have to report another one.
        self._has_reported = False
        self._shows = progress
        self._progress: Progress | None = None
        if futures is not None:
            self.update(futures)

    def __del__(self) -> None:
        # It was left, as by `break`: the other results need not come here. This takes no lock.
        if self._futures and self._engine is not None and not self._engine.is_gone:
            self._engine.post(Unwatch(self._completions, split([*self._futures])[0]))

    # --- Which futures ----------------------------------------------------------------------------

    def add(self, future: Future) -> None:
        """Wait for this future too.

        Example:
            >>> search = weft.as_completed(client.map(abs, [-1, -2]), with_results=True)
            >>> found = []
            >>> for future, result in search:
            ...     found.append(result)
            ...     if result == 2:
            ...         search.add(client.submit(abs, -3))
            >>> sorted(found)
            [1, 2, 3]
        """
        self.update([future])

    def update(self, futures: Iterable[Future]) -> None:
        """Wait for these futures too."""
        if isinstance(futures, (Future, ActorFuture)):
            raise TypeError(
                "as_completed takes an iterable of futures, such as [future]; not a Future"
            )
        futures = flat_futures(futures, "as_completed")
        engine = engine_of(futures)
        if engine is None:
            return
        if self._engine is None:
            self._engine = engine
        elif self._engine is not engine:
            raise of_two_clients(engine, self._engine)
        table = self._futures
        states: list[FutureState] = []
        for future in futures:
            state = future._state
            known = table.get(state)
            if known is None:
                table[state] = future
                states.append(state)
            elif isinstance(known, list):
                known.append(future)
            else:
                table[state] = [known, future]
        self._n += len(futures)
        if self._shows:
            self._show(engine, split(states)[0])
        waiting = unready(states) if self.with_results else pending(states)
        ready: list[FutureState] = []
        if len(waiting) < len(states):
            left = set(waiting)
            ready = [state for state in states if state not in left]
        if waiting:
            tasks, calls = split(waiting)
            engine.post(Watch(self._completions, tasks))
            if calls:
                self._calls.update(watch_calls(engine, self._completions, calls))
            engine.check_open()
        if ready:
            self._completions.on_ready(ready)
        elif self._has_reported:
            self._completions.wake()

    def _show(self, engine: Engine, states: list[FutureState]) -> None:
        if self._progress is None:
            self._progress = Progress(engine, make_painter())
            self._progress.belong_to(self)
            ticking.begin(self._progress)
        self._progress.add(states)

    async def _finish(self) -> None:
        if self._engine is not None:
            self._engine.show_output()
            if self._progress is not None:
                # The progress is notified of the same futures, perhaps after the iteration.
                with contextlib.suppress(ClientClosed):
                    if blocks_here():
                        self._engine.settle()
                    else:
                        await self._engine.settle_async()
        if self._progress is not None:
            self._progress.finish()
            self._progress = None

    def clear(self) -> None:
        """Wait for none of the futures any more."""
        # The loop may still put futures into the old queue, which is dropped.
        cleared, self._completions = self._completions, _Completions(self.with_results)
        if self._engine is not None:
            self._engine.post(Unwatch(cleared, split([*self._futures])[0]))
        forget_calls(self._calls)
        self._calls = {}
        self._futures.clear()
        self._more.clear()
        self._n = 0
        cleared.wake()

    def count(self) -> int:
        """Return the number of futures that were not yielded yet."""
        return self._n

    def is_empty(self) -> bool:
        """Return whether there is no future left to yield."""
        return self._n == 0

    def has_ready(self) -> bool:
        """Return whether a future can be yielded without waiting."""
        return bool(self._more or self._completions.queue)

    # --- Taking -----------------------------------------------------------------------------------

    def _take(self) -> Future | None:
        """Return a completed future, None if there is none now."""
        more, queue = self._more, self._completions.queue
        while more or queue:
            try:
                if more:
                    future = more.popleft()
                else:
                    state = queue.popleft()
                    found = self._futures.pop(state, None)
                    if found is None:
                        continue  # cleared meanwhile
                    if self._calls:
                        self._calls.pop(state, None)  # type: ignore[call-overload]
                    if isinstance(found, list):
                        more.extend(found[1:])
                        found = found[0]
                    future = found
            except IndexError:  # another consumer was faster
                continue
            self._n -= 1
            if not future._is_released:
                return future
        return None

    def _dress(self, future: Future | ActorFuture) -> Any:
        if not self.with_results:
            return future
        if isinstance(future, ActorFuture):
            return self._dress_call(future)
        state = future._state
        if state.failure is None:
            try:
                return future, load(state, future._engine)
            except Exception:
                if state.failure is None:
                    raise
        if self.raise_errors:
            raise exception_of(state)
        return future, exception_of(state)

    def _dress_call(self, call: ActorFuture) -> tuple[ActorFuture, Any]:
        error = call._error()
        if error is None:
            return call, call._load()
        if self.raise_errors:
            raise error
        return call, error

    def _time_left(self) -> float | None:
        if self._deadline is None:
            return None
        return max(self._deadline - time.monotonic(), 0.0)

    def _late(self) -> tuple[str, list[FutureState], float]:
        assert self._timeout_s is not None
        late = pending([*self._futures])
        text = f"{count_futures(self._n)} not done within {self._timeout_s:g} s"
        return text, split(late)[0], self._timeout_s

    async def _next(self) -> Future | None:
        """Wait for a completed future; None if there are none to wait for."""
        while True:
            completions = self._completions  # of this round: `clear` replaces the queue
            future = self._take()
            if future is not None:
                return future
            if self._n == 0:
                await self._finish()
                return None
            waiter = None if blocks_here() else completions.new_waiter()
            if waiter is None:
                completions.event.clear()
            # A batch may have come before there was something that it wakes.
            if not self.has_ready() and self._n:
                assert self._engine is not None
                left = self._time_left()
                if left == 0:
                    raise await too_late(self._engine, *self._late())
                if waiter is None:
                    self._block(self._engine, completions.event, left)
                else:
                    await self._await(waiter, left)
            if waiter is not None:
                waiter.cancel()

    def _block(self, engine: Engine, event: threading.Event, left: float | None) -> None:
        """Block the thread until something has come, at most for a slice of time."""
        engine.check_may_block()
        if self._calls:
            self._check_calls()
        last = self._last_wait()
        try:
            if last is None:
                with blocked():
                    event.wait(SLICE_S if left is None else min(left, SLICE_S))
                return
            with blocked(last.wait):
                # Another consumer may have cleared the event between two slices.
                while not event.wait(SLICE_S) and not self.has_ready() and self._n:
                    pass
            if not self.has_ready():
                last.check()
        except KeyboardInterrupt:
            engine.note_interrupt(split([*self._futures])[0])
            raise

    async def _await(self, waiter: asyncio.Future[None], left: float | None) -> None:
        """Await that something has come, at most for the time that is left."""
        last = self._last_wait()
        with awaited(None if last is None else last.wait):
            await asyncio.wait([waiter], timeout=left)
        if last is not None and not self.has_ready():
            last.check()

    def _check_calls(self) -> None:
        """Refuse to wait if all that is left are calls of the actor whose method waits."""
        states, calls = split([*self._futures])
        if not states and len({call.actor_key for call in calls}) == 1:
            check_not_own_calls(calls)

    def _last_wait(self) -> LastWait | None:
        """Return the wait of a task for the only future that is left, None if it is another one."""
        if not is_in_task():
            return None
        self._has_reported = True  # before the look: another thread may add futures
        if len(self._futures) != 1:
            return None
        states, calls = split([*self._futures])
        check_not_own(states)
        return LastWait(states, calls, self._completions.wake) if self._deadline is None else None

    def __iter__(self) -> Iterator[Result]:
        self._refuse_for()
        return self

    def _refuse_for(self) -> None:
        """Refuse a `for` in the event loop of an asynchronous client, also if it need not wait."""
        if self._engine is not None and self._engine.is_asynchronous and self._engine.is_own_thread:
            raise RuntimeError(
                "`for` would block the event loop that these futures need: use `async for`"
            )

    def __next__(self) -> Result:
        future = self._take()
        if future is None:
            with short_tracebacks:
                future = self._wait_for_next()
            if future is None:
                raise StopIteration
        return self._dress(future)  # type: ignore[no-any-return]

    def _wait_for_next(self) -> Future | None:
        return result_of(self._engine, self._next, asynchronous=False)

    def __aiter__(self) -> AsyncIterator[Result]:
        return self

    async def __anext__(self) -> Result:
        future = await self._next()
        if future is None:
            raise StopAsyncIteration
        return self._dress(future)  # type: ignore[no-any-return]

    @waits
    def next_batch(self, block: bool = True) -> list[Result]:
        """Return all completed futures as a list; wait for one if `block` and there is none.

        With results, a failed future ends the list before it and is raised by the next call.
        """

        async def fill() -> list[Any]:
            return self._fill(await self._next() if block else self._take())

        with short_tracebacks:
            return result_of(self._engine, fill)

    def _fill(self, future: Future | None) -> list[Any]:
        """Return this future and all others that are ready, up to the first that raises.

        That one comes next, alone: an exception raised now would lose the results before it.
        """
        batch: list[Any] = []
        while future is not None:
            try:
                batch.append(self._dress(future))
            except Exception:
                if not batch:
                    raise
                self._put_back(future)
                break
            future = self._take()
        return batch

    def _put_back(self, future: Future) -> None:
        self._more.appendleft(future)
        self._n += 1
        self._completions.wake()

    def batches(self) -> Batches[Result]:
        """Iterate, with `for` or `async for`, over lists of the futures completed since the last.

        With results, a failed future ends the list before it and is raised by the next step; the
        iteration can go on after that.
        """
        return Batches(self)


class Batches(Waited[Result, Mode]):
    """The result of `as_completed.batches`."""

    def __init__(self, completed: as_completed[Result, Any]) -> None:
        self._completed = completed

    def __iter__(self) -> Iterator[list[Result]]:
        self._completed._refuse_for()
        return self

    def __next__(self) -> list[Result]:
        with short_tracebacks:
            first = self._completed._wait_for_next()
        return self._filled(first, StopIteration)

    def __aiter__(self) -> AsyncIterator[list[Result]]:
        return self

    async def __anext__(self) -> list[Result]:
        return self._filled(await self._completed._next(), StopAsyncIteration)

    def _filled(self, first: Future | None, end: type[Exception]) -> list[Result]:
        if first is None:
            raise end
        return self._completed._fill(first)
