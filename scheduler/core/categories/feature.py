"""Categories: tasks of one kind, which get as much memory and as many cores as others have used.

`sizing` chooses how much, `allotting` gives it to tasks. Here is what workers report: what attempts
have used, and that one uses more memory than it was given. Such an attempt is dropped and
interrupted, as one that takes too long. Its task is run again with the largest allocation of the
category, and that counts as no failure. With that it fails (`AllotmentExceeded`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from ....protocol.amounts import CORES, MEMORY
from ....protocol.wire import messages as m
from ....protocol.wire.failure import allotment_exceeded
from ....protocol.wording import sized
from ..ends.measured import MeasuredUse, latest_use
from ..feature import Departure, Feature, StateMetric
from ..interruption.interrupted import note_ended
from ..interruption.interrupting import interrupt
from ..interruption.time_limits import wait_for_end
from ..invariants.checking import differences, unless
from ..moves.transitions import abandon, err, take_back_from
from ..records.peers import WorkerHandle
from ..records.tasks import WAITING, SchedulerTask
from .allotting import (
    allot_again,
    could_run,
    is_held,
    largest_for,
    on_adopted,
    on_ready,
    on_submitted,
    on_unfiled,
    review,
    settle,
    workers_changed,
)
from .recording import Unrecorded, note_learned, on_ticked, unrecorded_of
from .records import Categories, CategoryRecord, Stragglers, categories_of, category_of
from .sizing import cores_used

if TYPE_CHECKING:
    from ..state import SchedulerState


# -- what workers report ---------------------------------------------------------------------------
def on_measured(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsMeasured) -> None:
    """Keep what attempts have used; categories learn from those that have ended well."""
    latest = latest_use(state)
    failed = message.failed or [0] * len(message.attempts)
    for row in zip(*(getattr(message, name) for name in message.columns), failed, strict=True):
        *used, is_failed = row
        use = MeasuredUse(*used)
        task = ws.processing.get(use.attempt)
        if task is None:
            state.counters.reports_stale += 1
            continue
        latest.note(task.key, use)
        category = category_of(state, task.group.options)
        if category is None or is_failed:
            continue
        note_learned(state, category)
        category.times.n_ended += 1
        category.times.sum_s += use.wall_us / 1e6
        if use.cpu_us:
            category.cpu_s += use.cpu_us / 1e6
            category.wall_s += use.wall_us / 1e6
        for name, peak in _lessons_of(use):
            if category.peaks[name].note(peak, use.wall_us / 1e6):
                review(state, category)


def _lessons_of(use: MeasuredUse) -> Iterator[tuple[str, int]]:
    """Return the amounts of which it is known how much an attempt needs.

    A function takes one thread, whatever its worker uses beside it. Programs and isolated calls
    have processes of their own, which may keep several cores busy.
    """
    if use.kind != m.SHARED and use.peak_nbytes:
        yield MEMORY, use.peak_nbytes
    if use.kind == m.OWN_PROCESS and (cores := cores_used(use.cpu_us, use.wall_us)):
        yield CORES, cores


def on_exceeded(state: SchedulerState, ws: WorkerHandle, message: m.AttemptsExceeded) -> None:
    """End attempts that use more than they were given; run their tasks again with more."""
    ended: list[int] = []
    again: dict[SchedulerTask, int] = {}
    for attempt, used in zip(message.attempts, message.used_nbytes, strict=True):
        task = ws.processing.get(attempt)
        category = None if task is None else category_of(state, task.group.options)
        if task is None or category is None:
            if not any(dropped(state, ws, attempt) for dropped in state.features.stale_overdue):
                state.counters.reports_stale += 1
            continue
        ended.append(attempt)
        options = task.group.options
        allotted, largest = options.allotted_nbytes, largest_for(state, category, options)[0]
        text = f"used {sized(used)} of memory, more than its category gave it"
        note_ended(state, ws, task, text)
        state.story.note(state.now, f"{text}, on {ws.name}", [task.key])
        # An attempt of an earlier scheduler may have been given less than is known here.
        if allotted < largest or used <= largest:
            category.note_repeated(task)
            again[task] = attempt
            continue
        is_own = largest == category.max_nbytes
        name = category.name
        err(state, task, allotment_exceeded(task.key, name, largest, used, ws.name, is_own=is_own))
    # A failure in the same message may have taken away the need for a repetition.
    left = {task: None for task in again if task.worker is ws}
    for task in left:
        abandon(state, task)
        category = category_of(state, task.group.options)
        assert category is not None
        allot_again(state, category, task)
    take_back_from(state, ws, left)
    for task in left:
        wait_for_end(state, task, again[task])
    if ended:
        interrupt(state, ws, ended, "too large")


def _on_worker(state: SchedulerState, ws: WorkerHandle) -> None:
    workers_changed(state)


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    workers_changed(state)


# -- metrics ---------------------------------------------------------------------------------------
def _by_category(name: str, text: str, read: Callable[[CategoryRecord], float]) -> StateMetric:
    """Return a metric with a number for each category that has one."""

    def numbers(state: SchedulerState) -> dict[str, float]:
        found = ((c.name, read(c)) for c in categories_of(state).by_name.values())
        return {category: number for category, number in found if number}

    return StateMetric(name, text, ("category",), read=numbers)


# -- invariants ------------------------------------------------------------------------------------
def _unlisted(state: SchedulerState) -> list[SchedulerTask]:
    """Return tasks that wait for nothing but their category, and that it has forgotten."""
    categories = categories_of(state)
    listed = {row[2] for category in categories.waiting for row in category.waiting}
    ready = (t for t in state.tasks.values() if t.state == WAITING and could_run(t))
    return [task for task in ready if task not in listed]


FEATURE: Final = Feature(
    name="categories",
    records=(Categories, Stragglers, Unrecorded),
    handlers={m.AttemptsMeasured: on_measured, m.AttemptsExceeded: on_exceeded},
    submitted_with={"category": on_submitted},
    deferred_ready=(on_ready,),
    settling=((Categories, settle),),
    ticked=(on_ticked,),
    unfiled=(on_unfiled,),
    adopted=(on_adopted,),
    worker_joined=(_on_worker,),
    worker_leaving=(_on_worker,),
    worker_gone=(_on_worker_gone,),
    metrics=(
        _by_category(
            "category_attempts_repeated_total",
            "Attempts that were run again with more memory, by category.",
            lambda c: c.n_repeated,
        ),
        _by_category(
            "category_wall_seconds_total",
            "Time that attempts ran whose CPU time was measured and that finished, by category.",
            lambda c: c.wall_s,
        ),
        _by_category(
            "category_cpu_seconds_total",
            "CPU time of these attempts, by category.",
            lambda c: c.cpu_s,
        ),
        _by_category(
            "category_memory_peak_bytes",
            "The most memory that a measured attempt has used, by category.",
            lambda c: max(c.peaks[MEMORY].peaks, default=0),
        ),
        _by_category(
            "category_cores_peak",
            "The most cores that a measured attempt has kept busy, by category.",
            lambda c: max(c.peaks[CORES].peaks, default=0),
        ),
        _by_category(
            "category_stragglers_total",
            "Attempts that took much longer than others, and were begun elsewhere, by category.",
            lambda c: c.times.n_late,
        ),
    ),
    invariants={
        "the next look for stragglers is to come": lambda s: [
            look
            for look in [s.record(Stragglers).next_look]
            if look is not None and not look.is_pending
        ],
        "the end of what runs twice is looked for": lambda s: unless(
            not s.record(Stragglers).copies or s.record(Stragglers).next_look is not None,
            s.record(Stragglers).copies,
        ),
        "what categories have learned is to be recorded": lambda s: [
            name for name in unrecorded_of(s).names if unrecorded_of(s).next_look is None
        ],
        "a category lists the tasks that wait for it": _unlisted,
        "categories with waiting tasks are known": lambda s: differences(
            categories_of(s).waiting,
            [c for c in categories_of(s).by_name.values() if c.waiting],
        ),
        "categories are busy while one is to be looked at": lambda s: [
            category
            for category in (
                *categories_of(s).waiting,
                *categories_of(s).to_review,
                *categories_of(s).unfiled,
            )
            if Categories not in s.busy
        ],
        "categories are busy while all tasks are to be looked at": lambda s: [
            "all" for _ in range(categories_of(s).must_sweep) if Categories not in s.busy
        ],
        "cores that a category has chosen are asked for": lambda s: [
            task
            for task in s.tasks.values()
            if (chosen := task.group.options.allotted_cores)
            and task.group.options.resources.get(CORES) != chosen
        ],
        "a task that was given amounts is held no more": lambda s: [
            task
            for category in categories_of(s).by_name.values()
            for task in category.given
            if task.state in ("queued", "no_worker") and is_held(task)
        ],
    },
)
