"""Limits of how many tasks of one user run at a time: more of them wait here, by their priorities.

A task of such a user is *granted* when it is queued, and until it has ended. So what is queued, and
what is next at a worker, counts as running: when a task is begun, is known at its worker only. A
task that waits for others while it runs does not count, or those could be held back by it. Values
that clients bring take no thread, and are not held back.

What is granted may need amounts that such a task holds while it waits. If all that counts does, a
held task passes that one waits for, one at a time: else no task of the user would ever go on.

Held tasks are no_worker. When others have ended they are queued, as many as may run. Tasks of such
a user are not assigned ahead of their inputs, which would pass by the queue. What workers bring
from an earlier scheduler goes on. Tasks that begin together are in no queue: they ask `lacks_room`,
and `grant` lets them begin.
"""

from __future__ import annotations

from collections.abc import Collection
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from ....protocol.wording import counted
from ..feature import Feature
from ..moves.transitions import ACTIVE, enqueue
from ..records.tasks import NO_WORKER, PROCESSING, QUEUED, SchedulerTask
from .user_limits import user_limits_of

if TYPE_CHECKING:
    from ..records.peers import BlockedWait, ClientHandle, WorkerHandle
    from ..records.users import User
    from ..state import SchedulerState


#: So many records of tasks that are not held any more are kept, beside as many as there are held.
MAX_DEAD: Final = 64


class RunningTasks:
    """The tasks of one user that may run, and those that wait for them to end."""

    __slots__ = ("_heap", "_n", "at_locks", "blocked", "granted", "held", "room")

    def __init__(self) -> None:
        #: {task: None} queued or processing, and some that have `moved` since the last pass
        self.granted: dict[SchedulerTask, None] = {}
        #: {task: None} of these, those that wait for others while they run
        self.blocked: dict[SchedulerTask, None] = {}
        #: {granted task: its attempt that waits for a lock or the like}; its worker may keep the
        #: thread, and does not report it then
        self.at_locks: dict[SchedulerTask, int] = {}
        #: {task: None} no_worker
        self.held: dict[SchedulerTask, None] = {}
        #: how many more may run; less than 0 after the limit was exceeded
        self.room = 0
        #: (priority, number, task), also of some that are not held any more
        self._heap: list[tuple[int, int, SchedulerTask]] = []
        self._n = 0

    def hold(self, task: SchedulerTask) -> None:
        """Let a task wait."""
        if task not in self.held:
            self.held[task] = None
            self._n += 1
            heappush(self._heap, (task.priority, self._n, task))

    def first(self) -> SchedulerTask | None:
        """Return the held task that is the next to run, if there is one; it is held no more."""
        while self._heap:
            task = heappop(self._heap)[2]
            if self.held.pop(task, self) is None:
                return task
        return None

    def tidy(self) -> None:
        """Drop the records of tasks that are not held any more, when they are the most."""
        if len(self._heap) > 2 * len(self.held) + MAX_DEAD:
            first = {record[2]: record for record in sorted(self._heap, reverse=True)}
            self._heap = [first[task] for task in self.held]
            heapify(self._heap)


class RunningLimits(dict["User", RunningTasks]):
    """{user that has a limit: its tasks}, none without tasks. Busy while it has rows."""

    def __init__(self) -> None:
        super().__init__()
        #: tasks that may count no more, or again, since the last pass: `moved` of all users here
        self.moved: list[SchedulerTask] = []


def running_limits_of(state: SchedulerState) -> RunningLimits:
    """Return the tasks of users that have a limit of running ones."""
    return state.record(RunningLimits)


def note_user(state: SchedulerState, user: User) -> None:
    """Look at the limit of a user that may be new."""
    user.is_limited = user_limits_of(state).of(user, "running") > 0


def _note_client(state: SchedulerState, client: ClientHandle, _last_epoch: int) -> None:
    note_user(state, client.user)


def _row_of(state: SchedulerState, user: User) -> RunningTasks:
    """Return the tasks of a user that has a limit."""
    limits = running_limits_of(state)
    row = limits.get(user)
    if row is None:
        row = limits[user] = RunningTasks()
        row.room = user_limits_of(state).of(user, "running")
        user.moved = limits.moved
        state.busy[RunningLimits] = None
    return row


def _hold(state: SchedulerState, task: SchedulerTask) -> bool:
    """Grant that a task is queued, or hold it back."""
    user = task.group.user
    if not (user.is_limited and task.group.task_class.takes_thread):
        return False
    row = _row_of(state, user)
    if task in row.granted:
        return False
    if row.room <= 0:
        row.hold(task)
        running_limits_of(state).moved.append(task)  # one that runs may wait for it
        return True
    row.held.pop(task, None)
    row.granted[task] = None
    row.room -= 1
    return False


def _on_unfiled(state: SchedulerState, task: SchedulerTask) -> None:
    """Note that a task is not held any more: it is queued, waits, was brought, or is dropped."""
    row = running_limits_of(state).get(task.group.user)
    if row is not None:
        row.held.pop(task, None)


def _on_blocked(state: SchedulerState, ws: WorkerHandle, attempt: int, wait: BlockedWait) -> None:
    """Look at a task that waits for others now, and at what it waits for."""
    for task in (ws.processing.get(attempt), _next_of(state, wait)):
        if task is not None and task.group.user.moved is not None:
            task.group.user.moved.append(task)


def note_lock_wait(state: SchedulerState, task: SchedulerTask, *, is_over: bool) -> None:
    """Note that a task that runs waits for a lock or the like, or does so no more."""
    row = running_limits_of(state).get(task.group.user)
    if row is not None and task in row.granted:
        if is_over:
            row.at_locks.pop(task, None)
        else:
            row.at_locks[task] = task.attempt
        running_limits_of(state).moved.append(task)


def _settle(state: SchedulerState) -> None:
    """Queue as many held tasks as others have ended; look only at what has moved."""
    limits = running_limits_of(state)
    users: dict[User, None] = {}
    while limits.moved:
        moved = dict.fromkeys(limits.moved)
        limits.moved.clear()
        for task in moved:
            if (row := limits.get(task.group.user)) is not None:
                users[task.group.user] = None
                _count(row, task)
        for user in users:
            row = limits[user]
            row.room = user_limits_of(state).of(user, "running") - n_running(row)
            while row.room > 0 and (first := row.first()) is not None:
                if first.state == NO_WORKER and first not in state.paused:
                    enqueue(state, first)
            if row.held and not (row.room > 0 or any(_goes_on(row, task) for task in row.granted)):
                _let_one_pass(state, row)
            row.tidy()
    for user in users:
        if not (limits[user].granted or limits[user].held):
            user.moved = None
            del limits[user]
    if not limits:
        del state.busy[RunningLimits]


def _count(row: RunningTasks, task: SchedulerTask) -> None:
    """Count a task that has moved as what it is now."""
    if task not in row.granted:
        if task.state != PROCESSING or not task.group.task_class.takes_thread:
            return
        row.granted[task] = None  # a worker has brought it
    row.blocked.pop(task, None)
    if task.state not in (QUEUED, PROCESSING):
        del row.granted[task]
        row.at_locks.pop(task, None)
    elif _is_blocked(row, task):
        row.blocked[task] = None


def _is_blocked(row: RunningTasks, task: SchedulerTask) -> bool:
    if task.worker is None:
        return False
    return task.attempt in task.worker.blocked or row.at_locks.get(task) == task.attempt


def _goes_on(row: RunningTasks, task: SchedulerTask) -> bool:
    """Return whether a granted task runs, or can begin before those that wait have ended."""
    if task in row.blocked:
        return False
    task_class = task.group.task_class
    names = [name for name, _ in task_class.resources]
    if task.worker is not None:
        return not (task.worker.n_behind and _keeps(row, task.worker, names))
    members = task_class.members
    return any(ws.has_resources_for(task_class) or not _keeps(row, ws, names) for ws in members)


def _keeps(row: RunningTasks, ws: WorkerHandle, names: Collection[str]) -> bool:
    """Return whether attempts that wait hold some of these amounts of a worker.

    Of those at locks or the like the worker may not have reported that they wait.
    """
    return any(map(ws.keeps, names)) or any(
        name in names
        for task in row.at_locks
        if task.worker is ws and task in row.blocked
        for name, _ in task.group.task_class.resources
    )


def _let_one_pass(state: SchedulerState, row: RunningTasks) -> None:
    """Queue a held task that one waits for while it runs, beyond the limit.

    What is granted waits for amounts that such tasks hold, so these would wait for each other.
    """
    for ws in state.workers.values():
        for wait in ws.blocked.values():
            task = _next_of(state, wait)
            if task in row.held and task not in state.paused:
                row.room = 1
                enqueue(state, task)
                row.room = 0
                return


def _next_of(state: SchedulerState, wait: BlockedWait) -> SchedulerTask | None:
    """Return a task that has to run before a wait can end, and needs no other one itself."""
    tasks = (state.tasks.get(key) for key in wait.keys)
    task = next((one for one in tasks if one is not None and one.state in ACTIVE), None)
    while task is not None and task.waiting_on:
        task = next(iter(task.waiting_on))
    return task


def n_running(row: RunningTasks) -> int:
    """Return how many tasks count against the limit of their user."""
    return len(row.granted) - len(row.blocked)


def limit_of(state: SchedulerState, task: SchedulerTask) -> int:
    """Return how many tasks of the task's user may run at a time; 0 = no limit for this task."""
    user = task.group.user
    if not (user.is_limited and task.group.task_class.takes_thread):
        return 0
    return user_limits_of(state).of(user, "running")


def lacks_room(state: SchedulerState, tasks: Collection[SchedulerTask]) -> bool:
    """Return whether tasks of one user may not begin together now, because of others of it."""
    task = next(iter(tasks))
    if not limit_of(state, task):
        return False
    row = running_limits_of(state).get(task.group.user)
    if row is None:
        return len(tasks) > limit_of(state, task)
    for moved in running_limits_of(state).moved:
        if moved.group.user is task.group.user:
            _count(row, moved)
    return len(tasks) > limit_of(state, task) - n_running(row)


def grant(state: SchedulerState, tasks: Collection[SchedulerTask]) -> None:
    """Note that tasks of one user begin together, for which there is room."""
    task = next(iter(tasks))
    if limit_of(state, task):
        row = _row_of(state, task.group.user)
        row.granted.update(dict.fromkeys(tasks))
        row.room -= len(tasks)


def is_held(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether a task waits until others of its user have ended."""
    row = running_limits_of(state).get(task.group.user)
    return row is not None and task in row.held


def why_held(state: SchedulerState, task: SchedulerTask) -> str:
    """Return why a task is held back; "" = it is not."""
    user = task.group.user
    row = running_limits_of(state).get(user)
    if row is None or task not in row.held:
        return ""
    limits = user_limits_of(state)
    who = f"user {user.name}" if user.name else "its client"
    setting = limits.setting(user, "running")
    return (
        f"{counted(n_running(row), 'task')} of {who} may run or run now, and scheduler.{setting} "
        f"is {limits.of(user, 'running')}; it is one of {len(row.held)} that wait until others end"
    )


FEATURE: Final = Feature(
    name="running limits",
    records=(RunningLimits,),
    client_connected=(_note_client,),
    holding=(_hold,),
    settling=((RunningLimits, _settle),),
    unfiled=(_on_unfiled,),
    attempt_blocked=(_on_blocked,),
    invariants={
        "tasks that are held back are no_worker, and there is no room for them": lambda s: [
            (task, row.room)
            for row in running_limits_of(s).values()
            for task in row.held
            if task.state != NO_WORKER or row.room > 0
        ],
        "what is granted runs, or has moved since the last pass": lambda s: [
            task
            for row in running_limits_of(s).values()
            for task in row.granted
            if (
                task.state not in (QUEUED, PROCESSING)
                or _is_blocked(row, task) != (task in row.blocked)
            )
            and task not in running_limits_of(s).moved
        ],
        "what waits for a lock was granted": lambda s: [
            task
            for row in running_limits_of(s).values()
            for task in row.at_locks
            if task not in row.granted
        ],
        "the tasks of a user are followed iff it has some here": lambda s: [
            user.name
            for user in {client.user: None for client in s.clients.values()}
            if (user in running_limits_of(s)) != (user.moved is not None)
        ],
        "what is queued of a limited user was granted": lambda s: [
            task
            for task in s.tasks.values()
            if task.state == QUEUED
            and task.group.user.is_limited
            and task.group.task_class.takes_thread
            and task not in running_limits_of(s)[task.group.user].granted
        ],
        "running limits are busy while there are tasks": lambda s: (
            [] if not running_limits_of(s) or RunningLimits in s.busy else [len(s.busy)]
        ),
    },
)
