"""The records of tasks and functions, and of the classes by which tasks are queued.

Owns the records and the comments that state their invariants (each is asserted, in this order).
Must never decide anything. A record is kept small (about 300 bytes with its index entries, plus key
and arguments): a million tasks have to fit beside each other, so nothing is allocated for a state
that a task is not in.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal

from ....protocol.amounts import BESIDE, CORES, amount_text
from ....protocol.rotation import LevelTurns
from ....protocol.wire.failure import Failure
from ....protocol.wire.messages import WANTED
from ....protocol.wire.options import NO_OPTIONS, TaskOptions
from ....protocol.wire.payload import Blob
from .prefixes import Prefix
from .queues import ReadyQueue
from .users import User

if TYPE_CHECKING:
    from ..state import SchedulerState
    from .deadlines import Deadline
    from .peers import ClientHandle, WorkerHandle

State = Literal[
    "released", "waiting", "queued", "no_worker", "processing", "memory", "erred", "forgotten"
]

RELEASED: Final = "released"  #: known (as lineage of something), neither data nor a reason to run
WAITING: Final = "waiting"  #: needed; some dependencies are not in memory
QUEUED: Final = "queued"  #: could run now; in its class's ready queue
NO_WORKER: Final = "no_worker"  #: could run now, but no worker of the cluster may run its class
PROCESSING: Final = "processing"  #: assigned to one worker, under one attempt
MEMORY: Final = "memory"  #: finished; at least one worker has the data
ERRED: Final = "erred"  #: failed, or depends on one that failed
FORGOTTEN: Final = "forgotten"  #: nowhere any more; only a stale reference can show this state

#: What most classes avoid.
NONE_AVOIDED: Final[Mapping[str, str]] = {}


class Function:
    """One pickled function, opaque, shipped to a worker at most once."""

    __slots__ = ("blob", "function_id", "is_unique", "n_tasks", "prefix", "workers")

    def __init__(self, function_id: bytes, blob: Blob, prefix: Prefix) -> None:
        self.function_id = function_id
        self.blob = blob
        self.prefix = prefix
        #: its results cannot be copied, nor made again
        self.is_unique = False
        #: tasks that use it; at 0 it is idle, and kept for a while (see `idle_functions`)
        self.n_tasks = 0
        #: workers that have the blob
        self.workers: dict[WorkerHandle, None] = {}


class IdleFunctions(dict[Function, None]):
    """Functions that no task uses, longest unused first: {function: None}."""

    def __init__(self, max_n: int) -> None:
        super().__init__()
        self.max_n = max_n
        self.nbytes = 0  #: sum of their blobs' sizes, exact


class TaskClass:
    """Tasks with equal restrictions and resources.

    They share a queue and the workers that may run them.
    """

    __slots__ = (
        "allow_other_workers",
        "avoided",
        "has_recipes",
        "is_deferred",
        "is_unbound",
        "keeps_inputs",
        "key",
        "level",
        "members",
        "n_tasks",
        "open",
        "partly",
        "queue",
        "resources",
        "shares_core",
        "takes_thread",
        "turn",
        "unrunnable",
        "unrunnable_notice",
        "unrunnable_since",
        "workers",
    )

    def __init__(
        self,
        key: tuple[object, ...],
        workers: tuple[str, ...],
        allow_other_workers: bool,
        resources: tuple[tuple[str, float], ...],
        avoided: Mapping[str, str] = NONE_AVOIDED,
        *,
        takes_thread: bool = True,
        keeps_inputs: bool = False,
        has_recipes: bool = True,
        is_deferred: bool = False,
    ) -> None:
        self.key = key
        #: names, hosts or addresses that may run it; empty = all
        self.workers = workers
        self.allow_other_workers = allow_other_workers
        self.resources = resources
        #: its tasks name less than one core, so they have no thread to give up while they wait
        self.shares_core = any(n == BESIDE or (n == CORES and a < 1) for n, a in resources)
        #: {worker id: why} of those that may not run it while others may: a feature avoids them
        self.avoided = avoided
        #: its loose restrictions do not bind: the workers that satisfy them take nothing for long
        self.is_unbound = False
        #: False for values that are brought: a feature places them, also where no thread is free
        self.takes_thread = takes_thread
        #: of these, those whose readers read the inputs of its tasks as well
        self.keeps_inputs = keeps_inputs
        #: False for the one class of tasks that no client can submit (`moves/without_recipe.py`)
        self.has_recipes = has_recipes
        #: True for tasks that wait for more than their inputs: no worker may run them. A feature
        #: gives them another class, or assigns them itself where amounts are free.
        self.is_deferred = is_deferred
        #: tasks in state queued, best first
        self.queue: ReadyQueue[SchedulerTask] = ReadyQueue()
        #: best user priority of a queued task, as a level, while one is queued; and its turn among
        #: the classes of this level, 0 while none is queued
        self.level = self.turn = 0
        #: tasks in state no_worker: `members` is empty, or their inputs are out of reach for now
        self.unrunnable: dict[SchedulerTask, None] = {}
        #: when the first of them was filed, or the last member left
        self.unrunnable_since = 0.0
        #: when clients are notified that the first of them waits; pending only while one does
        self.unrunnable_notice: Deadline | None = None
        #: workers that may run it
        self.members: dict[WorkerHandle, None] = {}
        #: members that have room for one more (`WorkerHandle.has_room`) and want more
        #: (`WorkerHandle.wants_more`), idle ones first; empty for a class with resources
        self.open: OrderedDict[WorkerHandle, None] = OrderedDict()
        #: members that have room and do not want more; some may be in `open` instead
        self.partly: OrderedDict[WorkerHandle, None] = OrderedDict()
        #: tasks of this class that are not forgotten; at 0 the class is dropped (the default class
        #: stays)
        self.n_tasks = 0

    @property
    def is_loose(self) -> bool:
        """True if some of its restrictions bind only while a worker satisfies all of them.

        So it is while no worker is avoided: that may change without a change of the class.
        """
        return self.allow_other_workers or self.avoided is not NONE_AVOIDED

    @property
    def restrictions(self) -> str:
        """Describe the requirements of this class for a worker."""
        parts = []
        if self.workers:
            parts.append("workers " + ", ".join(self.workers))
        parts.extend(f"{name}: {amount_text(name, amount)}" for name, amount in self.resources)
        return "; ".join(parts) or "any worker"


class ReadyClasses:
    """The classes with a queued task, in turns: one that was served is the last of its level."""

    __slots__ = ("asking", "names", "plain")

    def __init__(self) -> None:
        #: {class: None} of those without resources
        self.plain: dict[TaskClass, None] = {}
        #: those with resources; there may be thousands, so a pass looks at few of them
        self.asking: LevelTurns[TaskClass] = LevelTurns()
        #: {name: how many of these ask for it}
        self.names: Counter[str] = Counter()

    def __iter__(self) -> Iterator[TaskClass]:
        return chain(self.plain, self.asking)

    def __contains__(self, task_class: TaskClass) -> bool:
        return task_class.turn > 0

    def put(self, task_class: TaskClass, level: int) -> None:
        """Let a class be the last of this level."""
        if task_class.resources:
            if not task_class.turn:
                self.names.update(name for name, _ in task_class.resources)
            self.asking.put(task_class, level)
            return
        self.asking.n_turns += 1
        task_class.level, task_class.turn = level, self.asking.n_turns
        self.plain[task_class] = None

    def remove(self, task_class: TaskClass) -> None:
        """Take a class out, if it is there."""
        if task_class.resources:
            if task_class.turn:
                for name, _ in task_class.resources:
                    self.names[name] -= 1
                    if not self.names[name]:
                        del self.names[name]
            self.asking.remove(task_class)
        elif task_class.turn:
            task_class.turn = 0
            del self.plain[task_class]


class TaskGroup:
    """The common properties of the tasks of one submission."""

    __slots__ = (
        "client",
        "function",
        "generation",
        "is_limited",
        "needed_again",
        "options",
        "prefix",
        "submitted",
        "task_class",
        "user",
        "wanted",
    )

    def __init__(
        self,
        function: Function,
        task_class: TaskClass,
        generation: int,
        client: int,
        submitted: float = 0.0,
        options: TaskOptions = NO_OPTIONS,
        user: User | None = None,
    ) -> None:
        #: number of the client that submitted it first: clients take turns by this number, not by
        #: which of them want it now
        self.client = client
        self.user = user or User()
        #: features are asked before its tasks are queued (`Feature.holding`)
        self.is_limited = self.user.is_limited or options.may_be_held
        self.function = function
        self.prefix = function.prefix
        self.task_class = task_class
        #: submissions that came close together share one, see `priority.Ranks`
        self.generation = generation
        #: as they came, with the tags of the task that submitted it
        self.options = options
        #: when
        self.submitted = submitted
        #: see `AssignTasks`, for those of its tasks that are wanted
        self.wanted = WANTED
        #: called before a task of it that has lost its data, or was submitted again, is to run
        self.needed_again: Callable[[SchedulerState, SchedulerTask], None] | None = None

    def in_class(self, task_class: TaskClass) -> TaskGroup:
        """Return a group of the same tasks in another class."""
        common = self.generation, self.client, self.submitted, self.options, self.user
        group = TaskGroup(self.function, task_class, *common)
        group.wanted, group.needed_again = self.wanted, self.needed_again
        return group


class SchedulerTask:
    """One task. Which fields are set follows from `state`.

    Leaving a state drops what belongs to it.
    """

    __slots__ = (
        "args",
        "assigned",
        "attempt",
        "delivered",
        "dependencies",
        "dependents",
        "estimate_ns",
        "failure",
        "group",
        "key",
        "n_waiters",
        "nbytes",
        "priority",
        "replicas",
        "since",
        "spec_hash",
        "state",
        "ticket",
        "waiting_on",
        "wanted_by",
        "worker",
    )

    #: when the current attempt was assigned, or adopted; not set before the first one
    assigned: float
    #: when it last began to wait for a worker: its inputs were there, or it was taken back, or it
    #: was assigned ahead of its inputs; not set if that was at its submission
    since: float

    def __init__(self, key: str, group: TaskGroup, args: Blob | None, priority: int) -> None:
        #: `tasks[key] is self` until forgotten
        self.key = key
        self.group = group
        #: None = it named a dependency that is not known: erred, and not to be run again as it is;
        #: or nobody has submitted it yet (`is_without_recipe`)
        self.args = args
        #: smaller runs earlier, see `priority.py`
        self.priority = priority
        self.spec_hash: bytes | None = None
        self.state: State = RELEASED
        #: symmetric with `dependents`; acyclic, because they existed before this task did
        self.dependencies: tuple[SchedulerTask, ...] = ()
        #: {task: None} of all that depend on it, not forgotten; or a tuple of the only one so far
        self.dependents: dict[SchedulerTask, None] | tuple[SchedulerTask] | None = None
        #: how many `dependents` are waiting, queued, no_worker or processing: they will read the
        #: data; or in memory, and keep it for their own readers (`is_keeping`)
        self.n_waiters = 0
        #: clients that hold a future of it; symmetric with `ClientHandle.wants`
        self.wanted_by: tuple[ClientHandle, ...] = ()
        #: every client of `wanted_by` got the value itself: losing the data needs no new run
        self.delivered = False
        #: waiting only: {dependency: None}, all and only dependencies that are not in memory; in
        #: memory {} if its readers read its dependencies as well; else None
        self.waiting_on: dict[SchedulerTask, None] | None = None
        #: queued only: the entry of the ready queue that is this task's, not 0; else 0
        self.ticket = 0
        #: processing only: where; `worker.processing[attempt] is self`
        self.worker: WorkerHandle | None = None
        #: processing, memory: the current or producing attempt; else 0
        self.attempt = 0
        #: processing only: this task's share of `worker.occupancy_ns`; else 0
        self.estimate_ns = 0
        #: memory only: workers that have the data, at least one; exact inverse of
        #: `WorkerHandle.has_what`
        self.replicas: tuple[WorkerHandle, ...] = ()
        self.nbytes = 0
        #: erred only
        self.failure: Failure | None = None

    @property
    def is_without_recipe(self) -> bool:
        """True while no client has submitted it to this scheduler."""
        return not self.group.task_class.has_recipes

    @property
    def is_keeping(self) -> bool:
        """True if it is in memory, and its dependencies are kept for those that read it."""
        return self.state == MEMORY and self.waiting_on is not None

    def __repr__(self) -> str:
        return f"<SchedulerTask {self.key} {self.state}>"
