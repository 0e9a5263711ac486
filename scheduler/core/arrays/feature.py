"""The feature: arrays of jobs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire.levels import Level
from ..conditions.feature import are_met
from ..feature import Feature, LateQuestion
from ..records.tasks import WAITING
from . import asking, running
from .records import STATES, Arrays, arrays_of

if TYPE_CHECKING:
    from ..state import SchedulerState


# -- invariants ------------------------------------------------------------------------------------
def _miscounted(state: SchedulerState) -> Iterable[object]:
    for task, array in arrays_of(state).items():
        found = [0] * len(STATES)
        for states in array.chunks.values():
            for code in states:
                found[code] += 1
        found[0] = array.rows.n - sum(found[1:])
        if found != array.n_ended:
            yield task.key, array.n_ended


def _misplaced(state: SchedulerState) -> Iterable[object]:
    """Yield live rows that are not known by their keys, and keys that are of no live row."""
    arrays = arrays_of(state)
    live = {
        array.key_of(position): (task, position)
        for task, array in arrays.items()
        for position in array.live
    }
    yield from live.keys() ^ arrays.rows.keys()
    yield from (key for key, place in arrays.rows.items() if live.get(key, place) != place)


def _under_way(state: SchedulerState) -> set[str]:
    """Return the keys of the rows that are under way."""
    arrays = arrays_of(state)
    written = {
        array.key_of(position)
        for array in arrays.values()
        for ends in array.writing.values()
        for position in ends
    }
    return written | arrays.rows.keys() | arrays.ended.keys()


def _unmade(state: SchedulerState) -> Iterable[object]:
    """Yield arrays with rows that nothing begins: none is under way, and none is looked at."""
    arrays = arrays_of(state)
    for task, array in arrays.items():
        is_open = task.state == WAITING and not task.waiting_on and are_met(state, task)
        goes_on = array.is_over or array.live or array.writing or task in arrays.touched
        if is_open and not (goes_on or state.awaits_peers):
            yield task.key


FEATURE: Final = Feature(
    name="arrays",
    records=(Arrays,),
    notes=(Arrays,),
    refusing=(running.refuse,),
    submitted_with={"array": running.on_array},
    tasks_cancelled=(running.on_cancelled,),
    task_failed=(running.on_failed,),
    assignment_begun=(running.on_assignment_begun,),
    worker_back=(running.on_worker_back,),
    deferred_ready=(running.on_ready,),
    settling=((Arrays, running.settle),),
    ticked=(running.on_ticked,),
    orders={
        "retry_rows": LateQuestion(asking.on_retry_rows, Level.CLIENT),
        "cancel_rows": LateQuestion(asking.on_cancel_rows, Level.CLIENT),
        "row_ended": LateQuestion(asking.on_row_ended, Level.CLIENT),
    },
    invariants={
        "the keeper of arrays wants rows whose end is not recorded": lambda s: (
            {task.key for task in arrays_of(s).keeper.wants} - _under_way(s)
        ),
        "live rows of arrays are known by their keys": _misplaced,
        "a live row of an array has not ended": lambda s: [
            (task.key, position)
            for task, array in arrays_of(s).items()
            for position in array.live
            if array.state_of(position)
        ],
        "a live row of an array is a task": lambda s: [
            key for key in arrays_of(s).rows if key not in s.tasks and key not in arrays_of(s).ended
        ],
        "the rows of arrays are counted by their states": _miscounted,
        "an array that has not ended is looked at, or has rows under way": _unmade,
        "what the journal has read of arrays is for one event": lambda s: [
            *arrays_of(s).read,
            *arrays_of(s).retried,
        ],
        "arrays that may begin rows are known, and filed by their queues": lambda s: [
            (name, task)
            for name, tasks in arrays_of(s).open.items()
            for task in tasks
            if task not in arrays_of(s) or task.group.options.job_queue != name
        ],
        "arrays are busy while there are some": lambda s: (
            [] if not arrays_of(s) or Arrays in s.busy else [len(arrays_of(s))]
        ),
    },
)
