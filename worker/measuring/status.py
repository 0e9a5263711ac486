"""The numbers that a worker reports about itself with each heartbeat."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from ...protocol.host.memory import taken_nbytes
from ...protocol.reported import OF_WORKERS, n_numbers
from ...protocol.wire.message import Message
from ...protocol.wire.messages import WorkerStatus
from ..core.features.times import disk_report, running_report
from ..slots.activity import Transfers, WorkerMeter
from ..slots.executor import TaskExecutor
from .numbers import NumbersFile

logger = logging.getLogger("weft.worker")


class StatusReporter:
    """Measures one worker. For the loop's thread only."""

    def __init__(self, executor: TaskExecutor, transfers: Transfers) -> None:
        self._executor = executor
        self._meter = WorkerMeter(executor.clocks, transfers)
        self._transfers = transfers
        self._process: psutil.Process | None = None
        self._file: NumbersFile | None = None

    def beat(self, lag_s: float) -> None:
        """Count how late the event loop was; write the numbers if there is a file for them."""
        self._meter.note_lag(lag_s)
        if self._file is not None:
            self._file.write(self.status().numbers)

    def write_to(self, path: Path, name: str) -> None:
        """Write the numbers to this file at each beat, under this name of the worker."""
        self._file = NumbersFile(path, name, n_numbers(OF_WORKERS))

    def close(self) -> None:
        """Write nothing more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def report(self) -> list[Message]:
        """Return the present status; if the scheduler asks for it, what runs and was spilled."""
        state, spiller = self._executor.state, self._executor.spiller
        spilled = [] if spiller is None else spiller.take_times()
        more = (
            running_report(state, self._running()),
            disk_report(state, spilled, time.monotonic()),
        )
        return [self.status(), *(one for one in more if one is not None)]

    def _running(self) -> Iterator[tuple[int, int, int]]:
        """Return the attempt, the slot and the age in microseconds of each that computes now.

        The age is exact to a millisecond: a thread that has run longer begins to count anew.
        """
        now = time.perf_counter_ns()
        for context in list(self._executor.contexts.values()):
            task, seat = context.here.task, context.here.seat
            if task is None or seat is None:
                continue
            clock = self._executor.clocks[seat.slot]
            if not clock.is_away:
                yield task.attempt, seat.slot, max(now - clock.since, 0) // 1000

    def status(self) -> WorkerStatus:
        """Return the present status."""
        executor = self._executor
        state = executor.state
        resident, cpu = taken_nbytes() + executor.children_nbytes(), 0
        try:
            if self._process is None:
                self._process = psutil.Process()
            cpu = round(self._process.cpu_percent(None))
        except (psutil.Error, OSError) as error:  # a task may have used up all file descriptors
            logger.debug("cannot measure this process: %s", error)
        managed = max(0, executor.store.nbytes)
        spiller = executor.spiller
        is_paused = spiller is not None and spiller.is_paused
        spilling, spill_rate = (0, 0) if spiller is None else spiller.writing
        return WorkerStatus(
            state="leaving" if state.is_leaving else "paused" if is_paused else "running",
            nthreads=state.n_seats,
            n_records=len(state.by_key),
            n_ready=state.n_ready,
            managed_nbytes=managed,
            resident_nbytes=resident,
            cpu_percent=cpu,
            numbers=self._meter.numbers(
                executor.counts(),
                len(executor.store),
                managed,
                resident,
                executor.store.memory_limit,
                (0, 0, 0, 0) if spiller is None else spiller.counts,
            ),
            fetched_nbytes=self._transfers.large_nbytes,
            fetched_us=self._transfers.large_us,
            excess_nbytes=0 if spiller is None else spiller.excess_nbytes,
            spilling_nbytes=spilling,
            spill_bytes_per_s=spill_rate,
        )
