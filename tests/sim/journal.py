"""The journal of the scheduler: what is committed outlives each start, and writes fail at times.

In a part of the runs. What these runs need is drawn from a source of chance of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from weft.protocol.wire.options import DONE, TaskOptions
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal.entries import (
    PENDING,
    CategoryLearned,
    EndsRead,
    JobAdded,
    JobChanged,
    JobEnded,
    JobsRead,
    JournalRead,
    JournalWritten,
    QueueChanged,
    ReadEnds,
    ReadJobs,
    RowsChanged,
    WriteJournal,
)
from weft.scheduler.core.journal.jobs import MADE, journal_of

from .client_process import USERS
from .graphs import unpacked

if TYPE_CHECKING:
    from weft.protocol.wire.failure import Failure
    from weft.protocol.wire.payload import Blob
    from weft.scheduler.core.state import SchedulerState

    from .graphs import Spec
    from .scheduler_node import SchedulerNode
    from .simulation import Simulation

#: Share of the runs with a journal, and of their submissions that are detached.
P_JOURNAL = 0.25
P_DETACHED = 0.4
P_RECURRING_DETACHED = 0.8
#: Share of the writes that fail, in some of these runs.
FAULTS = (0.0, 0.0, 0.2)
#: ... and of the reads.
P_READ_FAILS = 0.1
MAX_DELAY_S = 0.2
#: A user has a job run again after such a share of the commits.
P_AGAIN = 0.1


class Recorded:
    """What is recorded of one job."""

    def __init__(self, added: JobAdded) -> None:
        self.added = added
        self.state = PENDING
        self.result: Blob | None = None
        self.failure: Failure | None = None


@dataclass(eq=False)
class _Write:
    """Entries that are being written, and for whom."""

    node: SchedulerNode
    core: SchedulerState
    action: WriteJournal


class SimulatedJournal:
    """The database of a run, and the threads of all starts of the scheduler that write it."""

    def __init__(self, seed: int, sim: Simulation) -> None:
        self._sim = sim
        self._rng = rng = Random(f"journal of {seed}")
        are_jobs = sim.recurring.are_some or sim.arrays.are_some
        self.is_there = rng.random() < P_JOURNAL or are_jobs
        self._p_fails = rng.choice(FAULTS)
        #: {key: what is recorded}, in order.
        self.jobs: dict[str, Recorded] = {}
        #: {start of the scheduler: when its last write is done}: its writes keep their order.
        self._last: dict[SchedulerNode, float] = {}
        #: All that is being written, in order.
        self._writes: dict[_Write, None] = {}
        self.n_failed = 0
        #: {name: None} of the queues that are paused
        self.paused: dict[str, None] = {}
        #: what categories have learned, by name
        self.learned: dict[str, CategoryLearned] = {}
        #: {key: None} of what was submitted as a job.
        self.detached: dict[str, None] = {}
        #: {key: None} of jobs that a user had run again
        self.again: dict[str, None] = {}
        #: ... and that a user has submitted again
        self.anew: dict[str, None] = {}

    # -- the scheduler's side ---------------------------------------------------------------------
    def read(self, node: SchedulerNode) -> SchedulerTick:
        """Return the event with which a scheduler begins.

        What it has had written itself, before it began again, is written first. What is left of one
        that was killed never will be: it was killed between two commits.
        """
        cut: dict[SchedulerNode, None] = {}
        for write in list(self._writes):
            if write.node is node:
                self._try(write)
            elif not write.node.is_alive:
                del self._writes[write]
                if write.node not in cut and self._rng.random() < 0.5:
                    self._apply(write.action.entries)
                else:
                    cut[write.node] = None
        self._sim.arrays.note_known(node)
        kept = [job for job in self.jobs.values() if job.state in (PENDING, MADE)]
        done = {
            key: job.result
            for key, job in self.jobs.items()
            if job.state == DONE and job.result is not None
        }
        if any("cron" in job.added.options for job in kept):
            self._sim.world.probes["recurring: read by the next scheduler"] += 1
        if any("array" in job.added.options for job in kept):
            self._sim.world.probes["array: read by the next scheduler"] += 1
        needed = {key for job in kept for key in job.added.dependencies}
        read = JournalRead(
            jobs=[job.added for job in kept],
            made={job.added.key: None for job in kept if job.state == MADE},
            ended={k: job.state for k, job in self.jobs.items() if job not in kept},
            paused=[*self.paused],
            learned=[*self.learned.values()],
            results={key: result for key, result in done.items() if key in needed},
            arrays=self._chunks_of(job.added for job in kept),
        )
        return SchedulerTick(journal=[read])

    def check_users(self, core: SchedulerState) -> None:
        """Check that the jobs which were read have the turns and limits of their users."""
        for key, job in self.jobs.items():
            if (task := core.tasks.get(key)) is not None and job.state in (PENDING, MADE):
                assert task.group.user.name == job.added.user, f"the user of {task}"
                if job.added.user:
                    self._sim.world.probes["job of a user: read by the next scheduler"] += 1

    def write(self, node: SchedulerNode, action: WriteJournal) -> None:
        """Commit entries a little later, in order."""
        write = _Write(node, node.core, action)
        self._writes[write] = None
        self._sim.world.at(self._when_done(node), self._commit, write)

    def _when_done(self, node: SchedulerNode) -> float:
        """Return in how many seconds a thread does what it is given now: it keeps the order."""
        world = self._sim.world
        when = max(world.now + self._rng.random() * MAX_DELAY_S, self._last.get(node, 0.0))
        self._last[node] = when
        return when - world.now

    def read_again(self, node: SchedulerNode, core: SchedulerState, asked: ReadJobs) -> None:
        """Read a job that is to run again a little later, in order with what is written."""
        self._sim.world.at(self._when_done(node), self._report_again, node, core, asked)

    def _report_again(self, node: SchedulerNode, core: SchedulerState, asked: ReadJobs) -> None:
        if not node.when_awake(self._report_again, node, core, asked):
            return
        read = JournalRead()
        found: dict[str, None] = {}
        needed = [asked.key]
        for key in needed:
            job = self.jobs.get(key)
            if job is None:
                node.report(core, JobsRead(asked, JournalRead(), f"no job {key}"))
                return
            if job.result is not None:
                read.results[key] = job.result
            elif job.state not in (PENDING, MADE) and key not in found:
                found[key] = None
                needed += job.added.dependencies
        self.again |= found
        read.jobs = [job.added for key, job in self.jobs.items() if key in found]
        read.arrays = self._chunks_of(read.jobs)
        node.report(core, JobsRead(asked, read))

    def read_ends(self, node: SchedulerNode, core: SchedulerState, asked: ReadEnds) -> None:
        """Read how jobs have ended a little later, in order with what is written."""
        self._sim.world.at(self._when_done(node), self._report_ends, node, core, asked)

    def _report_ends(self, node: SchedulerNode, core: SchedulerState, asked: ReadEnds) -> None:
        if not node.when_awake(self._report_ends, node, core, asked):
            return
        if self._rng.random() < P_READ_FAILS:
            node.report(core, EndsRead(asked, problem="the database is locked"))
            return
        read = EndsRead(asked)
        n_read = self._rng.randint(1, len(asked.keys))
        read.rest = asked.keys[n_read:]
        for key in asked.keys[:n_read]:
            job = self.jobs.get(key)
            if job is not None and job.state not in (PENDING, MADE):
                self._sim.world.probes[f"job read again: {job.state}"] += 1
                end = JobEnded(key, job.state, job.failure, job.result)
                read.ends.append((end, job.added.spec_hash))
        node.report(core, read)

    def _chunks_of(self, jobs: Iterable[JobAdded]) -> dict[str, dict[int, bytes]]:
        """Return the states on record of the rows of those that are arrays."""
        chunks = self._sim.arrays.chunks
        return {job.key: dict(chunks.get(job.key, {})) for job in jobs if "array" in job.options}

    def _commit(self, write: _Write) -> None:
        """Commit entries, and those before them: two times that are equal may be rounded."""
        if not write.node.when_awake(self._commit, write):
            return
        for first in [one for one in self._writes if one.node is write.node]:
            if write not in self._writes:
                break
            error = self._try(first)
            write.node.report(first.core, JournalWritten(first.action.number, error))
        self._retry_one(write.node)

    def _try(self, write: _Write) -> str:
        """Commit entries, or return why not."""
        del self._writes[write]
        if write.node is not self._sim.scheduler:
            return "another scheduler has the state directory"
        if self._rng.random() < self._p_fails and not self._sim.is_healed:
            self._sim.world.probes["write of the journal fails"] += 1
            self.n_failed += 1
            return "the disk is full"
        self._apply(write.action.entries)
        return ""

    def _apply(self, entries: Iterable[object]) -> None:
        for entry in entries:
            if isinstance(entry, JobAdded):
                self._sim.world.probes["job recorded"] += 1
                is_run = "run_of" in entry.options
                assert not is_run or entry.key not in self.jobs or entry.key in self.again, (
                    f"run {entry.key} is made twice"
                )
                assert is_run or entry.user == USERS.get(entry.client, ""), entry
                self._check_anew(entry.key)
                self.jobs[entry.key] = Recorded(entry)
                if "cron" in entry.options:  # perhaps once more, and its runs with it
                    runs = (job.added for job in self.jobs.values())
                    self.again |= {
                        run.key: None for run in runs if run.options.get("run_of") == entry.key
                    }
            elif isinstance(entry, JobChanged):
                self._sim.world.probes["recurring: recorded how far it is"] += 1
                job = self.jobs.get(entry.key)
                if job is not None and job.state == PENDING:
                    job.added = replace(job.added, options=entry.options)
            elif isinstance(entry, RowsChanged):
                self._sim.arrays.apply(entry)
            elif isinstance(entry, JobEnded):
                self._end(entry)
            elif isinstance(entry, CategoryLearned):
                self._sim.world.probes["category recorded"] += 1
                self.learned[entry.name] = entry
            elif isinstance(entry, QueueChanged):
                self._sim.world.probes["queue recorded"] += 1
                self.paused.pop(entry.name, None)
                if entry.is_paused:
                    self.paused[entry.name] = None

    def _end(self, end: JobEnded) -> None:
        job = self.jobs.get(end.key)
        if job is None or job.state not in (PENDING, MADE):
            return  # its beginning could not be recorded
        job.state = MADE if end.is_made else end.state
        job.result, job.failure = end.result, end.failure
        self._sim.arrays.check_end(end.key, end.state)
        self._check_conditions(job.added, end)
        self._sim.world.probes[f"job {job.state}"] += 1
        if end.result is not None:
            value = self._sim.graph.by_key[end.key].value
            assert unpacked(end.result) == value, f"job {end.key} has a wrong value"

    def _check_anew(self, key: str) -> None:
        """Check that a job which is done begins anew for a user only, not for a client.

        One that has ended badly also runs again with a call that reads it.
        """
        job = self.jobs.get(key)
        if job is not None and job.state == DONE:
            self._sim.world.probes["job begins anew"] += 1
            assert key in self.again or key in self.anew, f"job {key} runs again"

    def _check_conditions(self, added: JobAdded, end: JobEnded) -> None:
        """Check that a job was not cancelled for the want of one that is on record."""
        for how, key in added.options.get("conditions", ()):
            if key in self.jobs:
                self._sim.world.probes["job behind another on record"] += 1
                unknown = f"it was to run when {key} is {how}, and that is not known"
                assert unknown not in str(end.failure), end

    # -- users ------------------------------------------------------------------------------------
    def _retry_one(self, node: SchedulerNode) -> None:
        """Perhaps have a job run again that has ended badly."""
        ended = [key for key, job in self.jobs.items() if job.state not in (PENDING, MADE, DONE)]
        if not ended or node is not self._sim.scheduler or self._rng.random() >= P_AGAIN:
            return
        key = self._rng.choice(ended)
        if key not in journal_of(node.core).jobs:
            self._sim.world.probes["job runs again"] += 1
            self.again[key] = None
            self._sim.arrays.note_again(key)
            node.retry_job(key)

    def detach(self, specs: list[Spec], options: TaskOptions) -> TaskOptions:
        """Return the options of some tasks, perhaps detached."""
        share = 1.0 if options.array else P_RECURRING_DETACHED if options.cron else P_DETACHED
        if not self.is_there or self._rng.random() >= share:
            return options
        known = {**self.jobs, **journal_of(self._sim.scheduler.core).jobs}
        others = [d.key for spec in specs for d in spec.dependencies]
        others += [key for _, key in options.conditions]
        if any(key not in known for key in others) or any(spec.scattered for spec in specs):
            return options
        for spec in specs:
            if spec.key in self.detached:
                self.anew[spec.key] = None
            # It fails if what it reads has ended badly, or if it cannot be recorded.
            self._sim.cancelled[spec.key] = None
            self._sim.forced[spec.key] = None
            self.detached[spec.key] = None
        return options.changed(detached=True)

    # -- the end ----------------------------------------------------------------------------------
    def check_at_rest(self) -> None:
        """Check that each recorded job has ended."""
        pending = [key for key, job in self.jobs.items() if job.state == PENDING]
        assert not pending, f"jobs are recorded and have not ended: {pending}"

    def forget_all(self) -> None:
        """Check that each job has ended, and let go of results that are kept, as `forget_job`."""
        self.check_at_rest()
        keys = [key for key, job in self.jobs.items() if job.state == MADE]
        if keys:
            self._sim.scheduler.forget_jobs(keys)
            self.jobs = {}
