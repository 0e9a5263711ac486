"""Handles the submissions of clients, and the end of tasks that they cancel.

The lane for a task without dependencies is fused (create -> queued, no moves through the table),
because a `map` is made of nothing else; everything unusual about a row (a known key, dependencies,
a spec hash) leaves that lane.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from ....protocol.rotation import level_of
from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, key_conflict, not_understood
from ....protocol.wire.failure import cancelled as cancelled_failure
from ....protocol.wire.keys import names_content
from ....protocol.wire.options import MAX_PRIORITY, NO_OPTIONS, TaskOptions, unknown_options
from ....protocol.wire.payload import Blob
from ..moves.eligibility import fill_class
from ..moves.reporting import send_states
from ..moves.transitions import (
    ACTIVE,
    activate,
    drop_class,
    err,
    move,
    note_ready,
    release_unneeded,
    retire_function,
    revive_function,
    send_erred,
)
from ..moves.without_recipe import change_args, change_group
from ..records.peers import RESOURCE_DIGITS, ClientHandle
from ..records.priority import MAX_RANK, base_priority
from ..records.tasks import (
    ERRED,
    FORGOTTEN,
    MEMORY,
    NONE_AVOIDED,
    QUEUED,
    RELEASED,
    Function,
    SchedulerTask,
    TaskClass,
    TaskGroup,
)
from .linking import give_recipe, link
from .wanted_keys import drop_functions, is_other, keep_function, note_made, unwant, want

if TYPE_CHECKING:
    from ..state import SchedulerState

#: The first item of the keys of classes whose tasks take no thread.
_THREADLESS: Final = "no thread"
#: The key of the class of deferred tasks, and the name of a worker that may run it: none has it.
DEFERRED: Final[tuple[object, ...]] = ("deferred",)
_NOBODY: Final = ("\0",)
_NONE_REFUSED: Final[Mapping[int, Failure | None]] = {}


class _Batch:
    """The rows of a message that have the same options."""

    __slots__ = (
        "base",
        "fresh",
        "groups",
        "is_delivered",
        "is_limited",
        "n_queued",
        "number",
        "task_class",
        "user",
    )

    def __init__(
        self,
        state: SchedulerState,
        client: ClientHandle,
        functions: list[Function],
        record: dict[str, Any],
    ) -> None:
        task_class, options = state.default_class, NO_OPTIONS
        user_priority = 0
        #: the client in whose turns the tasks run, and the generation in which they stand
        self.number, generation = client.number, state.ranks.generation
        #: who has these tasks
        self.user = client.user
        #: the client has the results, or waits for others that were made of them
        self.is_delivered = False
        if record:
            options = TaskOptions.of(record)
            task_class = class_of(state, options, options.is_deferred)
            user_priority = options.priority
            self.is_delivered = options.delivered
            ws = client.worker
            parent = None if ws is None else ws.processing.get(options.attempt)
            if parent is not None:  # see `delegation`
                self.number, generation = parent.group.client, parent.group.generation
                self.user = parent.group.user
                user_priority += MAX_PRIORITY - level_of(parent.priority)
                user_priority = max(-MAX_PRIORITY, min(user_priority, MAX_PRIORITY))
                options = options.behind(parent.group.options)
            elif ws is not None:
                for acts_for in state.features.acts_for:
                    if (maker := acts_for(state, options)) is not None:
                        self.number, self.user = maker.group.client, maker.group.user
                        options = options.behind(maker.group.options)
        self.is_limited = self.user.is_limited or options.may_be_held  # as that of its groups
        #: by the place of the function
        self.groups: list[TaskGroup] | _LateGroups
        common = task_class, generation, self.number, state.now, options, self.user
        if len(functions) == 1:
            self.groups = [TaskGroup(functions[0], *common)]
        else:
            self.groups = _LateGroups(functions, *common)
        self.task_class = task_class
        task_class.n_tasks += 1  # while rows are worked off it must not be dropped
        #: the base of all rows; a row's priority is this and its rank
        self.base = base_priority(user_priority, generation)
        #: queued tasks that are not in the ready queue yet
        self.fresh: list[SchedulerTask] = []
        self.n_queued = 0

    def queue_up(self) -> None:
        """Put the fresh tasks into the ready queue."""
        if self.fresh:
            self.task_class.queue.lane(self.base, self.number).push(self.fresh)
            self.fresh.clear()


class _LateGroups(dict[int, TaskGroup]):
    """Groups that are made when a row needs them, because most functions lack most options."""

    __slots__ = ("_functions", "_others")

    def __init__(self, functions: list[Function], *others: Any) -> None:
        self._functions = functions
        self._others = others

    def __missing__(self, place: int) -> TaskGroup:
        group = self[place] = TaskGroup(self._functions[place], *self._others)
        return group


def on_submit(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    refused: Mapping[int, Failure | None] = _NONE_REFUSED,
) -> None:
    """Create one task per row; the client wants each. Those that are `refused` fail with this."""
    if not message.keys:
        return
    if None in message.args:
        state.refuse(_peer(client), "SubmitTasks has a task without arguments")
        return
    functions = _functions(state, message)
    if functions is None:
        state.refuse(_peer(client), "SubmitTasks names a function that the scheduler does not have")
        return
    if any(message.options):
        refused = {**_not_understood(message), **refused}
    for refuse in state.features.refusing:
        if others := refuse(state, client, message, refused):
            refused = {**others, **refused}
    if refused:
        message = _without(state, client, message, functions, refused)
    state.ranks.begin(len(message.keys), state.now)
    if not state.tasks:
        for first_submitted in state.features.first_submitted:
            first_submitted(state)
    known: list[tuple[SchedulerTask, int]] = []
    batches: list[_Batch]
    if not message.option_of:
        record = message.options[0] if message.options else {}
        batch = _Batch(state, client, functions, record)
        batches = [batch]
        columns = message.keys, message.function_of, message.args
        _add_rows(state, client, message, batch, columns, 0, known)
    else:
        batches = _add_stretches(state, client, message, functions, known)
    for batch in batches:
        if batch.n_queued:
            note_ready(state, batch.task_class, level_of(batch.base))
    state.story.note(state.now, f"submitted by {client.name}", message.keys)
    if state.awaits_owners:
        note_made(state, message.keys)
    if any(message.options):
        _follow_options(state, message)
    if known:
        _on_known(state, client, message, functions, known)
    for function in functions:
        if function.is_unique:
            for unique_submitted in state.features.unique_submitted:
                unique_submitted(state, message)
        function.n_tasks -= 1
        if not function.n_tasks:
            retire_function(state, function)
    for batch in batches:
        batch.task_class.n_tasks -= 1
        drop_class(state, batch.task_class)


def _follow_options(state: SchedulerState, message: m.SubmitTasks) -> None:
    """Let features follow the tasks of rows that have options of theirs."""
    followed = state.features.submitted_with
    hooks = [[followed[n] for n in record if n in followed] for record in message.options]
    if any(hooks):
        for key, place in zip(message.keys, message.option_of or repeat(0), strict=False):
            for follow in hooks[place]:
                if (task := state.tasks.get(key)) is not None:
                    follow(state, task)


def _not_understood(message: m.SubmitTasks) -> dict[int, Failure]:
    """Return the failures of rows with options that must be understood, and are not known here."""
    unknown = [unknown_options(record) for record in message.options]
    if not any(unknown):
        return {}
    option_of = message.option_of or [0] * len(message.keys)
    return {
        row: not_understood(message.keys[row], unknown[place])
        for row, place in enumerate(option_of)
        if unknown[place]
    }


def _without(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    functions: list[Function],
    refused: Mapping[int, Failure | None],
) -> m.SubmitTasks:
    """Fail some of the rows for their reasons, and return the others.

    The functions of those are kept, because the next message may leave them out.
    """
    for row, failure in refused.items():
        if failure is not None:
            send_erred(state, client, [message.keys[row]], failure)
        keep_function(client, functions[message.function_of[row]], message.keys[row])
    rows = [i for i in range(len(message.keys)) if i not in refused]
    names = ("keys", "function_of", "args", "dependencies", "spec_hashes", "option_of", "ranks")
    columns: dict[str, Any] = {name: getattr(message, name) for name in names}
    return replace(message, **{n: [c[i] for i in rows] for n, c in columns.items() if c})


def _add_stretches(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    functions: list[Function],
    known: list[tuple[SchedulerTask, int]],
) -> list[_Batch]:
    """Create the tasks of rows with different options, in stretches of rows with the same ones.

    The order of the rows must be kept: they may depend on earlier ones with other options.
    """
    batches: dict[int, _Batch] = {}
    option_of = message.option_of
    starts = [0, *(i for i in range(1, len(option_of)) if option_of[i] != option_of[i - 1])]
    for start, stop in zip(starts, [*starts[1:], len(option_of)], strict=True):
        batch = batches.get(option_of[start])
        if batch is None:
            record = message.options[option_of[start]]
            batches[option_of[start]] = batch = _Batch(state, client, functions, record)
        rows = slice(start, stop)
        columns = message.keys[rows], message.function_of[rows], message.args[rows]
        _add_rows(state, client, message, batch, columns, start, known)
    return list(batches.values())


def _add_rows(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    batch: _Batch,
    columns: tuple[list[str], list[int], list[Blob | None]],
    start: int,
    known: list[tuple[SchedulerTask, int]],
) -> None:
    """Create the tasks of the rows from `start` on that have these keys, functions and arguments.

    Rows whose key exists are appended to `known`.
    """
    tasks = state.tasks
    wants = client.wants
    alone = client.alone
    task_class, groups, base, fresh = batch.task_class, batch.groups, batch.base, batch.fresh
    runnable = bool(task_class.members) and not batch.is_limited
    has_one_function = len(message.functions) == 1
    is_delivered = batch.is_delivered
    rank = state.ranks.next
    n_known = len(known)
    dependencies = message.dependencies
    hashes = message.spec_hashes
    ranks = message.ranks
    n_created = n_queued = 0
    for i, (key, function_of, args) in enumerate(zip(*columns, strict=True), start):
        if key in tasks:
            task = tasks[key]
            known.append((task, i))
            if task.args is None or (task.state == ERRED and not is_delivered):
                batch.queue_up()
                _start_afresh(state, client, message, task, i, groups[function_of], base | rank)
            continue
        group = groups[function_of]
        rank += 1
        tasks[key] = task = SchedulerTask(key, group, args, base | rank)
        group.function.n_tasks += 1
        n_created += 1
        task.wanted_by = alone
        wants[task] = None
        if hashes:
            task.spec_hash = hashes[i]
        if ranks:
            task.priority = base | min(ranks[i], MAX_RANK)
        if is_delivered:
            task.delivered = True
            state.counters.n_released += 1
            if dependencies and dependencies[i]:
                link(state, task, dependencies[i], is_ranked=bool(ranks), is_delivered=True)
        elif dependencies and dependencies[i]:
            batch.queue_up()
            state.counters.n_released += 1
            link(state, task, dependencies[i], is_ranked=bool(ranks))
        elif runnable:
            task.state = QUEUED
            fresh.append(task)
            n_queued += 1
            if not has_one_function:
                group.prefix.begin()
        else:
            state.counters.n_released += 1
            activate(state, task)
    batch.queue_up()
    state.ranks.next = rank
    batch.user.n_rows += n_created
    added = columns[2]
    if len(known) > n_known:
        others = {row for _, row in known[n_known:]}
        added = [args for row, args in enumerate(added, start) if row not in others]
    batch.user.nbytes += sum(map(len, added))  # type: ignore[arg-type]  # none is None
    task_class.n_tasks += n_created
    batch.n_queued += n_queued
    if n_queued and has_one_function:
        groups[0].prefix.begin(n_queued)
    state.counters.tasks_submitted += n_created


def _peer(client: ClientHandle) -> int:
    assert client.peer is not None, "messages come over connections"
    return client.peer


def _functions(state: SchedulerState, message: m.SubmitTasks) -> list[Function] | None:
    """Return the functions of the message; None, and nothing done, if one is missing.

    Each counts one task more until `on_submit` is done, so that none is dropped meanwhile.
    """
    ids, blobs, known = message.functions, message.function_blobs, state.functions
    for i, function_id in enumerate(ids):
        if blobs[i] is None and function_id not in known:
            return None
    functions = []
    for i, function_id in enumerate(ids):
        function = known.get(function_id)
        if function is None:
            function = _new_function(state, function_id, message.function_names[i], blobs[i])
        elif not function.n_tasks and function in state.idle_functions:
            revive_function(state, function)
        function.n_tasks += 1
        functions.append(function)
    return functions


def _new_function(
    state: SchedulerState, function_id: bytes, name: str, blob: Blob | None
) -> Function:
    assert blob is not None
    function = Function(function_id, blob, state.prefixes.take(name))
    function.is_unique = function_id in state.features.unique
    state.functions[function_id] = function
    if state.awaits_owners:
        for function_made in state.features.function_made:
            function_made(state, function)
    return function


def class_of(state: SchedulerState, options: TaskOptions, is_deferred: bool = False) -> TaskClass:
    """Return the class of tasks with these options, or for as long as a feature defers them."""
    amounts, takes_thread = options.resources, options.takes_thread
    together = options.held_in
    avoided = NONE_AVOIDED
    if takes_thread and not (is_deferred or together):
        for avoiding in state.features.avoiding:
            avoided = avoiding(state, options)
        if avoided is NONE_AVOIDED and not (options.workers or amounts):
            return state.default_class
    workers = tuple(sorted(options.workers))
    rounded = ((n, round(float(a), RESOURCE_DIGITS)) for n, a in amounts.items())
    resources = tuple(sorted((name, amount) for name, amount in rounded if amount > 0))
    is_loose = options.allow_other_workers
    key: tuple[object, ...] = (workers, is_loose, resources)
    if avoided is not NONE_AVOIDED:
        key = (*key, avoided)
    if not takes_thread:
        key, resources = (_THREADLESS, workers, is_loose, options.keeps_inputs), ()
    elif is_deferred:
        key, workers, is_loose, resources = DEFERRED, _NOBODY, False, ()
    elif together:
        key, workers, is_loose, is_deferred = (*together, resources), _NOBODY, False, True
    task_class = state.classes.get(key)
    if task_class is None:
        task_class = state.classes[key] = TaskClass(
            key,
            workers,
            is_loose,
            resources,
            avoided,
            takes_thread=takes_thread,
            keeps_inputs=options.keeps_inputs,
            is_deferred=is_deferred and takes_thread,
        )
        if not takes_thread:
            state.threadless[task_class] = None
        fill_class(state, task_class)
    return task_class


def _start_afresh(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    task: SchedulerTask,
    row: int,
    group: TaskGroup,
    priority: int,
) -> None:
    """A row's key exists and has failed: run it again at once, later rows may depend on it.

    Or it exists and has no recipe: this is its recipe.
    """
    if is_other(message, task, row) and not names_content(task.key):
        return
    for other in task.wanted_by if task.args is None else ():
        keep_function(other, task.group.function)
    want(client, task)
    if task.is_without_recipe:
        give_recipe(state, message, task, row, group, priority)
        return
    if task.args is not None:
        run_again(state, task)
        return
    if task.state == ERRED:
        move(state, task, RELEASED)
    change_group(state, task, group)
    change_args(task, message.args[row])
    link(state, task, message.dependencies[row] if message.dependencies else [])


def _on_known(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    functions: list[Function],
    rows: list[tuple[SchedulerTask, int]],
) -> None:
    """Rows whose key exists: share the task, refuse other content under the same name."""
    shared: list[str] = []
    for task, row in rows:
        function = functions[message.function_of[row]]
        if task.group.function is not function:
            keep_function(client, function)  # the same result, as a constant or as a call
        if task.state == FORGOTTEN:
            continue
        if is_other(message, task, row):
            if not names_content(task.key):
                send_erred(state, client, [task.key], key_conflict(task.key))
                keep_function(client, function, task.key)
                continue
            state.counters.recipes_differing += 1  # the same value: optimized in another way, say
        want(client, task)
        follow = state.features.submitted_again.get(function.function_id)
        if follow is not None:
            follow(state, client, task)
        if is_delivered(message, row):
            # Only if it is released does the flag hold back anything.
            task.delivered = task.delivered or task.state == RELEASED
        else:
            task.delivered = False  # this client may not have got it, in an earlier session
            if task.state == RELEASED:
                activate(state, task)
        shared.append(task.key)
    send_states(state, client, shared)


def is_delivered(message: m.SubmitTasks, row: int) -> bool:
    """Return whether a task is not to run before another one needs it."""
    options = message.options
    if not options:
        return False
    delivered: bool = options[message.option_of[row] if message.option_of else 0].get(
        "delivered", False
    )
    return delivered


def run_again(state: SchedulerState, task: SchedulerTask) -> list[SchedulerTask]:
    """Reset a failed task, and those of its inputs that failed, so that they can run again.

    Inputs that were released are searched, too: one that nobody wanted may have a failed input that
    others want. Return the tasks that had failed, this one first.
    """
    stack = [task]
    seen = {task: None}
    failed = []
    while stack:
        task = stack.pop()
        if task.state == ERRED and task.args is not None:
            move(state, task, RELEASED)
            failed.append(task)
        elif task.state != RELEASED:
            continue
        for dependency in task.dependencies:
            if dependency not in seen:
                seen[dependency] = None
                stack.append(dependency)
    for task in failed:
        if task.wanted_by:
            activate(state, task)
    return failed


def on_cancel(state: SchedulerState, client: ClientHandle, message: m.CancelKeys) -> None:
    """End the want of a client.

    With `force`, the wants of all clients. Dependents that are wanted fail as cancelled.
    """
    by_client: dict[ClientHandle, list[str]] = {}
    cancelled = []
    if message.running:
        state.abandoned = {}
    for key in message.keys:
        client.refused.pop(key, None)
        task = state.tasks.get(key)
        if task is None or task not in client.wants:
            continue
        # Force ends work. A result that others hold already stays theirs.
        is_last = all(other is client or other.is_watcher for other in task.wanted_by)
        ends_for_all = task.state in ACTIVE and (message.force or is_last)
        for other in task.wanted_by if ends_for_all else client.alone:
            unwant(other, task)
            by_client.setdefault(other, []).append(key)
            if other is not client and other.receive is None:
                keep_function(other, task.group.function)  # until this one has heard of it
        if not task.wanted_by:
            cancelled.append(task)
    for other, keys in by_client.items():
        state.send_client(other, m.KeysCancelled(keys=keys, reason=message.reason))
    drop_functions(state, client)
    state.counters.tasks_cancelled += len(cancelled)
    state.story.note(state.now, f"cancelled by {client.name}", message.keys)
    for tasks_cancelled in state.features.tasks_cancelled:
        tasks_cancelled(state, cancelled)
    for task in cancelled:
        if task.state not in (MEMORY, ERRED, RELEASED, FORGOTTEN):
            for dependent in list(task.dependents or ()):
                cancel_dependents(state, dependent, task.key, message.reason)
    release_unneeded(state, cancelled)
    if state.abandoned is not None:
        abandoned, state.abandoned = state.abandoned, None
        for running_cancelled in state.features.running_cancelled:
            for ws, attempts in abandoned.items():
                running_cancelled(state, ws, attempts)


def cancel_dependents(state: SchedulerState, task: SchedulerTask, key: str, reason: str) -> None:
    """A dependent of a cancelled task cannot run: it fails, and so do its dependents."""
    if task.state not in (MEMORY, ERRED, RELEASED, FORGOTTEN):
        err(state, task, cancelled_failure(key, reason))
