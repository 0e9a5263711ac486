"""The seam between the kernel and its features.

The kernel is a task's life: the door (`state`), records, moves, requests, assignment, reports and
members. All else is features. A feature is one declaration, which says what the kernel calls and
when; a room has one or several. A feature may import the kernel; the kernel imports no feature and
names none. The features of a scheduler and their order are `features.FEATURES`, which the shell
gives to the state.

One event has one hook, and so one verb:

- A worker that registers for the first time has *joined*. A session of it, the first or a later
  one, is *connected*. It is *away* while it gets nothing: its line is broken, or what it has is not
  known yet. It is *back* when it may get work. It is *leaving* when it gets no more, and *gone*
  when its record is out of all tables and its tasks are placed again.
- A supervisor is *connected* and *gone*; it has no record that outlives its connection.
- A client is *connected* and *away*; it is *gone* when its wants have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ...protocol.metrics import Metric
from ...protocol.wire import messages as m
from ...protocol.wire.failure import Failure
from ...protocol.wire.levels import Level
from ...protocol.wire.message import Message
from ...protocol.wire.options import TaskOptions
from .records.peers import BlockedWait, ClientHandle, SupervisorHandle, WorkerHandle
from .records.question_arguments import Info, Page

if TYPE_CHECKING:
    from .events import SchedulerTick
    from .records.tasks import Function, SchedulerTask, TaskClass
    from .state import SchedulerState

#: `(state, sender, message)`
Handler: TypeAlias = "Callable[..., None]"
#: What breaks it.
Invariant: TypeAlias = "Callable[[SchedulerState], Iterable[object]]"
StateHook: TypeAlias = "Callable[[SchedulerState], None]"
WorkerHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle], None]"
SupervisorHook: TypeAlias = "Callable[[SchedulerState, SupervisorHandle], None]"
TaskHook: TypeAlias = "Callable[[SchedulerState, SchedulerTask], None]"
DeathHook: TypeAlias = (
    "Callable[[SchedulerState, WorkerHandle, m.WorkerExited, Collection[SchedulerTask],"
    " Collection[SchedulerTask]], None]"
)
PlacingHook: TypeAlias = (
    "Callable[[SchedulerState, Callable[[SchedulerTask, WorkerHandle], None]], None]"
)
#: `(task, a worker with room, now)` -> the worker
Decide: TypeAlias = "Callable[[SchedulerTask, WorkerHandle, float], WorkerHandle]"
Give: TypeAlias = "Callable[[SchedulerState, Any, SchedulerTask, WorkerHandle], None]"
DiedHook: TypeAlias = "Callable[[SchedulerState, SchedulerTask, str, str, bool], None]"
CancelledHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle, dict[int, str]], None]"
KeysHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle, list[str]], None]"
StaleHook: TypeAlias = "Callable[[SchedulerState, WorkerHandle, int, int | Failure | None], bool]"
ClientHook: TypeAlias = "Callable[[SchedulerState, ClientHandle], None]"


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
    #: results whose last copy it had, and that are computed again
    n_recomputed: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Feature:
    """What the kernel needs to know of a feature; all of it is optional but the name."""

    name: str
    #: the classes of its records, of which each state has one: `SchedulerState.record`
    records: tuple[type, ...] = ()
    handlers: Mapping[type[Message], Handler] = field(default_factory=dict)
    questions: Mapping[str, Question] = field(default_factory=dict)
    orders: Mapping[str, LateQuestion] = field(default_factory=dict)
    metrics: tuple[StateMetric, ...] = ()
    #: {what holds: what breaks it}
    invariants: Mapping[str, Invariant] = field(default_factory=dict)

    #: the `records` that are maps of tasks: a row ends when its task is forgotten
    notes: tuple[type[MutableMapping[SchedulerTask, Any]], ...] = ()
    #: ids of functions whose results are unique: they have no copies, and are not made again
    unique: frozenset[bytes] = frozenset()

    #: with the first event
    started: StateHook | None = None
    #: a peer registers: its id, and the last epoch that it has seen
    registering: Callable[[SchedulerState, str, int], None] | None = None
    #: a peer has proved that there was a later epoch: it is refused
    later_epoch: Callable[[SchedulerState, int], None] | None = None
    #: a worker was refused for good: its name, its host, and why; returns whether that is new
    worker_refused: Callable[[SchedulerState, str, str, str], bool] | None = None
    worker_joined: WorkerHook | None = None
    worker_connected: WorkerHook | None = None
    worker_away: WorkerHook | None = None
    worker_back: WorkerHook | None = None
    worker_leaving: WorkerHook | None = None
    worker_gone: Callable[[SchedulerState, WorkerHandle, Departure], None] | None = None
    #: the supervisor of a worker that is gone has reported how its process ended: that worker, the
    #: report, the results whose only copy it had, and the tasks that ran
    worker_died: DeathHook | None = None
    #: tasks are assigned from now on: no peer is waited for any more
    recovery_ended: StateHook | None = None
    #: a supervisor reports that the process of a worker has ended; that worker may be here still
    worker_exited: Callable[[SchedulerState, m.WorkerExited], None] | None = None
    #: with each assignment pass, first of all, while the feature's name is in `SchedulerState.busy`
    settling: StateHook | None = None
    #: before the others, with what gives a task to a worker: tasks of classes that take no thread
    placing: PlacingHook | None = None
    #: {function id: what follows when tasks of it are assigned}
    assigned: Mapping[bytes, Callable[[SchedulerState, list[SchedulerTask]], None]] = field(
        default_factory=dict
    )
    #: {function id: what follows when a client submits a task of it that another has submitted}
    submitted_again: Mapping[
        bytes, Callable[[SchedulerState, ClientHandle, SchedulerTask], None]
    ] = field(default_factory=dict)
    #: tasks are in memory, and clients not notified yet; while some class takes no thread
    values_stored: Callable[[SchedulerState, list[SchedulerTask]], None] | None = None
    #: after the others, with what gives a task to a worker, while a worker is `is_full`
    placing_late: PlacingHook | None = None
    #: how a worker is chosen, and given a task, where more than threads and time may be scarce
    careful: tuple[Decide, Give] | None = None
    #: a worker has more bytes than `WorkerHandle.watched_above`
    worker_filled: WorkerHook | None = None
    #: bytes that tasks will add which wait for room
    waiting_nbytes: Callable[[SchedulerState], int] | None = None
    #: a task that no worker could run is queued again, or dropped; while a feature is busy
    unfiled: TaskHook | None = None
    #: clients whose tasks no worker may run are sent the reason: the answer, for the users
    why_unrunnable: Callable[[SchedulerState, TaskClass], str] | None = None
    #: what a worker reports about its process is known
    worker_measured: WorkerHook | None = None
    #: a worker or supervisor has reported numbers about itself
    numbers_reported: Callable[[SchedulerState, Any, Sequence[int]], None] | None = None
    supervisor_connected: SupervisorHook | None = None
    supervisor_gone: SupervisorHook | None = None
    client_connected: Callable[[SchedulerState, ClientHandle, int], None] | None = None
    client_away: ClientHook | None = None
    client_gone: ClientHook | None = None
    #: a worker has added copies of these keys
    replicas_added: KeysHook | None = None
    #: a worker could not fetch these keys from where it was sent
    not_fetched: KeysHook | None = None
    #: a function has come; while `awaits_owners`
    function_made: Callable[[SchedulerState, Function], None] | None = None
    #: a worker will not have the data of a task any more
    replica_lost: Callable[[SchedulerState, SchedulerTask, WorkerHandle], None] | None = None
    #: tasks are submitted while there is none
    first_submitted: StateHook | None = None
    #: rows with a unique function were submitted
    unique_submitted: Callable[[SchedulerState, m.SubmitTasks], None] | None = None
    #: whether a peer may bring the task of a key that has none: the key, the hash of its content
    may_come: Callable[[SchedulerState, str, bytes], bool] | None = None
    #: keys have got tasks, and these are linked; of submissions only while `awaits_owners`
    tasks_made: Callable[[SchedulerState, Iterable[str]], None] | None = None
    #: a task without a recipe must run, and no worker may
    recipe_needed: TaskHook | None = None
    #: ... has got its recipe and its links; the worker and the attempt that ran it, if one did
    recipe_given: (
        Callable[[SchedulerState, SchedulerTask, WorkerHandle | None, int], None] | None
    ) = None
    #: a result is unneeded: whether it is kept all the same; while `awaits_owners`
    keeps_unneeded: Callable[[SchedulerState, SchedulerTask], bool] | None = None
    #: the last copies of tasks are gone: returns those that may be computed again
    results_lost: Callable[[SchedulerState, list[SchedulerTask]], list[SchedulerTask]] | None = None
    #: whether tasks may be submitted on behalf of an attempt that does not run, by their options
    may_submit: Callable[[SchedulerState, WorkerHandle, dict[str, Any], int], bool] | None = None
    #: a client in a task submits for no attempt that runs: the task for which it does, if any
    acts_for: Callable[[SchedulerState, TaskOptions], SchedulerTask | None] | None = None
    #: an attempt waits: for what
    attempt_blocked: Callable[[SchedulerState, WorkerHandle, int, BlockedWait], None] | None = None
    #: an attempt has ended that is not current: with a result of so many bytes, with a failure, or
    #: None, with neither; True = the worker is to keep what it has of that
    stale_ended: StaleHook | None = None
    #: an attempt raised, on this worker
    attempt_raised: Callable[[SchedulerState, SchedulerTask, str, Failure], None] | None = None
    #: a worker died under an attempt, or while it served the result of the task: its name, and why
    attempt_died: DiedHook | None = None
    #: a dropped attempt has ended, and how; while a feature is busy
    dropped_ended: Callable[[SchedulerState, int, int], None] | None = None
    #: a client cancels what runs: the attempts that were dropped, and the keys of their tasks
    running_cancelled: CancelledHook | None = None
    #: after the rows of a report were handled
    attempts_finished: Callable[[SchedulerState, WorkerHandle, m.AttemptsFinished], None] | None = (
        None
    )
    #: before the rows of a report are handled
    attempts_erred: Callable[[SchedulerState, WorkerHandle, m.AttemptsErred], None] | None = None
    #: a worker or client, by its id, has ended in order or is known to have died: it does not
    #: return
    ended: Callable[[SchedulerState, str], None] | None = None
    #: any connection has ended, also that of a viewer
    peer_closed: Callable[[SchedulerState, int], None] | None = None
    #: a peer does not know the message of a request
    unsupported: Callable[[SchedulerState, Any, int], None] | None = None
    #: something has happened that users may follow: its name, and facts
    reported: Callable[[SchedulerState, str, dict[str, Any]], None] | None = None
    #: what the shell has measured
    ticked: Callable[[SchedulerState, SchedulerTick], None] | None = None
    #: a task has failed by itself: why, and the name of its worker or ""
    task_failed: Callable[[SchedulerState, SchedulerTask, Failure, str], None] | None = None
    #: the scheduler is about to end
    finishing: StateHook | None = None


class Features:
    """The features of a state: the hooks of each event, in their order, and the other tables."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self.records: dict[type, Any] = {kind: kind() for f in features for kind in f.records}
        self.handlers: dict[type[Message], Handler] = {}
        self.questions: dict[str, Question] = {}
        self.orders: dict[str, LateQuestion] = {}
        self.metrics = [metric for f in features for metric in f.metrics]
        self.invariants: dict[str, Invariant] = {}
        self.notes = [self.records[kind] for f in features for kind in f.notes]
        self.unique = frozenset[bytes]().union(*(f.unique for f in features))
        for table in ("handlers", "questions", "orders", "invariants"):
            for feature in features:
                rows = getattr(feature, table)
                assert getattr(self, table).keys().isdisjoint(rows), feature.name
                getattr(self, table).update(rows)
        self.started = [f.started for f in features if f.started]
        self.registering = [f.registering for f in features if f.registering]
        self.later_epoch = [f.later_epoch for f in features if f.later_epoch]
        self.recovery_ended = [f.recovery_ended for f in features if f.recovery_ended]
        self.worker_refused = [f.worker_refused for f in features if f.worker_refused]
        self.worker_joined = [f.worker_joined for f in features if f.worker_joined]
        self.worker_connected = [f.worker_connected for f in features if f.worker_connected]
        self.worker_away = [f.worker_away for f in features if f.worker_away]
        self.worker_back = [f.worker_back for f in features if f.worker_back]
        self.worker_leaving = [f.worker_leaving for f in features if f.worker_leaving]
        self.worker_gone = [f.worker_gone for f in features if f.worker_gone]
        self.why_unrunnable = [f.why_unrunnable for f in features if f.why_unrunnable]
        self.worker_measured = [f.worker_measured for f in features if f.worker_measured]
        self.numbers_reported = [f.numbers_reported for f in features if f.numbers_reported]
        self.worker_died = [f.worker_died for f in features if f.worker_died]
        self.worker_exited = [f.worker_exited for f in features if f.worker_exited]
        self.settling = [(f.name, f.settling) for f in features if f.settling]
        self.placing = [f.placing for f in features if f.placing]
        self.assigned = {key: follow for f in features for key, follow in f.assigned.items()}
        self.submitted_again = {
            key: follow for f in features for key, follow in f.submitted_again.items()
        }
        self.values_stored = [f.values_stored for f in features if f.values_stored]
        self.placing_late = [f.placing_late for f in features if f.placing_late]
        self.careful = next((f.careful for f in features if f.careful), None)
        self.worker_filled = [f.worker_filled for f in features if f.worker_filled]
        self.waiting_nbytes = [f.waiting_nbytes for f in features if f.waiting_nbytes]
        self.unfiled = [f.unfiled for f in features if f.unfiled]
        self.supervisor_connected = [
            f.supervisor_connected for f in features if f.supervisor_connected
        ]
        self.supervisor_gone = [f.supervisor_gone for f in features if f.supervisor_gone]
        self.client_connected = [f.client_connected for f in features if f.client_connected]
        self.client_away = [f.client_away for f in features if f.client_away]
        self.client_gone = [f.client_gone for f in features if f.client_gone]
        self.replicas_added = [f.replicas_added for f in features if f.replicas_added]
        self.not_fetched = [f.not_fetched for f in features if f.not_fetched]
        self.replica_lost = [f.replica_lost for f in features if f.replica_lost]
        self.function_made = [f.function_made for f in features if f.function_made]
        self.first_submitted = [f.first_submitted for f in features if f.first_submitted]
        self.unique_submitted = [f.unique_submitted for f in features if f.unique_submitted]
        self.may_come = [f.may_come for f in features if f.may_come]
        self.tasks_made = [f.tasks_made for f in features if f.tasks_made]
        self.recipe_needed = [f.recipe_needed for f in features if f.recipe_needed]
        self.recipe_given = [f.recipe_given for f in features if f.recipe_given]
        self.keeps_unneeded = [f.keeps_unneeded for f in features if f.keeps_unneeded]
        self.stale_ended = [f.stale_ended for f in features if f.stale_ended]
        self.results_lost = [f.results_lost for f in features if f.results_lost]
        self.may_submit = [f.may_submit for f in features if f.may_submit]
        self.acts_for = [f.acts_for for f in features if f.acts_for]
        self.attempt_blocked = [f.attempt_blocked for f in features if f.attempt_blocked]
        self.attempt_raised = [f.attempt_raised for f in features if f.attempt_raised]
        self.attempt_died = [f.attempt_died for f in features if f.attempt_died]
        self.dropped_ended = [f.dropped_ended for f in features if f.dropped_ended]
        self.running_cancelled = [f.running_cancelled for f in features if f.running_cancelled]
        self.attempts_finished = [f.attempts_finished for f in features if f.attempts_finished]
        self.attempts_erred = [f.attempts_erred for f in features if f.attempts_erred]
        self.ended = [f.ended for f in features if f.ended]
        self.peer_closed = [f.peer_closed for f in features if f.peer_closed]
        self.unsupported = [f.unsupported for f in features if f.unsupported]
        self.reported = [f.reported for f in features if f.reported]
        self.ticked = [f.ticked for f in features if f.ticked]
        self.task_failed = [f.task_failed for f in features if f.task_failed]
        self.finishing = [f.finishing for f in features if f.finishing]
