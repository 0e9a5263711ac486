"""Arrays of jobs (`array=`): for each number of a range a call like it runs, a *row*.

The array itself is a task that is deferred until all of its rows have ended. So what holds for any
task holds for it. The journal keeps it, since an array is a detached job; who cancels it, ends it;
it keeps its function; a scheduler that is started again gets it again. When all rows have
succeeded it runs itself, without a number, which does nothing but end it. When some have not, it
fails and names them.

A window of its rows is made into ordinary tasks, as they come near to running: a keeper wants
these until their end is recorded. Then a row leaves the window, so a slow disk costs no memory
without end, and a worker has a result for as long as it is nowhere else.
The journal has one entry for all rows that have ended with an event: the bytes of their chunks, and
what is kept of them. A row whose end is recorded is never made again, unless a user asks for that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ....protocol.array_rows import ArrayRows, named, row_of_key
from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, cancelled, rows_failed, unrecorded
from ....protocol.wording import counted
from ..conditions.feature import are_met
from ..job_queues.feature import paused_queues_of
from ..journal.entries import JobEnded, JobsRead, JournalRead, RowEnded, RowsChanged
from ..journal.feature import RETRY_S, why_not_again
from ..journal.jobs import MAX_UNRECORDED_NBYTES, append, journal_of, when_written
from ..moves.transitions import enqueue, err, release_unneeded
from ..moves.without_recipe import change_group
from ..records.peers import ClientHandle, WorkerHandle
from ..records.tasks import MEMORY, WAITING, SchedulerTask, TaskGroup
from ..recovery.records import recovery_of
from ..requests import wanted_keys
from ..requests.submission import class_of, on_cancel, on_submit
from .records import DONE_WITH_NONE, NONE_BLOB, STATES, Array, Arrays, arrays_of

if TYPE_CHECKING:
    from ....protocol.wire.payload import Blob
    from ..events import SchedulerTick
    from ..state import SchedulerState

#: Rows that are under way at a time, of all arrays; or twice the threads of the cluster.
WINDOW: Final = 8192
#: ... and of one array at least.
LEAST_WINDOW: Final = 256
_NONE: Final[Mapping[int, Failure]] = {}
#: Options of an array that its rows do not have: it has waited, and ends, for all of them.
_OF_ARRAY: Final = ("array", "detached", "conditions", "start_ms", "end_by_ms", "attempt", "actor")

#: Options that the own call of an array does not have: it does nothing, at any worker.
_OF_ROWS: Final = (
    "workers", "allow_other_workers", "resources", "no_worker_ms", "job_queue", "category",
    "allotted_nbytes", "allotted_cores",
)  # fmt: skip


# -- arrays come -----------------------------------------------------------------------------------
def refuse(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    refused: Collection[int],
) -> Mapping[int, Failure]:
    """Return the rows of a message that are no arrays as they are to be, and why."""
    reasons = [_why_not(record) for record in message.options]
    if not any(reasons):
        return _NONE
    option_of = message.option_of or [0] * len(message.keys)
    return {
        row: unrecorded(message.keys[row], reasons[place])
        for row, place in enumerate(option_of)
        if reasons[place] and row not in refused
    }


def _why_not(record: Mapping[str, Any]) -> str:
    if not record.get("array"):
        return ""
    if not record.get("detached"):
        return "an array is a detached job: submit it with detached=True"
    for name in ("cron", "gang", "begin_by_ms", "scattered", "part_index"):
        if record.get(name):
            return f"an array has no {name}"
    return ""


def on_array(state: SchedulerState, task: SchedulerTask) -> None:
    """Begin an array, or go on with one that the journal has; one that is known goes on."""
    arrays = arrays_of(state)
    if task not in arrays:
        chunks = arrays.read.pop(task.key, None)
        array = arrays[task] = Array(task.key, ArrayRows(task.group.options.array), chunks or {})
        array.is_known = chunks is not None
        if array.is_known and task.key in journal_of(state).adding:
            _run_again(state, task, array)
    touch(state, task)


def on_ready(state: SchedulerState, task: SchedulerTask) -> None:
    """Look at an array whose conditions are met, or that had ended and is to run again."""
    arrays = arrays_of(state)
    array = arrays.get(task)
    if array is None:
        return
    if array.is_over and array.n_ended[0] + array.n_failed:
        chunks = arrays.read.pop(task.key, None)
        if chunks is None:  # a client has submitted it anew
            array = arrays[task] = Array(task.key, array.rows, {})
        else:
            _run_again(state, task, array)
    array.is_over = False
    touch(state, task)


def _run_again(state: SchedulerState, task: SchedulerTask, array: Array) -> None:
    """Run rows again that have not succeeded, of an array that had ended."""
    names = arrays_of(state).retried.pop(task.key, None)
    begin_again(state, task, array, None if names is None else array.positions(names))


def begin_again(
    state: SchedulerState, task: SchedulerTask, array: Array, positions: list[int] | None
) -> int:
    """Let rows be begun again that have not succeeded, None = all; return how many there are."""
    again = array.run_again(positions)
    if again:
        _forget_ends(state, array)
        _record(state, task, array, {}, again)
        state.counters.tasks_retried += len(again)
        touch(state, task)
    return len(again)


def _forget_ends(state: SchedulerState, array: Array) -> None:
    """Let go of rows that are to run again, and whose earlier end is not recorded yet."""
    for ends in array.writing.values():
        again = [one for one in ends if not array.state_of(one)]
        for position in again:
            del ends[position]
        if again:
            _let_go(state, map(array.key_of, again))


def touch(state: SchedulerState, task: SchedulerTask) -> None:
    """Look at an array in the next pass."""
    arrays_of(state).touched[task] = None
    state.busy[Arrays] = None


# -- rows come -------------------------------------------------------------------------------------
def on_assignment_begun(state: SchedulerState) -> None:
    """Make the rows that workers have brought, and begin others: none is before the barrier."""
    _adopt(state, [*recovery_of(state).rows])
    for task in arrays_of(state):
        touch(state, task)


def on_worker_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Make the rows that a worker brings which has come later than the others."""
    if arrays_of(state) and not state.awaits_peers:
        _adopt(state, [row.key for row in recovery_of(state).rows_at.get(ws, {}).values()])


def _adopt(state: SchedulerState, keys: Iterable[str]) -> None:
    """Make rows that workers have, wherever these are in the range, unless their end is known."""
    arrays = arrays_of(state)
    found: dict[SchedulerTask, list[int]] = {}
    for key in keys if arrays else ():
        of_array, name = row_of_key(key)
        task = state.tasks.get(of_array)
        array = None if task is None else arrays.get(task)
        position = None if array is None else array.rows.position(name)
        if task is None or array is None or position is None or task.state != WAITING:
            continue
        if not array.state_of(position) and position not in array.live:
            found.setdefault(task, []).append(position)
    for task, positions in found.items():
        _make(state, task, arrays[task], positions)


def _fill(state: SchedulerState, task: SchedulerTask, array: Array) -> None:
    """Begin the next rows, when half of the window has ended."""
    window = _window(state)
    n_free = window - array.n_under_way
    if n_free < window // 2 or state.awaits_peers:
        return
    if journal_of(state).unrecorded_nbytes > MAX_UNRECORDED_NBYTES // 2 and array.writing:
        return  # it is looked at again when these are recorded
    positions = array.take(n_free)
    if positions:
        _make(state, task, array, positions)


def _window(state: SchedulerState) -> int:
    """Return how many rows of one array may be under way. O(workers) only if some have come."""
    arrays = arrays_of(state)
    if len(state.workers) != arrays.n_workers:
        arrays.n_workers = len(state.workers)
        arrays.n_threads = sum(ws.nthreads for ws in state.workers.values())
    paused = paused_queues_of(state)
    n_open = sum(len(tasks) for name, tasks in arrays.open.items() if name not in paused)
    return max(max(WINDOW, 2 * arrays.n_threads) // max(n_open, 1), LEAST_WINDOW)


def _make(state: SchedulerState, task: SchedulerTask, array: Array, positions: list[int]) -> None:
    """Make tasks of rows. Some may have ended when this returns."""
    arrays = arrays_of(state)
    group = task.group
    keys = [array.key_of(position) for position in positions]
    for key, position in zip(keys, positions, strict=True):
        array.live[position] = None
        arrays.rows[key] = task, position
    options = group.options.changed(**dict.fromkeys(_OF_ARRAY), row_of=task.key)
    dependencies = [d.key for d in task.dependencies]
    message = m.SubmitTasks(
        functions=[group.function.function_id],
        function_names=[group.prefix.name],
        function_blobs=[group.function.blob],
        function_of=[0] * len(keys),
        keys=keys,
        args=[arguments_of(task, array, position) for position in positions],
        dependencies=[dependencies] * len(keys) if dependencies else [],
        spec_hashes=[],
        options=[options.as_record()],
    )
    arrays.keeper.number, arrays.keeper.user = group.client, group.user  # of the array's turns
    on_submit(state, arrays.keeper, message)
    for row in filter(None, map(state.tasks.get, keys)):
        if row.group.options.row_of == task.key:
            row.group.wanted = m.WANTED_LARGE


def arguments_of(task: SchedulerTask, array: Array, position: int) -> Blob:
    """Return the arguments of a row."""
    return array.rows.arguments(position)


# -- rows end --------------------------------------------------------------------------------------
def settle(state: SchedulerState) -> None:
    """Handle the rows that have ended, and the arrays that were forgotten, since the last pass."""
    arrays = arrays_of(state)
    arrays.read.clear()
    arrays.retried.clear()
    for task in [*arrays.awaited]:
        if not arrays[task].asked:
            del arrays.awaited[task]
        elif task.state != WAITING:  # no hook tells of one that fails with its inputs
            arrays.touched[task] = None
    while arrays.ended or arrays.dropped or arrays.touched:
        dropped, arrays.dropped = arrays.dropped, []
        for key, array in dropped:
            _end_rows(state, key, array)
        _take_ends(state)
        touched, arrays.touched = arrays.touched, {}
        for task in touched:
            if task in arrays:
                _look(state, task, arrays[task])
    if not arrays:
        state.busy.pop(Arrays, None)


def note_ends(
    state: SchedulerState,
    task: SchedulerTask,
    array: Array,
    positions: list[int],
    how: str,
    reason: str,
) -> None:
    """End rows that have not begun."""
    for position in positions:
        array.note(position, STATES.index(how))
    if positions:
        failures = ((p, cancelled(array.key_of(p), reason)) for p in positions)
        _record(state, task, array, {p: RowEnded(p, failure) for p, failure in failures})


def _take_ends(state: SchedulerState) -> None:
    """Note the rows that have ended, and have that recorded."""
    arrays = arrays_of(state)
    ended, arrays.ended = arrays.ended, {}
    by_array: dict[SchedulerTask, dict[int, JobEnded]] = {}
    for key, end in ended.items():
        if key in arrays.rows:
            task, position = arrays.rows.pop(key)
            by_array.setdefault(task, {})[position] = end
            row = state.tasks.get(key)
            if row is not None and row.state == MEMORY and row.wanted_by == arrays.keeper.alone:
                row.delivered = True  # its end is not to be made again if its worker is lost
    for task, ends in by_array.items():
        array = arrays[task]  # those that are gone have no row any more
        kept: dict[int, RowEnded | None] = {}
        for position, end in ends.items():
            del array.live[position]
            if end.result == NONE_BLOB:  # the state says it
                array.note(position, DONE_WITH_NONE)
                kept[position] = None
            else:
                array.note(position, STATES.index(end.state))
                kept[position] = RowEnded(position, end.failure, end.result, end.nbytes)
        _record(state, task, array, kept)
        arrays.touched[task] = None


def _record(
    state: SchedulerState,
    task: SchedulerTask,
    array: Array,
    ends: dict[int, RowEnded | None],
    again: Sequence[int] = (),
) -> None:
    """Have the ends of rows recorded, and that others run again."""
    array.n_entries += 1
    n = array.n_entries
    array.writing[n] = ends
    states = {position: array.state_of(position) for position in [*again, *ends]}
    append(state, RowsChanged(task.key, states, [end for end in ends.values() if end is not None]))
    on_written = partial(_on_written, task=task, array=array, n=n, again=again)
    when_written(state, on_written)


def _on_written(
    state: SchedulerState,
    error: str,
    task: SchedulerTask,
    array: Array,
    n: int,
    again: Sequence[int],
) -> None:
    """Let rows leave the window whose ends are recorded; try again what could not be."""
    if arrays_of(state).get(task) is not array or n not in array.writing:
        return
    if error:
        state.call_after(RETRY_S, _record_again, task, array, n, again)
        return
    ends = array.writing.pop(n)
    _let_go(state, map(array.key_of, ends))
    for position in ends if array.asked else ():
        answer(state, array.asked.pop(position, []))
    touch(state, task)


def _record_again(
    state: SchedulerState, task: SchedulerTask, array: Array, n: int, again: Sequence[int]
) -> None:
    """Have recorded what is left of an entry: some rows have ended, or run again, since then."""
    if arrays_of(state).get(task) is not array:
        return
    ends = array.writing.pop(n)
    again = [position for position in again if not array.state_of(position)]
    if ends or again:
        _record(state, task, array, ends, again)
    touch(state, task)


def _let_go(state: SchedulerState, keys: Iterable[str]) -> None:
    keeper = arrays_of(state).keeper
    unneeded = []
    for key in keys:
        row = state.tasks.get(key)
        if row is not None and row in keeper.wants:
            wanted_keys.unwant(keeper, row)
            unneeded.append(row)
    release_unneeded(state, unneeded)
    wanted_keys.drop_functions(state, keeper)


# -- arrays go on, and end -------------------------------------------------------------------------
def _look(state: SchedulerState, task: SchedulerTask, array: Array) -> None:
    """Begin more rows of an array, or end it."""
    if not array.is_known:
        array.is_known = True
        if task.key in journal_of(state).adding:
            append(state, RowsChanged(task.key, {}, is_new=True))
    if task.state != WAITING:
        if not array.is_over:  # it has failed, or was not recorded
            array.is_over = True
            _end_rows(state, task.key, array)
            arrays_of(state).close(task)
        return
    if array.is_over or task.waiting_on or not are_met(state, task) or state.awaits_peers:
        return
    arrays_of(state).open.setdefault(task.group.options.job_queue, {})[task] = None
    _fill(state, task, array)
    if array.next >= array.rows.n:
        arrays_of(state).close(task)
    if not (array.is_left or array.live or array.writing):
        array.is_over = True
        state.call_after(0.0, _finish, task, array)  # behind this pass, which others follow


def _finish(state: SchedulerState, task: SchedulerTask, array: Array) -> None:
    """End an array: all of its rows have ended, and that is recorded."""
    if arrays_of(state).get(task) is not array or not array.is_over or task.state != WAITING:
        return
    if array.n_failed:
        names = map(array.rows.name, array.unsuccessful())
        text = named(names, array.n_failed)
        err(state, task, rows_failed(task.key, array.n_failed, array.rows.n, text))
    else:
        old = task.group
        options = old.options.changed(**dict.fromkeys(_OF_ROWS))
        common = old.generation, old.client, old.submitted, options, old.user
        group = TaskGroup(old.function, class_of(state, options), *common)
        group.wanted = old.wanted
        change_group(state, task, group)
        enqueue(state, task)


def on_failed(state: SchedulerState, task: SchedulerTask, failure: Failure, worker: str) -> None:
    """Look at an array that has failed by itself: no row of it is of use."""
    if task in arrays_of(state):
        touch(state, task)


def on_cancelled(state: SchedulerState, tasks: list[SchedulerTask]) -> None:
    """Let the rows that are under way be cancelled with their array."""
    arrays = arrays_of(state)
    for task in tasks if arrays else ():
        if (array := arrays.pop(task, None)) is not None:
            array.is_cancelled = True
            state.busy[Arrays] = None


def _end_rows(state: SchedulerState, key: str, array: Array) -> None:
    """Cancel the rows that are under way: their ends are not of their array any more.

    Those that wait for a row are answered: what is recorded of the array says how it ended.
    """
    for waiting in array.asked.values():
        answer(state, waiting)
    array.asked.clear()
    arrays = arrays_of(state)
    keys = [array.key_of(position) for position in array.live]
    array.live.clear()
    for one in keys:
        del arrays.rows[one]
    for ends in array.writing.values():
        keys += map(array.key_of, ends)
    if not keys:
        return
    reason = f"{key} was cancelled" if array.is_cancelled else f"{key} has ended"
    on_cancel(
        state,
        arrays.keeper,
        m.CancelKeys(keys=keys, force=True, reason=reason, running=True),
    )
    _let_go(state, keys)


def answer(state: SchedulerState, waiting: Iterable[tuple[int, int]]) -> None:
    """Answer those that wait for the end of a row."""
    for peer, request in waiting:
        if peer in state.roles:
            state.send(peer, m.Answer(request=request, info={}))


# -- users -----------------------------------------------------------------------------------------
def on_ticked(state: SchedulerState, event: SchedulerTick) -> None:
    """Take the states of the rows of arrays that are submitted next, by the journal."""
    arrays = arrays_of(state)
    for report in event.journal:
        if isinstance(report, JobsRead):
            key = report.asked.key
            if report.problem or key in arrays.retried or why_not_again(state, key):
                continue  # another question was faster
            arrays.read.update(report.read.arrays)
            arrays.retried[key] = report.asked.rows
        elif isinstance(report, JournalRead):
            arrays.read.update(report.arrays)
    if arrays.read or arrays.retried:
        state.busy[Arrays] = None


def why_array(state: SchedulerState, task: SchedulerTask) -> str:
    """Return what an array waits for; "" = the task is none, or waits as others do."""
    array = arrays_of(state).get(task)
    if array is None or not are_met(state, task) or task.waiting_on:
        return ""
    n_ended = array.rows.n - array.n_ended[0]
    parts = [f"it is an array: {n_ended} of {counted(array.rows.n, 'row')} have ended"]
    parts += [f"{array.n_failed} of these without success"] * bool(array.n_failed)
    parts += [f"{array.key_of(p)} is under way" for p in [*array.live][:1]]
    return "; ".join(parts)
