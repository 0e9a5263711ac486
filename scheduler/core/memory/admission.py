"""Room in bytes: root tasks stop while what they make would only wait to be read.

A worker has a backlog in time, and one in bytes. A task with large results that lets no input go
is a *root*. It adds its result to the worker until that is read. A reader that is at the worker,
too, runs right after its root, because the order is depth first, so such pairs add little however
many there are. Other roots only pile up there: their readers are not known yet, or wait for others,
or clients want the results. So a worker whose threads all have a task is refused roots while what
it has is expected to add more than `STOCK_SHARE` of its memory, and it has two for each thread: it
is *stocked*. A free thread always gets one, so no thread waits longer than for a message.

A worker that is stocked has no room (`WorkerHandle.backlog_ns` is 0) until something changes there.
A task that is refused goes back to its place, the first of its queue. What is before it in that
order, the readers of what is there, has gone out before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ..invariants.checking import differences
from ..records.peers import WorkerHandle
from .full import decide_worker_with_memory, is_let_go, sum_expected
from .records import Memory, expected_at, memory_of

if TYPE_CHECKING:
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState

#: The part of a worker's memory that expected results fill while its threads are busy.
STOCK_SHARE: Final = 1 / 16
#: Roots for each thread that a worker may have all the same.
N_PER_THREAD: Final = 2
#: Inputs that are looked at to see whether a task is a root.
MAX_INPUTS_SEEN: Final = 4


def place(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> WorkerHandle | None:
    """Return the worker for a task for which `ws` has room; None = that is stocked from now on.

    A root whose inputs are at a worker that is stocked goes to the one with room.
    """
    if task.dependencies:
        best = decide_worker_with_memory(state, task, ws)
        if best is not ws and _admits(state, best, task):
            return best
    return ws if _admits(state, ws, task) else None


def _admits(state: SchedulerState, ws: WorkerHandle, task: SchedulerTask) -> bool:
    """Return whether a worker may have a task by its memory; if not, it is stocked from now on."""
    nbytes = task.group.prefix.result_nbytes
    if not nbytes or not ws.memory_limit or ws.n_busy < ws.nthreads or not _is_root(task):
        return True
    room = max(int(STOCK_SHARE * ws.memory_limit), N_PER_THREAD * ws.nthreads * nbytes) - nbytes
    expected = expected_at(state, ws)
    if expected.nbytes <= room:
        return True
    sum_expected(state, ws)
    if expected.nbytes <= room:
        return True
    ws.backlog_ns = 0
    memory_of(state).stocked[ws] = None
    state.busy[Memory] = None
    state.touched[ws] = None
    return False


def _is_root(task: SchedulerTask) -> bool:
    return not any(map(is_let_go, islice(task.dependencies, MAX_INPUTS_SEEN)))


def take_stock(state: SchedulerState) -> None:
    """Let workers that are stocked have more, if something has changed there."""
    stocked = memory_of(state).stocked
    for ws in [ws for ws in stocked if ws in state.touched]:
        del stocked[ws]
        ws.backlog_ns = ws.usual_backlog_ns


def forget_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    """Forget a worker that is gone."""
    memory_of(state).stocked.pop(ws, None)
    ws.backlog_ns = ws.usual_backlog_ns


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
STOCK_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[Any]]]] = {
    "stocked lists the workers without a backlog": lambda s: differences(
        memory_of(s).stocked,
        [ws for ws in s.workers.values() if ws.backlog_ns != ws.usual_backlog_ns],
    ),
    "a worker that is stocked has a task for each thread": lambda s: [
        ws for ws in memory_of(s).stocked if ws.n_busy < ws.nthreads and ws not in s.touched
    ],
    "memory is busy while a worker is stocked": lambda s: [
        ws for ws in memory_of(s).stocked if Memory not in s.busy
    ],
}
