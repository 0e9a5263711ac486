"""The time of a worker's threads by activity, and other measurements of its process, as numbers.

A thread counts at the borders of chunks, and when it begins and ends to rest: all its time is in
one of the activities, so that they add up to the time since the start. Unpickling of arguments and
pickling of results happen inside each task; they are measured for one task per millisecond, and
taken in this proportion for the others. So a long task is measured exactly, and of many short ones
the proportion is known, while most of them cost nothing more.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ...protocol.host.process_role import is_worker_process
from ...protocol.metrics import Histogram
from ...protocol.reported import ACTIVITIES, OF_WORKERS, n_numbers, numbers_of
from ...protocol.values.serialize import loads_arguments
from ...protocol.wire.columns import MAX_SIZE
from ...protocol.wire.payload import Blob
from ..core.tasks import WorkerTask
from ..data.packing import pack_to_ride_along
from .usage import ThreadUsage

_COMPUTE, _DESERIALIZE, _SERIALIZE, _FETCH_WAIT, _IDLE, _OTHER = range(len(ACTIVITIES))
#: A task is measured when the last one that was is older than this.
SAMPLE_NS: Final = 1_000_000


class SlotClock:
    """The time of one thread, nanoseconds. Other threads read it at any time."""

    __slots__ = (
        "_clock",
        "_share_packing",
        "_share_unpacking",
        "is_away",
        "is_resting",
        "n_failed",
        "n_finished",
        "next_sample",
        "packing",
        "since",
        "totals",
        "unpacking",
        "usage",
    )  # fmt: skip

    def __init__(
        self, clock: Callable[[], int] = time.perf_counter_ns, *, is_away: bool = False
    ) -> None:
        self._clock = clock
        #: its slot has no seat: no time passes
        self.is_away = is_away
        #: by activity, up to `since`
        self.totals = [0] * len(ACTIVITIES)
        self.since = clock()
        #: it does nothing since then; else it runs a chunk
        self.is_resting = True
        self.n_finished = self.n_failed = 0
        #: a task that begins then, or later, is measured
        self.next_sample = 0
        #: the times of the task that is being measured
        self.unpacking = self.packing = 0
        #: the part of a task's time, as last measured
        self._share_unpacking = self._share_packing = 0.0
        self.usage = ThreadUsage()

    def begin(self, now: int, fetched_us: int) -> None:
        """End a rest; its last part was a wait for inputs."""
        rested = now - self.since
        waited = min(rested, fetched_us * 1000)
        self.totals[_FETCH_WAIT] += waited
        self.totals[_IDLE] += rested - waited
        self.since = now
        self.is_resting = False
        if now >= self.usage.read_at:
            self.usage.read(now)

    def load(self, now: int) -> None:
        """Count the time since the last border as that of the unpickling of a function."""
        self.totals[_DESERIALIZE] += now - self.since
        self.since = now
        self.usage.read(now)

    def run(self, now: int, n_finished: int, n_failed: int, first_ns: int) -> None:
        """Count tasks that ran since the last border; `first_ns` is the duration of the first."""
        if self.next_sample < 0:  # the first one was measured
            self._share_unpacking = min(self.unpacking / (first_ns or 1), 1.0)
            self._share_packing = min(self.packing / (first_ns or 1), 1.0 - self._share_unpacking)
            self.unpacking = self.packing = 0
            self.next_sample = now + SAMPLE_NS
        ran = now - self.since
        unpacking = int(ran * self._share_unpacking)
        packing = int(ran * self._share_packing)
        totals = self.totals
        totals[_DESERIALIZE] += unpacking
        totals[_SERIALIZE] += packing
        totals[_COMPUTE] += ran - unpacking - packing
        self.since = now
        if now >= self.usage.read_at:
            self.usage.read(now)
        self.n_finished += n_finished
        self.n_failed += n_failed

    def report(self, now: int) -> None:
        """Count the time since the last border as that of reporting and of taking tasks."""
        self.totals[_OTHER] += now - self.since
        self.since = now

    def rest(self, now: int) -> None:
        """Begin a rest."""
        self.report(now)
        self.is_resting = True

    # --- Of slots that give their seats up (see `core/seats.py`) ----------------------------------

    def pause(self, now: int, n_finished: int, n_failed: int) -> None:
        """Count tasks that ran since the last border, and the time of one that waits from now."""
        self.totals[_COMPUTE] += now - self.since
        self.since = now
        self.n_finished += n_finished
        self.n_failed += n_failed

    def leave_seat(self, now: int) -> None:
        """Stop, because the slot has no seat any more."""
        self.totals[_IDLE if self.is_resting else _COMPUTE] += max(now - self.since, 0)
        self.is_away = True

    def take_seat(self, now: int) -> None:
        """Go on."""
        self.since = now
        self.is_away = False

    # --- Of a task that is measured ---------------------------------------------------------------

    def unpack(self, *args: Any) -> Any:
        """Do `loads_arguments`, and measure it."""
        start = self._clock()
        try:
            return loads_arguments(*args)
        finally:
            self.unpacking += self._clock() - start

    def unpack_inputs(
        self, args: Any, load: Callable[[int], Any], inputs: Iterable[WorkerTask]
    ) -> Any:
        """Do the same for a task with inputs, some of which may be packed as they came."""
        start = self._clock()
        try:
            return loads_arguments(args, [load(record.attempt) for record in inputs])
        finally:
            self.unpacking += self._clock() - start

    def pack(self, value: object, key: str, wanted: int) -> tuple[Blob | None, int]:
        """Do `pack_to_ride_along`, and measure it."""
        start = self._clock()
        try:
            return pack_to_ride_along(value, key, wanted)
        finally:
            self.packing += self._clock() - start

    def read(self, now: int) -> list[int]:
        """Return the totals up to now; what is going on counts as compute, or as idle."""
        totals = [*self.totals]
        if self.is_away:
            return totals
        totals[_IDLE if self.is_resting else _COMPUTE] += max(now - self.since, 0)
        return totals


class Transfers:
    """Counts of transfers, each for the two directions: in, out. For the loop's thread only."""

    __slots__ = ("large_nbytes", "large_us", "n", "n_failed", "nbytes", "seconds")

    def __init__(self) -> None:
        self.nbytes, self.n, self.n_failed = [0, 0], [0, 0], [0, 0]
        #: of fetches that show the bandwidth (`data/peers.py`): bytes, and how long they took
        self.large_nbytes = self.large_us = 0
        #: durations of the fetches that came in
        self.seconds = Histogram()


class WorkerMeter:
    """Puts together what a worker reports about itself. For the loop's thread only."""

    def __init__(self, clocks: Sequence[SlotClock], transfers: Transfers) -> None:
        self._clocks = clocks
        self._transfers = transfers
        self._lag = Histogram()
        #: as reported last, microseconds
        self._activities = [0] * len(ACTIVITIES)

    def note_lag(self, lag_s: float) -> None:
        """Count how late the event loop was."""
        self._lag.add(int(max(lag_s, 0.0) * 1e6))

    def smooth(self, found: list[int]) -> list[int]:
        """Return the activities to report; none goes back, and their sum stays that of the time.

        What a thread does now is known for certain when it ends: a wait for inputs was counted as
        idle until then. The others grow more slowly until such a difference is made up for.
        """
        last = self._activities
        growth = [max(n - before, 0) for n, before in zip(found, last, strict=True)]
        total = max(sum(found) - sum(last), 0)
        if total < sum(growth):
            growth = [n * total // sum(growth) for n in growth]
        self._activities = [n + before for n, before in zip(growth, last, strict=True)]
        return self._activities

    def numbers(
        self,
        states: Sequence[int],
        n_results: int,
        managed: int,
        resident: int,
        limit: int,
        spilled: Sequence[int] = (0, 0, 0, 0),
    ) -> list[int]:
        """Return the list that `protocol/reported.py` declares.

        Args:
            states: the numbers of tasks and copies by state.
            n_results: values in the store.
            managed: their bytes.
            resident: bytes of the process; 0 = not known.
            limit: the memory limit in bytes, 0 = none.
            spilled: see `Spiller.counts`.
        """
        now = time.perf_counter_ns()
        read = [clock.read(now) for clock in self._clocks]
        activities = self.smooth([sum(column) // 1000 for column in zip(*read, strict=True)])
        transfers = self._transfers
        is_own = is_worker_process()  # else others share it
        stats = gc.get_stats() if is_own else ()
        found = [
            *states,
            n_results,
            sum(not clock.is_away for clock in self._clocks),
            *activities,
            sum(clock.n_finished for clock in self._clocks),
            sum(clock.n_failed for clock in self._clocks),
            *transfers.nbytes,
            *transfers.n,
            *transfers.n_failed,
            *numbers_of(transfers.seconds),
            *numbers_of(self._lag),
            int(time.process_time() * 1e6) if is_own else 0,
            *([one["collections"] for one in stats] or (0, 0, 0)),
            managed,
            max(resident - managed, 0) if is_own else 0,
            limit,
            *spilled,
        ]
        assert len(found) == n_numbers(OF_WORKERS), "the order is that of the declarations"
        return [min(n, MAX_SIZE) for n in found]
