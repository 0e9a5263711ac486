"""A journal for the tests of arrays: it commits what a board gives it, and reads it again."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from weft.protocol.array_rows import ArrayRows
from weft.scheduler.core.arrays.records import CHUNK, STATES
from weft.scheduler.core.events import Event, SchedulerTick
from weft.scheduler.core.journal.entries import (
    JobAdded,
    JobChanged,
    JobEnded,
    JobForgotten,
    JobsRead,
    JournalRead,
    JournalWritten,
    ReadJobs,
    RowEnded,
    RowsChanged,
    WriteJournal,
)

from ...builders import Board


class DiskBoard(Board):
    """A board that gives a disk what is to be written or read."""

    def __init__(self, disk: Disk, **options: Any) -> None:
        super().__init__(**options)
        self.disk = disk

    def _play(self, event: Event) -> None:
        n = len(self.actions)
        super()._play(event)
        new = self.actions[n:]
        self.disk.left += [a for a in new if isinstance(a, (WriteJournal, ReadJobs))]


class Disk:
    """What is committed."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobAdded] = {}
        #: {key: how it has ended}
        self.ended: dict[str, JobEnded] = {}
        self.chunks: dict[str, dict[int, bytes]] = {}
        self.kept: dict[str, dict[int, RowEnded]] = {}
        #: why nothing can be written; "" = it can
        self.error = ""
        #: what a board has given, and is not committed yet
        self.left: list[WriteJournal | ReadJobs] = []

    def board(self, epoch: int = 7, **options: Any) -> DiskBoard:
        """Return the board of a scheduler that begins with what is committed."""
        self.left = []
        board = DiskBoard(self, epoch=epoch, **options)
        board.play(SchedulerTick(journal=[self.read()]))
        return board

    def read(self) -> JournalRead:
        """Return what a scheduler begins with."""
        jobs = [job for key, job in self.jobs.items() if key not in self.ended]
        arrays = {job.key: dict(self.chunks.get(job.key, {})) for job in jobs if is_array(job)}
        ended = {key: end.state for key, end in self.ended.items()}
        needed = dict.fromkeys(key for job in jobs for key in job.dependencies)
        found = ((key, self.ended[key].result) for key in needed if key in self.ended)
        results = {key: result for key, result in found if result is not None}
        return JournalRead(jobs=jobs, arrays=arrays, ended=ended, results=results)

    def commit(self, board: Board, n: int = sys.maxsize) -> None:
        """Commit all that there is, or the first of it, and report it."""
        while self.left and n:
            n -= 1
            action = self.left.pop(0)
            if isinstance(action, ReadJobs):
                board.play(SchedulerTick(journal=[self.read_again(action)]))
            else:
                self.apply(action)
                board.play(SchedulerTick(journal=[JournalWritten(action.number, self.error)]))

    def apply(self, action: WriteJournal) -> None:
        """Commit a batch."""
        for entry in () if self.error else action.entries:
            if isinstance(entry, JobAdded):
                self.jobs.pop(entry.key, None)  # it is behind those that it may read
                self.jobs[entry.key] = entry
                self.ended.pop(entry.key, None)
            elif isinstance(entry, JobEnded):
                self.ended[entry.key] = entry
            elif isinstance(entry, JobChanged):
                job = self.jobs[entry.key]
                self.jobs[entry.key] = replace(job, options=entry.options)
            elif isinstance(entry, JobForgotten):
                del self.jobs[entry.key]
                self.ended.pop(entry.key, None)
            elif isinstance(entry, RowsChanged):
                if entry.is_new:
                    self.chunks[entry.key], self.kept[entry.key] = {}, {}
                kept = self.kept.setdefault(entry.key, {})
                chunks = self.chunks.setdefault(entry.key, {})
                for position, code in entry.states.items():
                    kept.pop(position, None)
                    number, place = divmod(position, CHUNK)
                    states = chunks.get(number, b"").ljust(place + 1, b"\0")
                    chunks[number] = states[:place] + bytes([code]) + states[place + 1 :]
                kept.update({end.position: end for end in entry.ends})

    def read_again(self, asked: ReadJobs) -> JobsRead:
        """Read a job that is to run again."""
        job = self.jobs[asked.key]
        arrays = {job.key: dict(self.chunks.get(job.key, {}))} if is_array(job) else {}
        return JobsRead(asked, JournalRead(jobs=[replace(job)], arrays=arrays))

    def states(self, key: str = "a") -> str:
        """Return the first letters of the committed states of rows; "-" = it has not ended."""
        n = ArrayRows(self.jobs[key].options["array"]).n
        chunks = self.chunks.get(key, {})
        codes = b"".join(
            chunks.get(i // CHUNK, b"").ljust(CHUNK, b"\0") for i in range(0, n, CHUNK)
        )
        return "".join("-" if code == 0 else STATES[code][0] for code in codes[:n])


def is_array(job: JobAdded) -> bool:
    return "array" in job.options
