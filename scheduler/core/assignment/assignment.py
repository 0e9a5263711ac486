"""The assignment pass: ready tasks to workers with room, once after each batch of events.

Shares. The workers with room get contiguous stretches of the queue, each its equal share or until
its backlog is full: neighbours in the queue mostly share inputs, and few tasks spread over all
workers. A worker holds work for `BACKLOG_NS` a thread as measured for each function: thousands of
10 us tasks, and none behind one that holds its thread for longer than that. Messages are few: a
share of very short tasks is so large that the messages do not take longer than the tasks, and a
worker with half of its backlog left is not refilled, as long as one client's tasks are queued in
order and nothing else is (`ReadyQueue.is_plain`); else a task may be urgent, and any room is used.
Nor does one worker get all that is left, if these tasks have no links, while others will soon have
nothing to do.

Newcomers. A client that had nothing queued does not wait until a full worker has room: its first
task goes there at once, and runs after the chunk under way (workers give clients turns, too).

Ahead. A waiting task all of whose missing inputs run or queue on one worker goes there at once,
unless most of its inputs are elsewhere. So a long chain runs at the speed of its worker.

Back. When a worker is idle and nothing is queued, unstarted backlog is asked back
(`asking_back`).

Resources. A task that asks for some is in a class with those that ask for the same, and there may
be thousands of classes: no room is kept for each of them and each worker. `takers` are the workers
that may have something left for one of them. A class looks for those that fit when it is visited,
`MAX_ASKING` classes in a pass; when all have passed a worker, it is none of them until it finishes
something or a class has a task again. A worker begins a task when its amounts are free: so there
is a backlog of these tasks, too, except of unknown durations, or at workers of earlier versions.

Closed. A worker that is closed (`moves/taking.py`) has no room for any class. What a full one may
still run is given to it after the others.

Nothing here looks at all workers or all tasks: `TaskClass.open`, `partly`, `takers`, `idle` and
`loaded` are kept up to date by `_refresh`.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from functools import partial
from itertools import islice
from math import isqrt
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.options import COLUMNS, NO_OPTIONS
from ..feature import Give, Place
from ..moves.locating import addresses_of, hashes_of
from ..records.peers import STUCK_S, TAKES_NOTHING, WorkerHandle
from ..records.prefixes import Prefix
from ..records.queues import ReadyQueue
from ..records.tasks import (
    MEMORY,
    PROCESSING,
    WAITING,
    Function,
    SchedulerTask,
    TaskClass,
    TaskGroup,
)
from .asking_back import LEAST_WAIT_S, MAX_LOADED_SEEN, ask_back, look_again
from .placement import ahead_worker, decide_worker

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Time that a message to a worker, and its answer, take here, apart from the rows.
MESSAGE_NS: Final = 50_000
#: A worker that holds so much more than its backlog gets no task of a newcomer.
MAX_EXCESS_NS: Final = 5_000_000
#: Classes with resources that are visited in one pass.
MAX_ASKING: Final = 32


class Draft:
    """The AssignTasks of one worker, while a pass fills its columns, and what they refer to."""

    __slots__ = ("for_workers", "function_index", "group", "index", "located", "message")

    def __init__(self) -> None:
        #: `spec_hashes` is empty until the first task that has one, `dependencies` until the first
        #: with dependencies, `n_raised` until the first of which an earlier attempt raised; the
        #: tables are filled in the end
        self.message = m.AssignTasks(
            functions=[],
            function_blobs=[],
            function_clients=[],
            function_of=[],
            keys=[],
            attempts=[],
            priorities=[],
            args=[],
            wanted=[],
            dependencies=[],
            located_keys=[],
            located_attempts=[],
            located_nbytes=[],
            located_holders=[],
            spec_hashes=[],
        )
        #: {(function, client, resources): place}, in order
        self.function_index: dict[tuple[Function, int, tuple[tuple[str, float], ...]], int] = {}
        #: the group of the last row, and the place of that group
        self.group: TaskGroup | None = None
        self.index = 0
        #: the options of rows that the worker needs to know
        self.for_workers: dict[str, None] = {}
        #: inputs in memory elsewhere
        self.located: dict[SchedulerTask, None] = {}

    def count_processing(self) -> None:
        """Add the tasks of the message to those that their functions have at workers."""
        if len(self.function_index) == 1:
            ((function, _, _),) = self.function_index
            function.prefix.n_processing += len(self.message.keys)
            return
        n_rows = Counter(self.message.function_of)
        for (function, _, _), place in self.function_index.items():
            function.prefix.n_processing += n_rows[place]

    def tasks_of(self, place: int, ws: WorkerHandle) -> list[SchedulerTask]:
        """Return the tasks of one function."""
        rows = zip(self.message.function_of, self.message.attempts, strict=True)
        return [ws.processing[attempt] for function, attempt in rows if function == place]


def settle(state: SchedulerState) -> None:
    """Assign the tasks that can be assigned; called at the end of every `handle`."""
    if state.busy:
        for record, settling in state.features.settling:
            if record in state.busy:
                settling(state)
    if state.touched:
        _refresh(state)
    if state.awaits_peers:
        state.ahead.clear()
        return  # what looks unfinished may be running at a worker that is not back yet
    if state.ready.plain or state.ready.asking.levels or state.ahead:
        drafts: dict[WorkerHandle, Draft] = {}
        ahead, state.ahead = state.ahead, {}
        for task in ahead:
            ws = ahead_worker(task, state.ahead)
            if ws is not None and (ws.has_room or _lets_go(task, ws)):
                assign(state, drafts, task, ws)
        if state.threadless:
            for placing in state.features.placing:
                placing(state, partial(assign, state, drafts))
        _assign_ready(state, drafts)
        if state.full:
            for placing_late in state.features.placing_late:
                placing_late(state, partial(assign, state, drafts))
        if state.ahead:
            for placing_split in state.features.placing_split:
                placing_split(state, drafts)
            state.ahead.clear()
        for ws, draft in drafts.items():
            send_draft(state, ws, draft)
        if state.touched:
            _refresh(state)
    if state.idle and state.loaded and not (state.ready.plain or state.ready.asking.levels):
        ask_back(state)


def _lets_go(task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Return whether a task frees a worker of a large result that is made there now."""
    if ws.closed & TAKES_NOTHING:
        return False
    return any(needed.group.prefix.result_nbytes for needed in task.dependencies)


def _assign_ready(state: SchedulerState, drafts: dict[WorkerHandle, Draft]) -> None:
    """Visit the classes that workers may have room for: best user priority first, then in turns.

    The first ones take the room that there is; a class that was served is the last one next time.
    """
    ready = state.ready
    if ready.asking.levels or len(ready.plain) != 1 or not next(iter(ready)).queue.is_plain:
        for task_class in ready.plain:
            if task_class.partly:
                task_class.open.update(task_class.partly)
                task_class.partly.clear()
    classes = [c for c in ready.plain if c.open or c.queue.rotation.has_new_lane]
    if ready.asking.levels and state.takers:
        _drop_takers(state, list(state.takers))
        classes += islice(ready.asking.waiting(max(state.takers.values(), default=0)), MAX_ASKING)
    served = []
    if len(classes) > 1:
        classes.sort(key=attrgetter("level", "turn"))
    for task_class in classes:
        queue = task_class.queue
        n_before = queue.n
        if task_class.resources:
            _assign_asking(state, drafts, task_class)
        else:
            _assign_class(state, drafts, task_class, task_class.open)
            if queue.n and queue.rotation.has_new_lane:
                _let_newcomer_in(state, drafts, task_class)
        if queue.n < n_before:
            ready.remove(task_class)
            served += [task_class] if queue.n else []
        elif task_class.resources:
            ready.put(task_class, task_class.level)
    for task_class in served:
        ready.put(task_class, task_class.queue.best_level())
    if ready.asking.levels and state.takers:
        for ws in [ws for ws, turn in state.takers.items() if turn < ready.asking.first_turn]:
            # It is back when it finishes something, or when a class has a task again.
            del state.takers[ws]
        if state.takers:
            look_again(state, LEAST_WAIT_S)


def _assign_asking(
    state: SchedulerState, drafts: dict[WorkerHandle, Draft], task_class: TaskClass
) -> None:
    """Give the tasks of a class with resources to the takers that they fit."""
    queue, members = task_class.queue, task_class.members
    while queue.n:
        fitting = (ws for ws in state.takers if ws in members and takes(ws, task_class, state.now))
        takers = list(islice(fitting, queue.n))
        if not takers:
            return
        _assign_class(state, drafts, task_class, OrderedDict.fromkeys(takers))
        _drop_takers(state, takers)


def takes(ws: WorkerHandle, task_class: TaskClass, now: float) -> bool:
    """Return whether a member of a class has room for the next of its tasks.

    None is assigned behind one that takes resources for long, or for a time that is not known.
    """
    if not task_class.resources:
        return ws.has_room and not ws.is_stuck(now)
    first = next(task_class.queue.some(), None)
    is_long = now - ws.last_progress > STUCK_S or (first and not first.group.prefix.n_finished)
    return ws.has_room_for(task_class, at_once=bool(is_long)) and not ws.is_stuck(now)


def _drop_takers(state: SchedulerState, takers: list[WorkerHandle]) -> None:
    """Take out workers that have nothing left, whatever a class asks for."""
    for ws in [ws for ws in takers if not ws.has_left(state.ready.names)]:
        state.takers.pop(ws, None)


def _assign_class(
    state: SchedulerState,
    drafts: dict[WorkerHandle, Draft],
    task_class: TaskClass,
    members_open: OrderedDict[WorkerHandle, None],
) -> None:
    """Give the tasks of a class to workers, in shares, until these have no room.

    It ends: each turn takes tasks out of the queue, or a worker out of the line. One for which a
    task was not placed has no room any more. Only those of `partly` come in, and none comes there.
    """
    queue = task_class.queue
    place: Place | None = None
    give: Give = assign
    # More than threads and time is looked at only where it may be scarce.
    is_scarce = bool(task_class.resources)
    if (state.prefixes.has_large or state.full) and state.features.careful is not None:
        place, give = state.features.careful
        is_scarce = True
    n_unvisited = 0
    while queue.n and members_open:
        if n_unvisited == 0:
            n_unvisited = len(members_open)
        ws = next(iter(members_open))
        if not takes(ws, task_class, state.now):
            # Another class, or a chain, has filled it in this very pass; or whatever it got now
            # would wait for a long task. It is back with the next thing that it finishes.
            del members_open[ws]
            n_unvisited -= 1
            continue
        share = -(-queue.n // n_unvisited)
        n_unvisited -= 1
        n_given = 0
        while n_given < share:
            task = queue.pop()
            if task is None:
                break
            if not n_given and queue.n:
                prefix = task.group.prefix
                is_end = queue.n * prefix.estimate_ns < ws.backlog_ns
                if is_end and task_class.partly and not (task.dependencies or task.dependents):
                    # It comes soonest if all have a part of it.
                    n_unvisited += len(task_class.partly)
                    members_open.update(task_class.partly)
                    task_class.partly.clear()
                    share = -(-(queue.n + 1) // (n_unvisited + 1))
                share = max(share, _least_share(queue.n, prefix))
            n_given += 1
            target: WorkerHandle | None = ws
            if place is not None:
                target = place(state, task, ws)
            elif task.dependencies:
                target = decide_worker(task, ws, state.now)
            if target is None:
                queue.put_back(task, task.group.client)
                break
            queue.left_ns -= task.group.prefix.estimate_ns
            give(state, drafts, task, target)
            if not (place or task.dependencies or n_given == share):
                n_most = share - n_given
                for name, amount in task_class.resources:
                    n_most = min(n_most, int(ws.free_resources[name] // amount))
                n_given += _assign_alike(state, drafts[ws], queue, ws, n_most)
            if is_scarce and not takes(ws, task_class, state.now):
                break
            if ws.occupancy_ns >= ws.backlog_ns and ws.n_busy >= ws.nthreads:
                break
        # To the end of the line, or out of it.
        if takes(ws, task_class, state.now):
            members_open.move_to_end(ws)
        else:
            members_open.pop(ws, None)  # one that has just become full is out already


def _assign_alike(
    state: SchedulerState,
    draft: Draft,
    queue: ReadyQueue[SchedulerTask],
    ws: WorkerHandle,
    n_most: int,
) -> int:
    """Assign the next tasks of the queue as long as they are like the one assigned just now.

    They are of the same group and have no links: the fused form of `pop` and `assign`. Return their
    number, which is 0 if the worker is full.
    """
    lane, group, message = queue.stretch, draft.group, draft.message
    if lane is None or group is None or state.n_exceptions or message.dependencies:
        return 0
    estimate = group.prefix.estimate_ns
    n_room = -((ws.occupancy_ns - ws.backlog_ns) // estimate)
    n_most = min(n_most, max(n_room, ws.nthreads - ws.n_busy), -(-queue.left_ns // estimate))
    first = attempt = state.next_attempt
    stop = first + n_most
    now, processing, run = state.now, ws.processing, lane.run
    keys, args, priorities, wanted = message.keys, message.args, message.priorities, message.wanted
    if_wanted = group.wanted
    while attempt < stop and run:
        _, ticket, task = run[0]
        if task.ticket == ticket:
            if task.group is not group or task.dependencies or task.dependents or task.spec_hash:
                break
            task.ticket = 0
            task.state = PROCESSING
            task.worker = ws
            task.attempt = attempt
            task.assigned = now
            task.estimate_ns = estimate
            processing[attempt] = task
            keys.append(task.key)
            args.append(task.args)
            priorities.append(task.priority)
            wanted.append(if_wanted if task.wanted_by else 0)
            attempt += 1
        run.popleft()
    n = attempt - first
    message.attempts.extend(range(first, attempt))
    message.function_of.extend([draft.index] * n)
    state.next_attempt = attempt
    ws.occupancy_ns += n * estimate
    if group.task_class.resources and n > 0:
        ws.hold(group.task_class.resources, n)
    queue.left_ns -= n * estimate
    queue.took(lane, n)
    return n


def _least_share(n_queued: int, prefix: Prefix) -> int:
    """Return how many short tasks should go in one message.

    The scheduler makes messages one after the other, so n tasks in shares of s take n / s messages,
    and the last share its time after that: the sum is least if a share is about the root of n times
    the ratio of the two times.
    """
    if not prefix.n_finished:
        return 1
    return isqrt(n_queued * MESSAGE_NS // prefix.estimate_ns)


def _let_newcomer_in(
    state: SchedulerState, drafts: dict[WorkerHandle, Draft], task_class: TaskClass
) -> None:
    """Give one task of the lane that is new to a worker that is full, but not stuck.

    A worker holds little more than its backlog, however often clients are new.
    """
    for ws in list(islice(state.loaded, MAX_LOADED_SEEN)):
        # The next newcomer goes to another one.
        del state.loaded[ws]
        state.loaded[ws] = None
        excess_ns = ws.occupancy_ns - ws.usual_backlog_ns
        if ws.closed or ws.is_stuck(state.now):
            continue
        if ws in task_class.members and excess_ns < MAX_EXCESS_NS:
            task = task_class.queue.pop()
            if task is not None:
                task_class.queue.left_ns -= task.group.prefix.estimate_ns
                assign(state, drafts, task, decide_worker(task, ws, state.now))
            return


def assign(
    state: SchedulerState, drafts: dict[WorkerHandle, Draft], task: SchedulerTask, ws: WorkerHandle
) -> None:
    """Move a task to processing, and assign ahead the tasks that may follow it.

    The task is out of its queue already, or waiting.
    """
    stack = [task]
    draft = drafts.get(ws)
    if draft is None:
        draft = drafts[ws] = Draft()
    message = draft.message
    state.touched[ws] = None
    n_exceptions, now = state.n_exceptions, state.now
    if not (ws.processing or ws.zombies) or (ws.blocked and not ws.n_busy):
        ws.last_progress = now
    while stack:
        task = stack.pop()
        if task.worker is not None:
            continue  # two of its inputs put it on the stack
        attempt = state.next_attempt
        state.next_attempt = attempt + 1
        if task.state == WAITING:
            task.waiting_on = None
            task.since = now
            state.counters.tasks_assigned_ahead += 1
        task.state = PROCESSING
        task.worker = ws
        task.attempt = attempt
        task.assigned = now
        group = task.group
        dependencies = task.dependencies
        estimate = group.prefix.estimate_ns
        task.estimate_ns = estimate
        ws.occupancy_ns += estimate
        ws.processing[attempt] = task
        resources = group.task_class.resources
        if resources:
            ws.hold(resources)
        if group is not draft.group:
            draft.group = group
            if group.options is not NO_OPTIONS:
                draft.for_workers.update(dict.fromkeys(group.options.for_workers))
            places = draft.function_index
            place = group.function, group.client, resources
            draft.index = places.setdefault(place, len(places))
        message.function_of.append(draft.index)
        message.keys.append(task.key)
        message.attempts.append(attempt)
        message.priorities.append(task.priority)
        message.args.append(task.args)
        message.wanted.append(group.wanted if task.wanted_by else 0)
        if task.spec_hash:
            hashes = message.spec_hashes
            hashes += [m.NO_HASH] * (len(message.keys) - 1 - len(hashes))
            hashes.append(task.spec_hash)
        if n_exceptions and task in n_exceptions:
            message.n_raised += [0] * (len(message.keys) - 1 - len(message.n_raised))
            message.n_raised.append(n_exceptions[task])
        if dependencies:
            if not message.dependencies:
                message.dependencies = [[] for _ in range(len(message.keys) - 1)]
            message.dependencies.append([d.key for d in dependencies])
            for dependency in dependencies:
                if dependency.state == MEMORY and ws not in dependency.replicas:
                    draft.located[dependency] = None
        elif message.dependencies:
            message.dependencies.append([])
        if task.dependents:
            stack.extend(
                dependent
                for dependent in task.dependents
                if dependent.state == WAITING
                and ws.occupancy_ns < ws.backlog_ns
                and ahead_worker(dependent, state.ahead) is ws
            )


def send_draft(state: SchedulerState, ws: WorkerHandle, draft: Draft) -> None:
    """Fill the tables of a worker's message, and send it."""
    message = draft.message
    asking = False
    for function, client, amounts in draft.function_index:
        if amounts:
            asking = True
        message.function_clients.append(client)
        message.functions.append(function.function_id)
        if ws in function.workers:
            message.function_blobs.append(None)
        else:
            function.workers[ws] = None
            ws.functions[function] = None
            message.function_blobs.append(function.blob)
        follow = state.features.assigned.get(function.function_id)
        if follow is not None:
            follow(state, draft.tasks_of(len(message.functions) - 1, ws))
    draft.count_processing()
    if asking:
        message.function_options = [
            {"resources": dict(amounts)} if amounts else {}
            for _, _, amounts in draft.function_index
        ]
    if message.spec_hashes:
        message.spec_hashes += [m.NO_HASH] * (len(message.keys) - len(message.spec_hashes))
    if message.n_raised:
        message.n_raised += [0] * (len(message.keys) - len(message.n_raised))
    for name in draft.for_workers:
        options = [ws.processing[attempt].group.options for attempt in message.attempts]
        setattr(message, COLUMNS[name], [getattr(one, name) for one in options])
    located = draft.located
    if located:
        message.located_keys = [t.key for t in located]
        message.located_attempts = [t.attempt for t in located]
        message.located_nbytes = [t.nbytes for t in located]
        message.located_holders = addresses_of(ws, (t.replicas for t in located))
        message.located_hashes = hashes_of(located)
    state.counters.tasks_assigned += len(message.keys)
    state.story.note(state.now, f"assigned to {ws.name}", message.keys)
    state.send(ws.peer, message)


def _refresh(state: SchedulerState) -> None:
    """Bring `open`, `idle` and `loaded` up to date for the workers whose load changed."""
    idle, loaded = state.idle, state.loaded
    for ws in state.touched:
        if ws.closed & TAKES_NOTHING or ws.peer not in state.workers:
            continue
        if ws.nbytes > ws.watched_above:
            for worker_filled in state.features.worker_filled:
                worker_filled(state, ws)
        n_processing = len(ws.processing)
        n_busy = n_processing + len(ws.zombies) - len(ws.blocked) - ws.n_apart
        if n_busy > 0 or ws.closed:
            idle.pop(ws, None)
        else:
            idle[ws] = None
        if n_processing and (n_busy > ws.nthreads or ws.n_behind):
            loaded[ws] = None
        elif loaded:
            loaded.pop(ws, None)
        has_room = ws.has_room and not ws.is_stuck(state.now)
        wants_more = has_room and ws.wants_more
        if wants_more and state.ready.asking.levels and ws.resources:
            state.takers[ws] = state.ready.asking.n_turns
            state.takers.move_to_end(ws, last=n_busy > 0)
        for task_class in ws.classes:
            if wants_more:
                task_class.partly.pop(ws, None)
                task_class.open[ws] = None
                if n_busy <= 0:
                    task_class.open.move_to_end(ws, last=False)
                continue
            task_class.open.pop(ws, None)
            if has_room:
                task_class.partly[ws] = None
            else:
                task_class.partly.pop(ws, None)
    state.touched.clear()
