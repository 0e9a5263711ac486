"""The seam between the kernel and its features.

The kernel is a task's life: the door (`state`), records, moves, requests, assignment, reports and
members. All else is features. A feature is one declaration, which says what the kernel calls and
when; a room has one or several. A feature may import the kernel; the kernel imports no feature and
names none. The features of a scheduler and their order are `features.FEATURES`, which the shell
gives to the state.

A hook is the place where the kernel says that something happens, without knowing who listens. Most
hooks have one user.

One event has one hook, and so one verb:

- A worker that registers for the first time has *joined*. A session of it, the first or a later
  one, is *connected*. It is *away* while it gets nothing: its connection is broken, or what it has
  is not known yet. It is *back* when it may get work. It is *leaving* when it gets no more, and
  *gone* when its record is out of all tables and its tasks are placed again.
- A supervisor is *connected* and *gone*; it has no record that outlives its connection.
- A client is *connected* and *away*; it is *gone* when its wants have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from ...protocol.metrics import Metric
from ...protocol.wire import messages as m
from ...protocol.wire.failure import Failure
from ...protocol.wire.levels import Level
from ...protocol.wire.message import Message
from ...protocol.wire.options import TaskOptions
from ...protocol.wire.question_arguments import Info, Page
from .records.peers import BlockedWait, ClientHandle, SupervisorHandle, WorkerHandle
from .records.presence import LostWorker

if TYPE_CHECKING:
    from ...protocol.death_facts import HeldResults
    from .assignment.assignment import Draft
    from .events import SchedulerTick
    from .records.tasks import Function, SchedulerTask, TaskClass
    from .state import SchedulerState

_Function = TypeVar("_Function")

#: What follows an event, of each feature that follows it, in the order of the features.
Hooks: TypeAlias = tuple[_Function, ...]

#: `(state, sender, message)`
Handler: TypeAlias = "Callable[..., None]"
#: What breaks it.
Invariant: TypeAlias = "Callable[[SchedulerState], Iterable[object]]"
StateHook: TypeAlias = "Callable[[SchedulerState], None]"
WorkerHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle], None]"
SupervisorHook: TypeAlias = "Callable[[SchedulerState, SupervisorHandle], None]"
ClientHook: TypeAlias = "Callable[[SchedulerState, ClientHandle], None]"
TaskHook: TypeAlias = "Callable[[SchedulerState, SchedulerTask], None]"
KeysHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle, list[str]], None]"
DeathHook: TypeAlias = (
    "Callable[[SchedulerState, LostWorker, m.WorkerExited, Collection[SchedulerTask]], None]"
)
NumbersHook: TypeAlias = (
    "Callable[[SchedulerState, WorkerHandle | SupervisorHandle, Sequence[int]], None]"
)
PlacingHook: TypeAlias = (
    "Callable[[SchedulerState, Callable[[SchedulerTask, WorkerHandle], None]], None]"
)
#: `(state, task, a worker with room)` -> the worker; None = the one with room has none any more
Place: TypeAlias = "Callable[[SchedulerState, SchedulerTask, WorkerHandle], WorkerHandle | None]"
#: `(state, the drafts of this pass, task, its worker)`
Give: TypeAlias = (
    "Callable[[SchedulerState, dict[WorkerHandle, Draft], SchedulerTask, WorkerHandle], None]"
)
AssignedHook: TypeAlias = "Callable[[SchedulerState, list[SchedulerTask]], None]"
RefusingHook: TypeAlias = (
    "Callable[[SchedulerState, ClientHandle, m.SubmitTasks, Mapping[int, Failure | None]],"
    " Mapping[int, Failure | None]]"
)
SubmittedHook: TypeAlias = "Callable[[SchedulerState, ClientHandle, SchedulerTask], None]"
RecipeHook: TypeAlias = "Callable[[SchedulerState, SchedulerTask, WorkerHandle | None, int], None]"
StaleHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle, int, int | Failure | None], bool]"
DiedHook: TypeAlias = "Callable[[SchedulerState, SchedulerTask, str, str, bool], None]"
AvoidingHook: TypeAlias = "Callable[[SchedulerState, TaskOptions], Mapping[str, str]]"
CancelledHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle, dict[int, str]], None]"
LostHook: TypeAlias = "Callable[[SchedulerState, list[SchedulerTask]], list[SchedulerTask]]"


class Question(NamedTuple):
    """A question that is answered at once, page by page."""

    answer: Callable[[SchedulerState, Info, str], Page]
    #: the least level of the token of the peer that asks
    least_level: Level = Level.VIEW


class LateQuestion(NamedTuple):
    """A question whose answer follows later, when what it asks for is done."""

    follow: Callable[[SchedulerState, int, m.Ask], None]
    least_level: Level


@dataclass(frozen=True, slots=True)
class StateMetric(Metric):
    """A metric that is read off the state on request."""

    #: the number, {value of the label: number}, or the plain form of a histogram
    read: Callable[[SchedulerState], Any] = lambda state: 0


class Departure(NamedTuple):
    """How a worker has gone."""

    #: the reason that it gave when it left in order; None = it was lost
    reason: str | None
    #: the report of its supervisor, if that came before
    report: m.WorkerExited | None
    #: tasks and results that it had
    n_tasks: int
    n_results: int
    #: its results by function, those with most bytes
    held_most: list[HeldResults]
    #: the tasks that it had begun, if it has left after it had given back the others
    running: Collection[SchedulerTask]


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Feature:
    """The declaration of a feature, for the kernel; all of it is optional but the name.

    All features of a state are one `Feature`: `protocol.seam` joins them.
    """

    name: str
    #: the classes of its records, of which each state has one: `SchedulerState.record`
    records: tuple[type, ...] = ()
    #: the `records` that are maps of tasks: a row ends when its task is forgotten
    notes: tuple[type[MutableMapping[SchedulerTask, Any]], ...] = ()
    handlers: Mapping[type[Message], Handler] = field(default_factory=dict)
    questions: Mapping[str, Question] = field(default_factory=dict)
    orders: Mapping[str, LateQuestion] = field(default_factory=dict)
    metrics: tuple[StateMetric, ...] = ()
    #: {what holds: what breaks it}
    invariants: Mapping[str, Invariant] = field(default_factory=dict)
    #: ids of functions whose results are unique: they have no copies, and are not made again
    unique: frozenset[bytes] = frozenset()

    # -- peers ------------------------------------------------------------------------------------
    #: a peer registers: its id, and the last epoch that it has seen
    registering: Hooks[Callable[[SchedulerState, str, int], None]] = ()
    #: a peer has proved that there was a later epoch: it is refused
    later_epoch: Hooks[Callable[[SchedulerState, int], None]] = ()
    #: a client that wants a key knows the unique result of its task, which may be without a recipe
    unique_wanted: Hooks[Callable[[SchedulerState, SchedulerTask], None]] = ()
    #: tasks are assigned from now on: no peer is waited for any more
    assignment_begun: Hooks[StateHook] = ()
    #: a worker or supervisor has reported numbers about itself
    numbers_reported: Hooks[NumbersHook] = ()
    #: a peer of any role does not know the message of a request
    unsupported: Hooks[Callable[[SchedulerState, object, int], None]] = ()
    #: any connection has ended, also that of a viewer
    peer_closed: Hooks[Callable[[SchedulerState, int], None]] = ()
    #: a worker or client, by its id, has ended in order or is known to have died: it does not
    #: return
    ended: Hooks[Callable[[SchedulerState, str], None]] = ()

    # -- workers and supervisors ------------------------------------------------------------------
    supervisor_connected: Hooks[SupervisorHook] = ()
    #: a worker was refused for good: its name, its host, and why; returns whether that is new
    worker_refused: Hooks[Callable[[SchedulerState, str, str, str], bool]] = ()
    worker_joined: Hooks[WorkerHook] = ()
    worker_connected: Hooks[WorkerHook] = ()
    worker_away: Hooks[WorkerHook] = ()
    worker_back: Hooks[WorkerHook] = ()
    #: a worker is back with all that it has: whether this feature gives it work, later
    admitting: Hooks[Callable[[SchedulerState, WorkerHandle], bool]] = ()
    #: a feature has opened a worker that it had closed
    worker_opened: Hooks[WorkerHook] = ()
    #: what a worker reports about its process is known
    worker_measured: Hooks[WorkerHook] = ()
    worker_leaving: Hooks[WorkerHook] = ()
    worker_gone: Hooks[Callable[[SchedulerState, WorkerHandle, Departure], None]] = ()
    #: a supervisor reports that the process of a worker has ended; that worker may be here still
    worker_exited: Hooks[Callable[[SchedulerState, m.WorkerExited], None]] = ()
    #: the supervisor of a worker that is gone has reported how its process ended: that worker and
    #: what it had, the report, and the tasks that ran
    worker_died: Hooks[DeathHook] = ()
    supervisor_gone: Hooks[SupervisorHook] = ()

    # -- clients ----------------------------------------------------------------------------------
    client_connected: Hooks[Callable[[SchedulerState, ClientHandle, int], None]] = ()
    client_away: Hooks[ClientHook] = ()
    client_gone: Hooks[ClientHook] = ()

    # -- submission -------------------------------------------------------------------------------
    #: a client submits tasks, some of which are refused: others, and why; None = it only wants them
    refusing: Hooks[RefusingHook] = ()
    #: a client in a task submits for no attempt that runs: the task for which it does, if any
    acts_for: Hooks[Callable[[SchedulerState, TaskOptions], SchedulerTask | None]] = ()
    #: whether tasks may be submitted on behalf of an attempt that is not current, by their options
    may_submit: Hooks[Callable[[SchedulerState, WorkerHandle, dict[str, Any], int], bool]] = ()
    #: tasks are submitted while there is none
    first_submitted: Hooks[StateHook] = ()
    #: rows with a unique function were submitted
    unique_submitted: Hooks[Callable[[SchedulerState, m.SubmitTasks], None]] = ()
    #: {option: what follows when a task with it is submitted, first or again}
    submitted_with: Mapping[str, TaskHook] = field(default_factory=dict)
    #: {function id: what follows when a client submits a task of it that another has submitted}
    submitted_again: Mapping[bytes, SubmittedHook] = field(default_factory=dict)
    #: a function has come; while `awaits_owners`
    function_made: Hooks[Callable[[SchedulerState, Function], None]] = ()
    #: keys have got tasks, and these are linked; of submissions only while `awaits_owners`
    tasks_made: Hooks[Callable[[SchedulerState, Iterable[str]], None]] = ()
    #: whether a peer may bring the task of a key that has none: the key, the hash of its content
    may_come: Hooks[Callable[[SchedulerState, str, bytes], bool]] = ()
    #: a task without a recipe must run, and no worker may
    recipe_needed: Hooks[TaskHook] = ()
    #: ... has got its recipe and its links; the worker and the attempt that ran it, if one did
    recipe_given: Hooks[RecipeHook] = ()
    #: an attempt of an earlier scheduler goes on; what it holds is not counted yet
    adopted: Hooks[TaskHook] = ()

    # -- assignment -------------------------------------------------------------------------------
    #: a deferred task has all its inputs, or is taken back
    deferred_ready: Hooks[TaskHook] = ()
    #: first with each assignment pass, while this record is in `SchedulerState.busy`
    settling: Hooks[tuple[type, StateHook]] = ()
    #: a class is looked for: what tasks with these options avoid (`TaskClass.avoided`), the same
    #: or equal for those of one class; NONE_AVOIDED = they need no other class
    avoiding: Hooks[AvoidingHook] = ()
    #: a worker has more bytes than `WorkerHandle.watched_above`
    worker_filled: Hooks[WorkerHook] = ()
    #: before the others, with what gives a task to a worker: tasks of classes that take no thread
    placing: Hooks[PlacingHook] = ()
    #: how a worker is chosen, and given a task, where more than threads and time may be scarce
    careful: tuple[Place, Give] | None = None
    #: after the others, with what gives a task to a worker, while a worker is `is_full`
    placing_late: Hooks[PlacingHook] = ()
    #: last of all: `ahead` has waiting tasks whose inputs are not all where these may run
    placing_split: Hooks[Callable[[SchedulerState, dict[WorkerHandle, Draft]], None]] = ()
    #: {function id: what follows when tasks of it are assigned}
    assigned: Mapping[bytes, AssignedHook] = field(default_factory=dict)
    #: a task of a group that `is_limited` could be queued: whether a feature holds it back; it
    #: is no_worker then, and the feature calls `enqueue` later
    holding: Hooks[Callable[[SchedulerState, SchedulerTask], bool]] = ()
    #: a task that no worker could run is queued again, or dropped; while a feature is busy
    unfiled: Hooks[TaskHook] = ()
    #: clients whose tasks no worker may run are sent the reason: the answer, for the users
    why_unrunnable: Hooks[Callable[[SchedulerState, TaskClass], str]] = ()
    #: bytes that tasks will add which wait for room
    waiting_nbytes: Hooks[Callable[[SchedulerState], int]] = ()

    # -- attempts and reports ---------------------------------------------------------------------
    #: an attempt waits: for what
    attempt_blocked: Hooks[Callable[[SchedulerState, WorkerHandle, int, BlockedWait], None]] = ()
    #: clients have cancelled these for all, and they are not released yet
    tasks_cancelled: Hooks[Callable[[SchedulerState, list[SchedulerTask]], None]] = ()
    #: a client cancels what runs: the attempts that were dropped, and the keys of their tasks
    running_cancelled: Hooks[CancelledHook] = ()
    #: an attempt that this worker may run is dropped
    attempt_abandoned: Hooks[Callable[[SchedulerState, WorkerHandle, SchedulerTask], None]] = ()
    #: a dropped attempt has ended, and how; while a feature is busy
    dropped_ended: Hooks[Callable[[SchedulerState, int, int], None]] = ()
    #: an attempt has ended that is not current: with a result of so many bytes, with a failure, or
    #: None, with neither; True = the worker is to keep what it has of that
    stale_ended: Hooks[StaleHook] = ()
    #: an attempt that is not current takes too long: whether the feature has dropped it
    stale_overdue: Hooks[Callable[[SchedulerState, WorkerHandle, int], bool]] = ()
    #: after the rows of a report were handled
    attempts_finished: Hooks[
        Callable[[SchedulerState, WorkerHandle, m.AttemptsFinished], None]
    ] = ()
    #: tasks are in memory, and clients not notified yet; while some class takes no thread
    values_stored: Hooks[Callable[[SchedulerState, list[SchedulerTask]], None]] = ()
    #: a result is unneeded: whether it is kept all the same; while `awaits_owners`
    keeps_unneeded: Hooks[Callable[[SchedulerState, SchedulerTask], bool]] = ()
    #: a task of a deferred class is unneeded: whether it is needed again from now on
    keeps_deferred: Hooks[Callable[[SchedulerState, SchedulerTask], bool]] = ()
    #: before the rows of a report are handled
    attempts_erred: Hooks[Callable[[SchedulerState, WorkerHandle, m.AttemptsErred], None]] = ()
    #: {kind of failure: what lets a task go on that has not failed with it, and returns the pause
    #: before that, seconds}
    moves_on: Mapping[str, Callable[[SchedulerState, SchedulerTask, WorkerHandle], float]] = field(
        default_factory=dict
    )
    #: an attempt raised, on this worker
    attempt_raised: Hooks[Callable[[SchedulerState, SchedulerTask, str, Failure], None]] = ()
    #: a worker died under an attempt, or while it served the result of the task: its name, and why
    attempt_died: Hooks[DiedHook] = ()
    #: a task has failed by itself: why, and the name of its worker or ""
    task_failed: Hooks[Callable[[SchedulerState, SchedulerTask, Failure, str], None]] = ()
    #: a worker has added copies of these keys
    replicas_added: Hooks[KeysHook] = ()
    #: a worker could not fetch these keys from where it was sent
    not_fetched: Hooks[KeysHook] = ()
    #: a worker will not have the data of a task any more
    replica_lost: Hooks[Callable[[SchedulerState, SchedulerTask, WorkerHandle], None]] = ()
    #: the last copies of tasks are gone: returns those that may be computed again
    results_lost: Hooks[LostHook] = ()

    # -- process ----------------------------------------------------------------------------------
    #: with the first event
    started: Hooks[StateHook] = ()
    #: what the shell has measured
    ticked: Hooks[Callable[[SchedulerState, SchedulerTick], None]] = ()
    #: something has happened that users may follow: its name, and facts
    reported: Hooks[Callable[[SchedulerState, str, dict[str, Any]], None]] = ()
    #: the scheduler is about to end
    finishing: Hooks[StateHook] = ()
