"""Lets values leave the memory of a worker while it is short, and come back when they are read.

A thread measures and asks the plan (`core/spill_plan.py`); two more write. The event loop touches
no file, and neither do threads of tasks, but to read their inputs. A thread of tasks that has added
to a memory which is nearly full waits between two tasks, as long as room is being made: what is
assigned here may be more than fits, and arrives faster than a disk writes.

What cannot be pickled, actors, small values and what running tasks read stay. Where the disk fails,
all stays, and one line says so; it is tried again later. A value that is not in its file any more
counts as lost: the scheduler has it computed again.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

from ...protocol.host.memory import trim_heap
from ...protocol.values.staying import Staying
from ...protocol.wording import sized
from ..policy import Fractions
from .core.spill_plan import AWAITED, FREE, IN_USE, SpillPlan
from .spill_files import DiskFailed, SpillFolder
from .store import Store

__all__ = ["Spiller"]

logger: Final = logging.getLogger("weft.worker")

#: Values that are written at a time.
_N_WRITERS: Final = 2
#: How often the process is measured: while it is small, and else.
_CALM_S: Final = 0.25
_LOOK_S: Final = 0.05
#: It is small below this part of the target. Above it, values are reported to be in excess: copies
#: that other workers have are dropped before anything is written.
_NEAR: Final = 0.75
#: A status is sent when at least this part of the memory limit has left since the last one.
_REPORT_PART: Final = 1 / 16
#: The C library is asked for what it keeps at most so often.
_TRIM_S: Final = 1.0
#: Guards those who wait for room against a bug of weft.
_MOST_WAIT_S: Final = 30.0


class Spiller:
    """The threads that spill.

    Args:
        store: the values.
        fractions: when to write, and when to pause.
        folder: of the files; made when it is needed. None = nothing is written.
        max_nbytes: of all files.
        in_use: returns the attempts that running tasks read; called on a thread of this object.
        is_awaited: whether a task that waits here reads the value of an attempt; None = the value
            is dropped soon. Likewise.
        resident: returns the bytes of this process; 0 = not known, or it is shared.
        changed: called on a thread of this object, when the scheduler is to get a status.
        pressed: likewise, with whether nothing that adds is to begin.
    """

    def __init__(
        self,
        store: Store,
        fractions: Fractions,
        folder: Path | None,
        max_nbytes: float,
        *,
        in_use: Callable[[], Collection[int]],
        is_awaited: Callable[[int], bool | None],
        resident: Callable[[], int],
        changed: Callable[[], object],
        pressed: Callable[[bool], object],
    ) -> None:
        self._store = store
        self._events: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._folder = None if folder is None else SpillFolder(folder, self._remove_later)
        self.plan = SpillPlan(store.memory_limit, fractions, max_nbytes)
        self._in_use = in_use
        self._is_awaited = is_awaited
        self._resident = resident
        self._changed = changed
        self._pressed = pressed
        self._used: Collection[int] = ()
        #: set while nobody has to wait
        self._room = threading.Event()
        self._room.set()
        #: one who adds waits for the next look, to be told whether there is room
        self._is_asked = False
        #: of the two above
        self._asking = threading.Lock()
        self._is_pressed = False
        self.thread = threading.Thread(target=self._run, name="weft-spill", daemon=True)
        self._writers: ThreadPoolExecutor | None = None
        self._is_closed = False
        #: an event wakes the thread already
        self._is_woken = False
        self._trimmed_at = 0.0
        #: what the last status said: paused, the bytes that had left, and that some are in excess
        self._reported = (False, 0, False)
        self._is_full = False
        #: the last measured size of this process
        self._last_resident = 0
        #: see `Store.watched`
        self._watched = 0

    @property
    def is_paused(self) -> bool:
        """Whether this worker takes no tasks until there is room."""
        return self.plan.is_paused

    @property
    def excess_nbytes(self) -> int:
        """The bytes of values that should leave, before any are written."""
        return int(max(self._store.nbytes - _NEAR * self.plan.target, 0))

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Return bytes: of values on disk, written and read in all, and of those that cannot leave.

        For any thread.
        """
        folder, store = self._folder, self._store
        stuck = sum(map(store.size, list(self.plan.stuck)))
        if folder is None:
            return 0, 0, 0, stuck
        return store.spilled_nbytes, folder.n_written, folder.n_read, stuck

    @property
    def writing(self) -> tuple[int, int]:
        """The bytes that are on their way to disk, and `SpillFolder.write_rate`. For any thread."""
        rate = 0 if self._folder is None else self._folder.write_rate
        return sum(list(self.plan.writing.values())), rate

    def take_times(self) -> list[tuple[float, float, int, bool]]:
        """Return `SpillFolder.times` since the last call. For any thread."""
        times = self._folder.times if self._folder is not None else ()
        return [times.popleft() for _ in range(len(times))] if times else []

    def start(self) -> None:
        """Begin to watch; not called if there is no limit."""
        store, plan = self._store, self.plan
        store.watched = self._watched = int(min(plan.target, plan.spill, store.memory_limit))
        store.relieve = self.relieve
        store.note_full = self.wake
        store.has_room = self._has_room
        self.thread.start()

    def relieve(self, values: list[Any]) -> None:
        """Have room made, and wait for it if memory is nearly full. For a thread between tasks.

        It has these values, which it has put into the store, and gives them up. The memory is
        looked at before it goes on: the thread that decides may be late on a busy machine, and what
        is added until it comes is more than there is.
        """
        values.clear()
        if self.plan.is_nearly_full(self._store.nbytes, self._resident()):
            with self._asking:
                if not self._is_closed:
                    self._is_asked = True
                    self._room.clear()
        self.wake()
        self._room.wait(_MOST_WAIT_S)

    def _has_room(self, nbytes: int) -> bool:
        """Return whether so much may be taken for a while; nothing has to leave for that."""
        plan = self.plan
        taken = self._resident() or self._store.nbytes
        return taken + nbytes <= min(plan.spill, plan.pause, self._store.memory_limit)

    def wake(self) -> None:
        """Have the memory looked at now. Any thread."""
        if not self._is_woken:
            self._is_woken = True
            self._events.put(_do_nothing)

    def stop(self) -> None:
        """End the threads; the last one removes all files."""
        self._let_go()
        self._events.put(None)

    def _let_go(self) -> None:
        with self._asking:
            self._is_closed = True
            self._room.set()

    # --- On the thread that decides ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_closed:
                self._look()
                self._wait()
        except Exception:
            logger.exception(
                "a bug of weft: no result leaves the memory of this worker any more",
                extra={"code": "internal-error"},
            )
        finally:
            self._press(is_pressed=False)
            self._let_go()
            self._store.forget_watch()
        if self._writers is not None:
            self._writers.shutdown(cancel_futures=True)
        if self._folder is not None:
            self._folder.close()

    def _wait(self) -> None:
        plan = self.plan
        is_calm = not plan.writing and self._last_resident < plan.target * _NEAR
        with contextlib.suppress(queue.Empty):
            event = self._events.get(timeout=_CALM_S if is_calm else _LOOK_S)
            while event is not None:
                event()
                event = self._events.get_nowait()

    def _look(self) -> None:
        self._is_woken = self._is_asked = False
        store, plan = self._store, self.plan
        self._last_resident = self._resident()
        plan.measured(store.nbytes, self._last_resident)
        now = time.monotonic()
        if plan.is_short:
            store.load = store.load_marking
            if self._folder is not None:
                self._write(self._folder, now)
            if self._last_resident > plan.spill and now - self._trimmed_at > _TRIM_S:
                self._trimmed_at = now
                trim_heap()
        elif not store.files:
            store.load = store.load_plain
            store.marks.clear()
        if (is_pressed := plan.is_pressed and not self._is_closed) is not self._is_pressed:
            self._press(is_pressed=is_pressed)
        with self._asking:
            if is_pressed:
                self._room.clear()
            elif not self._is_asked:  # else the next look answers
                self._room.set()
        self._report()

    def _write(self, folder: SpillFolder, now: float) -> None:
        self._used = frozenset(self._in_use())
        for attempt in self.plan.choose(self, _N_WRITERS - len(self.plan.writing), now):
            if self._writers is None:
                self._writers = ThreadPoolExecutor(_N_WRITERS, "weft-spill")
            self._writers.submit(self._write_one, folder, attempt)

    def _press(self, *, is_pressed: bool) -> None:
        self._is_pressed = is_pressed
        self._store.watched = 0 if is_pressed else self._watched  # 0 = whatever they add
        self._pressed(is_pressed)

    def _report(self) -> None:
        was_paused, left, had_excess = self._reported
        spilled = self._store.spilled_nbytes
        is_moved = abs(spilled - left) > _REPORT_PART * self._store.memory_limit
        has_excess = self.excess_nbytes > 0
        if was_paused != self.plan.is_paused or is_moved or (has_excess and not had_excess):
            self._reported = self.plan.is_paused, spilled, has_excess
            self._changed()
        elif had_excess and not has_excess:
            self._reported = was_paused, left, False

    # See `Values`.

    def in_memory(self) -> list[int]:
        """Return the attempts of values that may be written, oldest first."""
        return self._store.in_memory()

    def size(self, attempt: int) -> int:
        """Return the size of a value in memory; 0 if it is not."""
        return self._store.size(attempt)

    def take_mark(self, attempt: int) -> bool:
        """Take the mark off a value; return whether there was one."""
        return self._store.take_mark(attempt)

    def need(self, attempt: int) -> int:
        """Return how urgently a value is needed in memory."""
        if attempt in self._used:
            return IN_USE
        is_awaited = self._is_awaited(attempt)
        if is_awaited is None:
            return IN_USE
        return AWAITED if is_awaited else FREE

    # --- On the threads that write ----------------------------------------------------------------

    def _write_one(self, folder: SpillFolder, attempt: int) -> None:
        try:
            outcome = self._try_to_write(folder, attempt)
        except Exception:
            logger.exception(
                "a bug of weft: a result cannot be written to %s",
                folder.path,
                extra={"code": "internal-error"},
            )
            outcome = partial(self.plan.stays, attempt)
        self._events.put(outcome)

    def _try_to_write(self, folder: SpillFolder, attempt: int) -> Callable[[], object]:
        """Write a value, and let it leave memory; return what the thread that decides does then."""
        store = self._store
        found = store.to_write(attempt)
        if found is None:
            return partial(self.plan.left, attempt)
        value, blob, file = found
        del found
        if issubclass(type(value), Staying) and value.must_stay:
            return partial(self.plan.stays, attempt)
        is_new = file is None
        if file is None:
            nbytes = store.size(attempt)
            if not self._make_room(folder, nbytes):
                text = (
                    f"the files of this worker take {sized(folder.nbytes)}, --max-spill allows "
                    f"{sized(self.plan.max_nbytes)}, and the next result takes {sized(nbytes)}; "
                    "raise --max-spill, release results, or add workers"
                )
                return partial(self._on_not_taken, attempt, text)
            try:
                file = folder.write(attempt, value if blob is None else None, blob)
            except DiskFailed as error:
                text = (
                    f"they cannot be written to {folder.path.parent}: {error}; make room there, or "
                    "name another folder with --local-directory"
                )
                return partial(self._on_not_taken, attempt, text)
            except BaseException as error:  # of user code
                text = f"{type(error).__name__}: {error}"
                return partial(self._on_unwritable, attempt, text)
        store.replace(attempt, value, file, is_new=is_new)
        # Destructors are user code: they run here, and before the memory is measured again.
        del value, blob
        return partial(self._on_left, attempt)

    def _make_room(self, folder: SpillFolder, nbytes: int) -> bool:
        """Return whether so many bytes may be written; files of values in memory make way."""
        while not self.plan.fits_on_disk(folder.nbytes, nbytes):
            spare = self._store.spare_file()
            if spare is None:
                return False
            spare.remove()
        return True

    # --- Again on the thread that decides ---------------------------------------------------------

    def _on_left(self, attempt: int) -> None:
        self.plan.left(attempt)
        if self._is_full:
            self._is_full = False
            logger.info("results are written to disk again")

    def _on_unwritable(self, attempt: int, text: str) -> None:
        self.plan.stays(attempt)
        logger.debug("a result stays in memory, it cannot be pickled: %s", text)

    def _on_not_taken(self, attempt: int, text: str) -> None:
        self.plan.failed(attempt, time.monotonic())
        if not self._is_full:
            self._is_full = True
            logger.warning("results stay in memory: %s", text, extra={"code": "spill-failed"})

    def _remove_later(self, file: tuple[Path, int]) -> None:
        # On any thread, within a destructor.
        folder = self._folder
        if folder is not None and not self._is_closed:
            self._events.put(lambda: folder.removed(*file))


def _do_nothing() -> None:
    """Wake the thread."""
