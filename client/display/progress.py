"""`weft.progress`: how many of some futures are done, by function, while they are computed.

Nothing here runs for each future. A watcher is filed at the futures of one function, as for any
other wait; the core notifies it in batches, of which it adds up the lengths. What there is to see
is drawn four times a second: by the thread that waits, or by `ticking` if none does.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, overload

from ...protocol.errors import WeftError
from ...protocol.host.blocking import blocked
from ...protocol.rates import Rate
from ...protocol.wording import lasting, rated
from ..core.events import Unwatch, Watch
from ..core.tasks import CANCELLED, FutureState, Watcher
from ..results.future_arguments import engine_of, futures_in
from ..shell.both_ways import blocks_here, result_of, waiter_here
from ..shell.short_tracebacks import short_tracebacks
from ..shell.watchers import ThreadWaiter, Waiter, pending, unready
from . import ticking
from .describing import function_of
from .notebook import in_notebook
from .painting import Painter, make_painter

if TYPE_CHECKING:
    from ..modes import Awaited, Blocking, Mode, Waited
    from ..shell.engine import Engine

    #: Futures as they are given: one, or a container of some.
    Given: TypeAlias = (
        Waited[Any, Mode] | Iterable[Waited[Any, Mode]] | Mapping[Any, Waited[Any, Mode]]
    )

#: Functions that have a row of their own: those with the most futures.
_MAX_ROWS: Final = 20
#: Futures of one operation: the core handles it as a whole.
_SLICE: Final = 10_000


@overload
def progress(
    *futures: Given[Blocking],
    notebook: bool | None = None,
    blocking: bool | None = None,
    multi: bool = True,
    complete: bool = True,
    group_by: str = "prefix",
) -> None: ...
@overload
def progress(
    *futures: Given[Awaited],
    notebook: bool | None = None,
    blocking: bool | None = None,
    multi: bool = True,
    complete: bool = True,
    group_by: str = "prefix",
) -> Coroutine[Any, Any, None]: ...
def progress(
    *futures: Any,
    notebook: bool | None = None,
    blocking: bool | None = None,
    multi: bool = True,
    complete: bool = True,
    group_by: str = "prefix",
) -> Coroutine[Any, Any, None] | None:
    """Show how many of these futures are done, with failures, rate and remaining time.

    One line per function; at the end a summary takes their place. In a notebook it is shown below
    the cell, in a terminal in its last lines; in a file or a pipe there is a line per minute.

    Args:
        futures: of one client, also in lists and other containers.
        notebook: show it in the cell; None = if the program runs in a notebook.
        blocking: return when all are done; None = not in a notebook. An asynchronous client then
            returns an awaitable.
        multi: accepted for compatibility with dask: there is one line per function.
        complete: accepted for compatibility with dask.
        group_by: accepted for compatibility with dask; only "prefix", the function, is allowed.

    Raises:
        TypeError: there is something else among the futures, or another `group_by`.
        ValueError: a future was released, or they belong to several clients.

    Example:
        >>> weft.progress(client.map(abs, range(10)), blocking=True)
    """
    del multi, complete
    if group_by != "prefix":
        raise TypeError(
            f"progress shows one line per function: leave group_by={group_by!r} out, or call it "
            "once for each group of futures"
        )
    found = [*futures_in(futures, "progress")]
    engine = engine_of(found)
    if engine is None:
        return None
    states = [future._state for future in found]
    shown = Progress(engine, make_painter(notebook))
    if blocking is None:
        blocking = not (in_notebook() if notebook is None else notebook)
    if not blocking:
        shown.add(states)
        ticking.begin(shown)
        return None

    async def wait_for_all() -> None:
        await _wait(shown, states, None, stops=False, wants_data=False)

    with short_tracebacks:
        return result_of(engine, wait_for_all)


async def wait_showing(
    engine: Engine, states: list[FutureState], timeout: float | None, *, stops: bool
) -> bool:
    """Wait for results with a progress to look at; return whether they came in time.

    Args:
        engine: the client's.
        states: that are waited for.
        timeout: seconds; None = for ever.
        stops: return at the first failure.
    """
    shown = Progress(engine, make_painter())
    return await _wait(shown, states, timeout, stops=stops, wants_data=True)


async def _wait(
    shown: Progress,
    states: list[FutureState],
    timeout: float | None,
    *,
    stops: bool,
    wants_data: bool,
) -> bool:
    engine = shown.engine
    if blocks_here():
        engine.check_may_block()
    waiter = waiter_here(len(states), wants_data, stops)
    deadline = None if timeout is None else time.monotonic() + timeout
    done = False
    try:
        shown.add(states, waiter, wants_data)
        engine.check_open()
        while not done:
            if isinstance(waiter, ThreadWaiter):
                with blocked():
                    done = waiter.wait(_slice(deadline))
            else:
                done = await waiter.wait(_slice(deadline))
            shown.draw(is_over=done)
            if deadline is not None and time.monotonic() >= deadline:
                break
    except KeyboardInterrupt:
        engine.note_interrupt(states)
        raise
    finally:
        shown.stop(states)
        engine.show_output()
    return done


def _slice(deadline: float | None) -> float:
    if deadline is None:
        return ticking.TICK_S
    return max(0.0, min(ticking.TICK_S, deadline - time.monotonic()))


class _Row(Watcher):
    """The futures of one function: counts those that are done."""

    __slots__ = ("cancelled", "done", "failed", "name", "rate", "total", "waiter")

    def __init__(self, name: str, wants_data: bool, waiter: Waiter | None) -> None:
        super().__init__(wants_data)
        self.name = name
        self.waiter = waiter
        self.rate = Rate()
        self.total = self.done = self.failed = self.cancelled = 0

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        bad = [state.status for state in items if state.failure is not None]
        if bad:
            n_cancelled = bad.count(CANCELLED)
            self.cancelled += n_cancelled
            self.failed += len(bad) - n_cancelled
        self.done += len(items)
        if self.waiter is not None:
            self.waiter.on_ready(items)


class Progress:
    """The progress of some futures, which `draw` shows."""

    def __init__(self, engine: Engine, painter: Painter) -> None:
        self.engine = engine
        self._painter = painter
        #: {name of the function: its row}.
        self._rows: dict[str, _Row] = {}
        self._start = time.monotonic()
        #: The iteration that may add futures, if there is one.
        self._owner: weakref.ref[Any] | None = None
        self._drawing = threading.Lock()
        self._is_over = False

    def belong_to(self, owner: Any) -> None:
        """Go on while `owner` exists, which may add futures, until it calls `finish`."""
        self._owner = weakref.ref(owner)

    def add(
        self,
        states: Iterable[FutureState],
        waiter: Waiter | None = None,
        wants_data: bool = False,
    ) -> None:
        """Count these too; `waiter` is notified of them as well."""
        groups: dict[str, list[FutureState]] = {}
        for state in states:
            name = function_of(state)
            group = groups.get(name)
            if group is None:
                group = groups[name] = []
            group.append(state)
        now = time.monotonic()
        for name, group in sorted(groups.items(), key=lambda item: -len(item[1])):
            row = self._rows.get(name)
            if row is None and len(self._rows) >= _MAX_ROWS:
                name = "other functions"
                row = self._rows.get(name)
            if row is None:
                row = self._rows[name] = _Row(name, wants_data, waiter)
                row.rate.observe(now, len(group) - len(_left(group, wants_data)))
            row.total += len(group)
            for i in range(0, len(group), _SLICE):
                self.engine.post(Watch(row, group[i : i + _SLICE]))

    def stop(self, states: list[FutureState]) -> None:
        """Count no more: the wait for these is over, or was interrupted."""
        self.finish()
        if any(row.done < row.total for row in self._rows.values()) and not self.engine.is_gone:
            left = _left(states, wants_data=True)
            for row in self._rows.values():
                self.engine.post(Unwatch(row, left))

    def finish(self) -> None:
        """Draw it for the last time, unless that was done."""
        self.draw(is_over=True)

    def draw(self, is_over: bool = False) -> bool:
        """Draw it as it is now; return whether it may change again."""
        with self._drawing:
            if self._is_over:
                return False
            rows = list(self._rows.values())
            if not is_over and (self._owner is None or self._owner() is None):
                is_over = all(row.done >= row.total for row in rows)
            self._is_over = is_over = is_over or self.engine.is_gone
            self._paint(rows, is_over)
        return not is_over

    def _paint(self, rows: list[_Row], is_over: bool) -> None:
        seconds = time.monotonic() - self._start
        seen = {
            "rows": [_seen(row) for row in rows],
            "seconds": seconds,
            "summary": _summary(rows, seconds),
        }
        try:
            (self._painter.finish if is_over else self._painter.paint)(seen)
        except (OSError, ValueError, WeftError) as error:  # the stream was closed: nobody looks
            ticking.logger.debug("cannot show progress: %r", error)


def _left(states: list[FutureState], wants_data: bool) -> list[FutureState]:
    return unready(states) if wants_data else pending(states)


def _seen(row: _Row) -> dict[str, Any]:
    failed, cancelled, done = row.failed, row.cancelled, row.done  # which is added to last
    row.rate.observe(time.monotonic(), done)
    notes = []
    if row.rate.per_second > 0:
        notes.append(f"{rated(row.rate.per_second)}/s")
    left = row.rate.eta_s(row.total - done) if done < row.total else None
    if left is not None:
        notes.append(f"{lasting(left)} left")
    return {
        "name": row.name,
        "done": done,
        "failed": failed,
        "cancelled": cancelled,
        "total": row.total,
        "note": ", ".join(notes),
    }


def _summary(rows: list[_Row], seconds: float) -> str:
    total, done = sum(row.total for row in rows), sum(row.done for row in rows)
    counts = {
        "failed": sum(row.failed for row in rows),
        "cancelled": sum(row.cancelled for row in rows),
    }
    n_good = done - sum(counts.values())
    names = ", ".join(row.name for row in rows[:3]) + (", ..." if len(rows) > 3 else "")
    count = f"{total}" if n_good >= total else f"{n_good} of {total}"
    text = f"{count} task{'' if total == 1 else 's'} of {names} done in {lasting(seconds)}"
    if seconds > 0 and n_good:
        text += f" ({rated(n_good / seconds)}/s)"
    return text + "".join(f", {n} {what}" for what, n in counts.items() if n)
