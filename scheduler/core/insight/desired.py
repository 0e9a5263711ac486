"""How many workers the present work is worth: what an autoscaler should aim at.

A task needs a part of a thread: its expected duration as a fraction of the target, but never more
than one whole thread. The parts of all tasks that run, or could run now, are added up and divided
by the tasks that one worker runs at a time. So ten thousand tasks of 1 ms ask for two threads if
the target is 5 s, and ten tasks of an hour for ten.

Durations are the measured ones. A function that has finished nothing yet counts as long as the
oldest of its tasks has been running, so a map of long tasks asks for more workers the longer the
first ones take. Queued tasks are not all looked at: a sample of each class gives the mean.

A worker that is paused gets nothing of what is queued: others are desired in its place. The data
that workers hold asks for workers, too: for so many that it fills `FULL` of their memory.

Asked for one pool, it counts the work of that pool alone. A pool is the workers that offer
resources of the same names. Tasks are for it that request some of these and no other, or that
request none, if the pool has none.

A pure function of the state, O(classes + workers); there is no bookkeeping per task. The wait
before a cluster grows or shrinks is the business of the process that scales it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf
from typing import TYPE_CHECKING, Any, Final

from ....protocol.amounts import BESIDE, CORES, MEMORY
from ....protocol.wire.question_arguments import BadArgument, Info, Page
from ..conditions.no_worker_limit import note_adapting
from ..feature import Feature, Question
from ..gangs.seating import n_lacking
from ..job_queues.feature import is_paused, paused_queues_of
from ..records.peers import BARRED, PAUSED, WorkerHandle
from ..records.prefixes import UNKNOWN_DURATION_NS, Prefix
from ..records.tasks import SchedulerTask, TaskClass

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Workers that are closed so stay, and others are wanted in their place.
_GET_NONE: Final = (PAUSED, BARRED, PAUSED | BARRED)
#: Seconds in which the work that is there should be done.
TARGET_S: Final = 5.0
#: A longer target is refused: it would hide all work.
MAX_TARGET_S: Final = 1e6
#: Part of the workers' memory that their results may fill before more workers are desired.
FULL: Final = 0.6
#: Results of less than this in all, in bytes, keep no worker: most of them are with their clients.
SMALL_NBYTES: Final = 1 << 20
#: Queued tasks that are looked at, in one class, and in all.
MAX_SAMPLE: Final = 16
MAX_SAMPLES: Final = 512
#: Lanes of one class from which the sample is taken.
MAX_LANES: Final = 8
#: Running tasks of one worker that are looked at.
MAX_RUNNING: Final = 8
#: Pools whose last worker is remembered.
MAX_POOLS: Final = 100
#: Names of resources that tell no pool from another: each worker offers them.
_COMMON: Final = {CORES, MEMORY, BESIDE}

#: The names of the resources that the workers of a pool offer.
Pool = frozenset[str]


def pool_of(resources: Iterable[str]) -> Pool:
    """Return the pool whose workers offer these resources."""
    return frozenset(resources) - _COMMON


def is_for(task_class: TaskClass, pool: Pool | None) -> bool:
    """Return whether tasks of a class are work of this pool; None is the whole cluster."""
    if pool is None:
        return True
    names = pool_of(name for name, amount in task_class.resources if amount > 0)
    return names <= pool if names else not pool


@dataclass(slots=True)
class WorkerKind:
    """The sort of workers that this cluster has: the next one is expected to be the same."""

    nthreads: int = 1
    memory_limit: int = 0
    resources: dict[str, float] = field(default_factory=dict)

    def n_at_once(self, task_class: TaskClass) -> int:
        """Return how many tasks of a class one such worker runs at a time, at least one."""
        n: float = self.nthreads
        for name, amount in task_class.resources:
            if amount > 0:
                n = min(n, self.resources.get(name, 0.0) // amount)
        return max(1, int(n))


@dataclass(slots=True)
class Aim:
    """The configured target, and the sort of worker that joined last, of all and of each pool."""

    target_s: float = TARGET_S
    kind: WorkerKind = field(default_factory=WorkerKind)
    kinds: dict[Pool, WorkerKind] = field(default_factory=dict)


def aim_of(state: SchedulerState) -> Aim:
    """Return what the number of workers is computed for."""
    return state.record(Aim)


@dataclass(slots=True)
class AtWorkers:
    """Sums over all workers of the figures that change there with each task.

    Attributes:
        n_processing: tasks at workers.
        n_threads_busy: threads that have a task.
        nbytes: of the results that they hold.
        last_progress: when a worker with tasks last finished one, or got one while it was idle.
        n_workers: that the tasks there are worth.
        n_closed: workers that stay, and get none of the tasks that wait.
    """

    n_processing: int
    n_threads_busy: int
    nbytes: int
    last_progress: float
    n_workers: float
    n_closed: int = 0


@dataclass(slots=True)
class Desired:
    """The answer, and its causes."""

    n_workers: int
    #: for the work alone, and for the data alone
    n_for_work: int
    n_for_data: int
    #: tasks that run or could run now; of them, those that no connected worker may run
    n_runnable: int
    n_unrunnable: int
    target_s: float
    at_workers: AtWorkers

    def to_plain(self) -> dict[str, Any]:
        """Return it as a map for an answer."""
        return {
            "desired_workers": self.n_workers,
            "for_work": self.n_for_work,
            "for_data": self.n_for_data,
            "n_runnable": self.n_runnable,
            "n_unrunnable": self.n_unrunnable,
            "target_s": self.target_s,
        }


def desired_workers(
    state: SchedulerState, target_s: float = 0.0, pool: Pool | None = None
) -> Desired:
    """Return how many workers would finish the present work in about the target time.

    Args:
        state: of the scheduler.
        target_s: seconds; 0 = as the scheduler was configured.
        pool: whose workers are counted; None = all.
    """
    target_s = target_s or aim_of(state).target_s
    target_ns = target_s * 1e9
    workers: Collection[WorkerHandle] = state.workers.values()
    staying: Collection[WorkerHandle] = state.staying.values()
    kind = aim_of(state).kind
    if pool is not None:
        workers = [ws for ws in workers if pool_of(ws.resources) == pool]
        staying = [ws for ws in staying if pool_of(ws.resources) == pool]
        kind = aim_of(state).kinds.get(pool, WorkerKind())
    running_ns: dict[Prefix, float] = {}
    found = _look_at_workers(state, workers, target_ns, running_ns)
    n_runnable, n_workers = found.n_processing, found.n_workers
    n_unrunnable = 0
    n_left = MAX_SAMPLES
    for task_class in state.classes.values():
        if not is_for(task_class, pool):
            continue
        tasks: Iterable[SchedulerTask] = ()
        n = 0
        if task_class.queue.n:
            n = task_class.queue.n
            tasks = islice(_sample(task_class), max(1, min(MAX_SAMPLE, n_left)))
        elif task_class.unrunnable:
            waiting: Collection[SchedulerTask] = task_class.unrunnable
            if paused_queues_of(state):
                waiting = [task for task in waiting if not is_paused(state, task)]
            n_unrunnable += len(waiting)
            if staying:
                continue  # one more of the same kind could not run them, or their data counts below
            n = len(waiting)
            tasks = islice(waiting, max(1, min(MAX_SAMPLE, n_left)))
        if n:
            n_runnable += n
            parts = [_part_of(task, target_ns, running_ns) for task in tasks]
            n_left -= len(parts)
            n_workers += n * sum(parts) / len(parts) / kind.n_at_once(task_class)
    if n_runnable > found.n_processing:
        n_workers += found.n_closed
    n_for_work = ceil(round(n_workers, 6))
    if n_runnable or n_unrunnable:
        n_for_work = max(n_for_work, 1)
    if lacking := n_lacking(state, kind.n_at_once, lambda shape: is_for(shape, pool)):
        n_for_work = max(n_for_work, len(staying) + lacking)
    if state.awaits_peers:  # the work is not known before its workers are back
        n_expected = 0 if pool is not None else len(state.kept_members.expected.worker_ids)
        n_for_work = max(n_for_work, len(staying), n_expected)
    waiting_nbytes = 0
    if not pool:  # values of clients, which any worker may take
        waiting_nbytes = sum(count(state) for count in state.features.waiting_nbytes)
    n_for_data = _workers_for_data(found.nbytes + waiting_nbytes, kind)
    n_desired = max(n_for_work, n_for_data)
    return Desired(n_desired, n_for_work, n_for_data, n_runnable, n_unrunnable, target_s, found)


def _look_at_workers(
    state: SchedulerState,
    workers: Iterable[WorkerHandle],
    target_ns: float,
    running_ns: dict[Prefix, float],
) -> AtWorkers:
    """Sum up the workers in one pass, which takes 0.5 ms for 1 000 of them."""
    n_all = n_busy = nbytes = n_closed = 0
    n_workers = 0.0
    last_progress = -inf
    long_since = state.now - UNKNOWN_DURATION_NS / 1e9
    for ws in workers:
        nbytes += ws.nbytes
        n_closed += ws.closed in _GET_NONE
        processing = ws.processing
        if not processing:
            continue
        n, nthreads, progress = len(processing), ws.nthreads, ws.last_progress
        n_all += n
        n_busy += n if n < nthreads else nthreads
        last_progress = progress if progress > last_progress else last_progress
        task = next(iter(processing.values()))
        prefix = task.group.prefix
        occupancy_ns = ws.occupancy_ns
        if prefix.estimate_ns > 2 * task.estimate_ns > 0:
            # It was assigned before its function was measured, and so were those behind it.
            occupancy_ns = occupancy_ns * prefix.estimate_ns // task.estimate_ns
        needed_ns = occupancy_ns if occupancy_ns < n * target_ns else n * target_ns
        if progress < long_since:
            # A thread that is busy for longer than expected counts for as long as it has been.
            busy_ns = (state.now - progress) * 1e9
            counted_ns = busy_ns if busy_ns < target_ns else target_ns
            if nthreads == 1 and prefix.n_finished:
                like_ns = counted_ns
            else:
                like_ns = _n_like(ws, busy_ns, running_ns) * counted_ns
            needed_ns = like_ns if like_ns > needed_ns else needed_ns
        n_workers += needed_ns / nthreads
    n_workers /= target_ns
    return AtWorkers(n_all, n_busy, nbytes, last_progress, n_workers, n_closed)


def _n_like(ws: WorkerHandle, busy_ns: float, running_ns: dict[Prefix, float]) -> int:
    """Return how many tasks of a worker count for as long as its threads have been busy.

    They are those that run, and all behind them if a function of unknown duration is among them;
    by the notes made here, so do its tasks elsewhere.
    """
    n_like = n_running = min(len(ws.processing), ws.nthreads)
    for task in islice(ws.processing.values(), min(n_running, MAX_RUNNING)):
        prefix = task.group.prefix
        if not prefix.n_finished:
            running_ns[prefix] = max(busy_ns, running_ns.get(prefix, 0.0))
            n_like = len(ws.processing)
    return n_like


def _part_of(task: SchedulerTask, target_ns: float, running_ns: dict[Prefix, float]) -> float:
    prefix = task.group.prefix
    estimate_ns = prefix.estimate_ns if prefix.n_finished else UNKNOWN_DURATION_NS
    return min(1.0, max(estimate_ns, running_ns.get(prefix, 0.0)) / target_ns)


def _sample(task_class: TaskClass) -> Iterator[SchedulerTask]:
    """Return some of the queued tasks of a class, at least one, from all over its lanes."""
    lanes = task_class.queue.rotation.lanes.values()
    full = list(islice((lane for lane in lanes if lane.n), MAX_LANES))
    n_each = max(1, MAX_SAMPLE // len(full))
    found = False
    for lane in full:
        for entries in (lane.run, lane.heap):
            n = len(entries)
            # An odd step, so that functions that alternate are both met.
            for i in range(0, n, max(1, (n // n_each) | 1)):
                entry = entries[i]
                if entry[2].ticket == entry[1]:
                    found = True
                    yield entry[2]
    if not found:  # all that were looked at had been taken out
        yield next(e[2] for lane in full for e in (*lane.run, *lane.heap) if e[2].ticket == e[1])


def _workers_for_data(nbytes: int, kind: WorkerKind) -> int:
    if nbytes < SMALL_NBYTES:
        return 0
    return ceil(nbytes / (FULL * kind.memory_limit)) if kind.memory_limit else 1


def _on_worker_joined(state: SchedulerState, ws: WorkerHandle) -> None:
    aim = aim_of(state)
    aim.kind = WorkerKind(ws.nthreads, ws.memory_limit, ws.resources)
    pool = pool_of(ws.resources)
    aim.kinds.pop(pool, None)
    aim.kinds[pool] = aim.kind
    if len(aim.kinds) > MAX_POOLS:
        del aim.kinds[next(iter(aim.kinds))]


def ask_desired(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return how many workers the present work is worth, for autoscalers.

    `adapts_s` is for how many seconds the number of workers follows the answer. `resources` has the
    names of those that the workers of one pool offer, and counts these.
    """
    target_s = arguments.get("target_s", 0.0)
    if type(target_s) not in (int, float) or not 0 <= target_s < MAX_TARGET_S:
        raise BadArgument(f"target_s= is a number of seconds, not {str(target_s)[:40]!r}")
    adapts_s = arguments.get("adapts_s", 0.0)
    if type(adapts_s) not in (int, float) or not 0 <= adapts_s < MAX_TARGET_S:
        raise BadArgument(f"adapts_s= is a number of seconds, not {str(adapts_s)[:40]!r}")
    if adapts_s:
        note_adapting(state, adapts_s)
    names = arguments.get("resources")
    if names is not None and not (
        isinstance(names, list) and all(isinstance(name, str) for name in names)
    ):
        raise BadArgument(f"resources= is a list of names, not {str(names)[:40]!r}")
    pool = None if names is None else pool_of(names)
    return desired_workers(state, target_s, pool).to_plain(), ""


FEATURE: Final = Feature(
    name="desired workers",
    records=(Aim,),
    questions={"desired": Question(ask_desired)},
    worker_joined=(_on_worker_joined,),
)
