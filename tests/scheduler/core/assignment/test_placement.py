"""placement.py: the fast choice against a slow, obvious one that looks at every worker."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.wire.messages import RegisterWorker
from weft.scheduler.core.assignment.placement import (
    LATENCY_NS,
    MAX_REPLICAS_SEEN,
    decide_worker,
    queue_cost_ns,
    start_cost_ns,
)
from weft.scheduler.core.moves.eligibility import may_run
from weft.scheduler.core.records.peers import WorkerHandle
from weft.scheduler.core.records.prefixes import Prefix
from weft.scheduler.core.records.tasks import (
    MEMORY,
    PROCESSING,
    Function,
    SchedulerTask,
    TaskClass,
    TaskGroup,
)

NOW = 50.0


def make_worker(i: int, nthreads: int = 1, **resources: float) -> WorkerHandle:
    hello = RegisterWorker(
        worker_id=f"id{i}",
        name=f"w{i}",
        session=1,
        last_epoch=0,
        address=f"tcp://w{i}",
        nthreads=nthreads,
        memory_limit=0,
        resources=resources,
        supervisor_id="",
        facts={"host": f"host{i % 2}"},
    )
    return WorkerHandle(i, hello, NOW)


def make_task(key: str, task_class: TaskClass) -> SchedulerTask:
    group = TaskGroup(Function(b"f" * 16, b"", Prefix("f")), task_class, 0, 1)
    return SchedulerTask(key, group, b"", 0)


def slow_start_cost_ns(ws: WorkerHandle, task: SchedulerTask) -> int:
    """The time when the task could start there: after queued tasks and the transfer of its data."""
    busy = 0
    if len(ws.processing) >= ws.nthreads:
        busy = max(ws.occupancy_ns // ws.nthreads, int((NOW - ws.last_progress) * 1e9))
    to_fetch = [d for d in task.dependencies if d.worker is not ws and ws not in d.replicas]
    if not to_fetch:
        return busy
    mib = sum(d.nbytes for d in to_fetch) / 2**20
    return busy + LATENCY_NS + int(mib * ws.fetch_ns_per_mib)


def slow_candidates(
    task: SchedulerTask, with_room: WorkerHandle, workers: list[WorkerHandle]
) -> list[WorkerHandle]:
    """The workers that may run the task now and hold one of the inputs, or have room."""
    task_class = task.group.task_class
    return [
        ws
        for ws in workers
        if ws is with_room
        or (
            any(ws in d.replicas[:MAX_REPLICAS_SEEN] for d in task.dependencies)
            and ws in task_class.members
            and all(ws.free_resources.get(n, 0.0) >= a for n, a in task_class.resources)
        )
    ]


@st.composite
def situations(draw):
    n_workers = draw(st.integers(1, 6))
    workers = [
        make_worker(i, draw(st.integers(1, 3)), gpu=draw(st.sampled_from([0.0, 1.0, 2.0])))
        for i in range(n_workers)
    ]
    resources = draw(st.sampled_from([(), (("gpu", 1.0),), (("gpu", 2.0),)]))
    task_class = TaskClass((), (), False, resources)
    members = [ws for ws in workers if draw(st.booleans())] or workers[:1]
    task_class.members = dict.fromkeys(members)
    for ws in workers:
        for attempt in range(draw(st.integers(0, 4))):
            filler = make_task(f"filler{attempt}", task_class)
            filler.estimate_ns = draw(st.integers(10_000, 10_000_000))
            ws.processing[attempt] = filler
            ws.occupancy_ns += filler.estimate_ns
        ws.last_progress = NOW - draw(st.sampled_from([0.0, 0.001, 1.0]))
        ws.free_resources = {"gpu": draw(st.sampled_from([0.0, 1.0, 2.0]))}
    dependencies = []
    for i in range(draw(st.integers(0, 4))):
        dependency = make_task(f"d{i}", task_class)
        dependency.nbytes = draw(st.sampled_from([0, 8, 100_000, 50_000_000]))
        if draw(st.booleans()):
            dependency.state = MEMORY
            holders = draw(st.permutations(workers))[: draw(st.integers(1, n_workers))]
            dependency.replicas = tuple(holders)
        else:
            dependency.state = PROCESSING
            dependency.worker = draw(st.sampled_from(workers))
            dependency.nbytes = 0
        dependencies.append(dependency)
    task = make_task("t", task_class)
    task.dependencies = tuple(dependencies)
    return task, draw(st.sampled_from(members)), workers


@given(situations())
def test_the_fast_choice_costs_no_more_than_the_best_of_all_candidates(situation):
    task, with_room, workers = situation
    chosen = decide_worker(task, with_room, NOW)
    candidates = slow_candidates(task, with_room, workers)
    assert chosen in candidates
    best = min(slow_start_cost_ns(ws, task) for ws in candidates)
    assert slow_start_cost_ns(chosen, task) == best


@given(situations())
def test_the_worker_with_room_is_preferred_among_equals(situation):
    task, with_room, workers = situation
    best = min(slow_start_cost_ns(ws, task) for ws in slow_candidates(task, with_room, workers))
    if slow_start_cost_ns(with_room, task) == best:
        assert decide_worker(task, with_room, NOW) is with_room


@given(situations())
def test_costs_equal_the_obvious_ones(situation):
    task, _, workers = situation
    for ws in workers:
        assert start_cost_ns(ws, task, NOW) == slow_start_cost_ns(ws, task)


def test_a_worker_that_is_stuck_costs_as_long_as_it_has_been():
    ws = make_worker(0)
    task_class = TaskClass((), (), False, ())
    filler = make_task("x", task_class)
    filler.estimate_ns = ws.occupancy_ns = 1_000_000
    ws.processing[1] = filler
    ws.last_progress = NOW - 2.0
    assert queue_cost_ns(ws, NOW) == 2_000_000_000


def input_at_a_busy_holder(nbytes: int) -> tuple[WorkerHandle, WorkerHandle, SchedulerTask]:
    """Return a holder with 1 s of work, another worker, and a task that reads so much."""
    holder, other = make_worker(0), make_worker(1)
    task_class = TaskClass((), (), False, ())
    task_class.members = {holder: None, other: None}
    work(holder, task_class, 1_000_000_000)
    needed, task = make_task("in", task_class), make_task("t", task_class)
    needed.state, needed.nbytes, needed.replicas = MEMORY, nbytes, (holder,)
    task.dependencies = (needed,)
    return holder, other, task


def work(ws: WorkerHandle, task_class: TaskClass, estimate_ns: int) -> SchedulerTask:
    filler = make_task(f"work {len(ws.processing)}", task_class)
    filler.estimate_ns = estimate_ns
    ws.processing[len(ws.processing)] = filler
    ws.occupancy_ns += estimate_ns
    ws.last_progress = NOW
    return filler


def queue_another(task: SchedulerTask) -> None:
    task.group.task_class.queue.push(make_task("queued", task.group.task_class))


LARGE, SMALL = 64_000_000, 1_000_000


def test_a_busy_worker_leaves_a_long_fetch_to_the_holder_while_others_are_queued():
    holder, other, task = input_at_a_busy_holder(LARGE)
    work(other, task.group.task_class, 1_000_000)
    queue_another(task)
    assert decide_worker(task, other, NOW) is holder


@pytest.mark.parametrize(
    "case", ["short", "idle", "nothing queued", "on its way", "holder takes nothing"]
)
def test_a_worker_with_room_fetches_what_starts_sooner_there(case):
    holder, other, task = input_at_a_busy_holder(SMALL if case == "short" else LARGE)
    if case != "idle":
        before = work(other, task.group.task_class, 1_000_000)
        if case == "on its way":
            before.dependencies = task.dependencies
    if case != "nothing queued":
        queue_another(task)
    if case == "holder takes nothing":
        holder.is_paused = True
    assert decide_worker(task, other, NOW) is other


@pytest.mark.parametrize(
    ("workers", "resources", "expected"),
    [
        ((), (), [0, 1, 2]),
        (("w0",), (), [0]),
        (("tcp://w1",), (), [1]),
        (("host0",), (), [0, 2]),
        (("nobody",), (), []),
        ((), (("gpu", 1.0),), [1, 2]),
        ((), (("gpu", 2.0),), [2]),
        (("w0", "w2"), (("gpu", 1.0),), [2]),
        ((), (("other", 1.0),), []),
    ],
)
def test_the_workers_that_may_run_a_class_are_found(workers, resources, expected):
    all_workers = [make_worker(0), make_worker(1, gpu=1.0), make_worker(2, gpu=2.0)]
    task_class = TaskClass((), workers, False, resources)
    assert [ws.peer for ws in all_workers if may_run(ws, task_class)] == expected
