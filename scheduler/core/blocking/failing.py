"""Hosts that fail again and again are blocked by themselves, if that is set (`--block-after`).

A failure is blamed on a host only when the same task ends well on another host later. So what a
user's function raises everywhere blocks nobody, nor does a task that ends its worker wherever it
runs. As failures count an exception, a time that is over, a straggler, and the death of a worker
under a running task, once for each death. A death for lack of memory does not: the task needs more
than it was given there. Neither do the end of a process that somebody has asked for, and a worker
that is lost while it is not known how its process has ended.

Any call that ends well on a host breaks its row of failures, also those that are not blamed yet. A
host is blocked after so many in a row, for a time; then it begins anew. The last one that tasks
have is not. The model is the blocklist of Work Queue and TaskVine, which blocks hosts for the same
time, but for each failure of a worker.

Nothing is noted while the limit is 0. What is noted is lost with the scheduler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.deaths import is_of_memory
from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure
from ....protocol.wording import lasting
from ..avoidance.moving import avoid, is_reschedule
from ..feature import Feature
from ..moves.transitions import ACTIVE
from ..records.peers import TAKES_NOTHING, WorkerHandle
from ..records.presence import LostWorker
from ..records.tasks import MEMORY, SchedulerTask
from .feature import MAX_BLOCKED, MAX_REASON_CHARS, block, blocks_of, can_spare

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..state import SchedulerState

#: The user that is named for blocks that no user has set.
BLOCKER: Final = "the scheduler"
#: Tasks whose failures are kept until they end elsewhere, and failures of one: the latest. All are
#: looked at with each report while there are some.
MAX_TASKS: Final = 256
MAX_FAILURES: Final = 8
#: Hosts with failures that are kept: the latest.
MAX_HOSTS: Final = 1000


class FailureRow:
    """The failures on one host since a call has ended well there."""

    __slots__ = ("host", "n_blamed")

    def __init__(self, host: str) -> None:
        self.host = host
        #: how many were blamed on it: their tasks have ended well on other hosts
        self.n_blamed = 0


class HostFailure:
    """One failure on a host: an attempt of a task, or several that a worker's death has ended."""

    __slots__ = ("is_blamed", "row", "why")

    def __init__(self, row: FailureRow, why: str) -> None:
        self.row = row
        self.why = why
        #: it counts in the row
        self.is_blamed = False


class FailingHosts:
    """When hosts are blocked, and their rows of failures."""

    __slots__ = ("for_s", "limit", "rows")

    def __init__(self) -> None:
        self.limit = 0  #: failures in a row after which a host is blocked; 0 = none is
        self.for_s = 900.0  #: ... and for how long, seconds
        #: {host: its row}, of hosts on which something failed since the last call that ended well
        self.rows: dict[str, FailureRow] = {}

    def configure(self, limit: int, for_s: float) -> None:
        """Set after how many failures in a row a host is blocked, and for how long."""
        self.limit, self.for_s = limit, for_s


class HostFailures(dict[SchedulerTask, list[HostFailure]]):
    """{task: its failures, which may be blamed on hosts when it ends}; at most MAX_TASKS."""


def failing_hosts_of(state: SchedulerState) -> FailingHosts:
    """Return what is known of hosts that fail."""
    return state.record(FailingHosts)


def _host_of(ws: WorkerHandle) -> str:
    return ws.host or ws.name


# -- failures --------------------------------------------------------------------------------------
def note_failed(
    state: SchedulerState, task: SchedulerTask, ws: WorkerHandle, why: str, *, moves: bool = False
) -> None:
    """Note that an attempt has failed on a worker; `why` goes on a sentence about the task.

    Its task is processing there. A retry avoids the worker, or it could run there until none is
    left, which would prove nothing; `moves`: the caller gives the task to another one.
    """
    if failing_hosts_of(state).limit:
        _note(state, task, _failure(state, ws, f"{task.group.prefix.name} {why}"))
        if not (moves or task.group.options.gang):
            avoid(state, task, ws)


def _failure(state: SchedulerState, ws: WorkerHandle, why: str) -> HostFailure:
    rows, host = failing_hosts_of(state).rows, _host_of(ws)
    row = rows.get(host)
    if row is None:
        row = rows[host] = FailureRow(host)
        if len(rows) > MAX_HOSTS:
            del rows[next(iter(rows))]
    return HostFailure(row, why)


def _note(state: SchedulerState, task: SchedulerTask, failure: HostFailure) -> None:
    table = state.record(HostFailures)
    found = table.setdefault(task, [])
    found.append(failure)
    del found[:-MAX_FAILURES]
    if len(table) > MAX_TASKS:
        del table[next(iter(table))]


def _on_raised(state: SchedulerState, task: SchedulerTask, _worker: str, failure: Failure) -> None:
    ws = task.worker
    if not failing_hosts_of(state).limit or ws is None or is_reschedule(failure):
        return
    is_exception = failure[0] == "exception" and len(failure) > 4
    raised = f"{failure[3]}: {failure[4]}" if is_exception else failure[0]
    note_failed(state, task, ws, f"raised {raised}")


def _on_died(
    state: SchedulerState,
    lost: LostWorker,
    report: m.WorkerExited,
    running: Collection[SchedulerTask],
) -> None:
    if not failing_hosts_of(state).limit or is_of_memory(report.reason):
        return
    alive = [task for task in running if task.state in ACTIVE]
    if alive:
        why = f"worker {lost.worker.name} died: {report.reason}"
        failure = _failure(state, lost.worker, why)
        for task in alive:
            _note(state, task, failure)


# -- successes -------------------------------------------------------------------------------------
def _on_finished(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsFinished) -> None:
    """Break the row of the host, and blame the failures of these tasks on others."""
    failing = failing_hosts_of(state)
    if not failing.rows:
        return
    host, table = _host_of(ws), state.record(HostFailures)
    failing.rows.pop(host, None)
    if not table:
        return
    attempts = {*message.attempts}
    for task in [t for t in table if t.state == MEMORY and t.attempt in attempts]:
        for failure in table.pop(task):
            if failure.row.host != host:
                _blame(state, failure)


def _blame(state: SchedulerState, failure: HostFailure) -> None:
    failing, row = failing_hosts_of(state), failure.row
    if failure.is_blamed or failing.rows.get(row.host) is not row:
        return
    failure.is_blamed = True
    row.n_blamed += 1
    blocks = blocks_of(state)
    if row.n_blamed < failing.limit or row.host in blocks or len(blocks) >= MAX_BLOCKED:
        return
    what = f"{row.n_blamed} failures in a row, of calls that ended well elsewhere"
    if not can_spare(state, row.host, TAKES_NOTHING):
        if row.n_blamed == failing.limit:
            text = f"{what}, but tasks have no other host: it is not blocked"
            state.log("warning", f"host {row.host}: {text}", "host-failing")
        return
    del failing.rows[row.host]
    reason = " ".join(f"{what}; the last one: {failure.why}".split())[:MAX_REASON_CHARS]
    for_s = failing.for_s
    block(state, [row.host], BLOCKER, reason, max(1, round(for_s * 1000)), is_automatic=True)
    text = f"host {row.host} is blocked for {lasting(for_s)}: {reason}"
    state.log("warning", f"{text}. 'weft unblock {row.host}' takes that back", "host-failing")
    state.report("host-blocked", host=row.host, reason=reason, seconds=for_s)


FEATURE: Final = Feature(
    name="failing hosts",
    records=(FailingHosts, HostFailures),
    notes=(HostFailures,),
    invariants={
        "failures of hosts are noted of few tasks, all known": lambda s: [
            *(task for task in s.record(HostFailures) if s.tasks.get(task.key) is not task),
            *[*s.record(HostFailures)][MAX_TASKS:],
        ],
        "rows of failures are by host, while hosts may be blocked": lambda s: [
            host
            for host, row in failing_hosts_of(s).rows.items()
            if row.host != host or not failing_hosts_of(s).limit
        ],
    },
    attempt_raised=(_on_raised,),
    worker_died=(_on_died,),
    attempts_finished=(_on_finished,),
)
