"""The operations and events that the client's core takes, and the actions that it leaves.

Events come through `ClientState.handle`. Operations are the calls of users, in their order; a bare
`FutureState` among them is the release of one future, because that is by far the most frequent one.
Actions are the work of the shell besides sending messages: those of `ClientState.before` before it
sends, the others after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ...protocol.wire.failure import Failure
from ...protocol.wire.message import Message
from ...protocol.wire.payload import Blob
from .tasks import FutureState, TaskColumns, TaskRecord, Watcher

# --- Operations -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Want:
    """Get the results of keys that other clients submitted, because futures were made of them."""

    states: list[FutureState]


@dataclass(slots=True)
class Cancel:
    """Drop these tasks if they have not finished."""

    states: list[FutureState]
    force: bool = False
    reason: str = ""
    #: interrupt them if they run
    running: bool = False
    #: also those whose results exist and are not in this process
    finished: bool = False


@dataclass(slots=True)
class Withdraw:
    """Cancel these tasks if their calls have not begun; notify `watcher` of each, once."""

    watcher: Watcher
    states: list[FutureState]
    reason: str = ""


@dataclass(slots=True)
class Watch:
    """Notify `watcher` of each of these states once."""

    watcher: Watcher
    states: list[FutureState]


@dataclass(slots=True)
class Unwatch:
    """The watcher no longer waits for these: its time is over, or it was interrupted."""

    watcher: Watcher
    states: list[FutureState]


@dataclass(slots=True)
class RetryFailed:
    """Run the tasks of failed states again; they are pending from now on."""

    states: list[FutureState]


@dataclass(slots=True)
class WatchCluster:
    """Notify `watcher` of the number of workers as soon as there are `n_workers`."""

    watcher: Watcher
    n_workers: int


@dataclass(slots=True)
class AskScheduler:
    """Notify `watcher` of the answer to one page of a question.

    It is the message: an `Answer`, `AskFailed`, `Denied` or `Unsupported`; None at the end.
    """

    watcher: Watcher
    name: str
    arguments: dict[str, Any]
    page: str = ""
    #: the id of the process that the scheduler passes it on to; "" = none
    to: str = ""
    blobs: list[Blob | None] = field(default_factory=list)
    #: ask again after a lost connection, when it is unknown whether it was answered
    is_repeated: bool = True


@dataclass(slots=True)
class ForgetWatcher:
    """The watcher no longer waits for the cluster, or for an answer."""

    watcher: Watcher


@dataclass(slots=True)
class WaitFailed:
    """The wait of `watcher` would have no end: notify it with this object."""

    watcher: Watcher
    text: str


@dataclass(slots=True)
class CallEnded:
    """A call of an actor has ended that `watcher` waits for: notify it with the call."""

    watcher: Watcher
    call: Any  #: an `ActorFuture`; the core does not look into it


@dataclass(slots=True)
class Loaded:
    """The result of `state` was unpickled: its pickle is only a recipe now."""

    state: FutureState


@dataclass(slots=True)
class Unreadable:
    """The result of `state` arrived, and unpickling it raised."""

    state: FutureState
    failure: Failure


@dataclass(slots=True)
class Confirm:
    """Notify `watcher` when the scheduler has read all earlier submissions, or never will."""

    watcher: Watcher
    #: Only of these states; None = of all.
    states: list[FutureState] | None = None


@dataclass(slots=True)
class Loan:
    """Keys of another client that a submission reads."""

    lender: str  #: its name, for display
    keys: dict[str, None]
    #: The scheduler has the keys, or will never have them, or it took too long.
    is_settled: bool = False


@dataclass(slots=True)
class Borrow:
    """Submit this when all loans are settled."""

    task: TaskRecord | TaskColumns
    loans: list[Loan]


@dataclass(slots=True)
class Lent:
    """The lending client has done its part."""

    loan: Loan


@dataclass(slots=True)
class SendInOrder:
    """Send a message that nothing answers: behind earlier submissions, before later ones.

    Without a session it is dropped: the first messages of the next one say the same.
    """

    message: Message


@dataclass(slots=True, eq=False)
class ObjectCall:
    """Notify `watcher` of the answer: `Operated`, `Denied`, `Unsupported`; None at the end."""

    watcher: Watcher | None
    kind: str
    name: str
    operation: str
    arguments: dict[str, Any]
    values: list[Blob | None] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    #: of the message; 0 until the core has read of it
    request: int = 0
    #: number of sessions in which it was sent
    n_sent: int = 0
    #: it was late, and the scheduler has been started again since this client came
    is_after_restart: bool = False
    #: number of values of a queue that its answer gave
    n_given: int = 0
    #: when its caller has waited long enough, by the clock of the events; None = never
    due: float | None = None
    #: it waits for what a client has set, which may be lost with the scheduler
    awaits_set: bool = False
    #: of the scheduler when it released a lease that the client had; -1 = it does not
    released_epoch: int = -1


@dataclass(slots=True)
class AnswerTaken:
    """The caller has what the answer gave."""

    call: ObjectCall
    #: the scheduler keeps futures until it reads of this
    has_futures: bool = False


@dataclass(slots=True)
class CallAbandoned:
    """The caller waits no more: withdraw the call, or give back what its answer gave."""

    call: ObjectCall


@dataclass(slots=True)
class ShutDown:
    """Stop the cluster; notify `watcher` with None when the connection ends, or with `Denied`."""

    watcher: Watcher
    reason: str


Operation: TypeAlias = (
    "FutureState | TaskRecord | TaskColumns | Want | Cancel | Withdraw | RetryFailed | Watch"
    " | Unwatch | WatchCluster | AskScheduler | ForgetWatcher | Loaded | Unreadable | Confirm"
    " | Borrow | Lent | SendInOrder | ShutDown | WaitFailed | CallEnded | ObjectCall | AnswerTaken"
    " | CallAbandoned"
)

# --- Events ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Operations:
    """The operations of users since the last event of this type, in order."""

    operations: list[Any]  #: of Operation; a list of a union would be checked item by item


@dataclass(slots=True)
class AnswersReceived:
    """Messages from the scheduler, in order."""

    messages: list[Message]


@dataclass(slots=True)
class ResultsFetched:
    """A worker answered a `FetchFrom`."""

    request: int
    keys: list[str]
    blobs: list[Blob | None]


@dataclass(slots=True)
class ResultsNotFetched:
    """A worker could not be asked, or did not answer."""

    request: int
    reason: str


@dataclass(slots=True)
class PutEnded:
    """A `PutAt` was done; or it was not, for a reason."""

    request: int
    reason: str = ""


@dataclass(slots=True)
class Connected:
    """The scheduler sent Welcome: a session begins. Another epoch means another scheduler."""

    epoch: int = 0
    #: How long there was no session, in seconds; 0 = not so long that the user was told of it.
    reported_outage_s: float = 0.0


@dataclass(slots=True)
class Disconnected:
    """The connection was lost; the shell tries to reconnect."""


@dataclass(slots=True)
class RecipesSpilled:
    """The records of `SpillRecipes` were written, or not; those of `map` have one blob per row."""

    args: list[Blob | Sequence[Blob]] | None
    #: Why they were not written.
    reason: str = ""


@dataclass(slots=True)
class Unsendable:
    """The protocol forbids this message, most often for its size; it was not sent."""

    message: Message
    reason: str


@dataclass(slots=True)
class GaveUp:
    """The shell has stopped trying to reconnect."""

    reason: str


@dataclass(slots=True)
class ClientClosing:
    """The user closed the client."""


@dataclass(slots=True)
class ClientTick:
    """Time has passed; the event comes several times a second."""


Event: TypeAlias = (
    "Operations | AnswersReceived | ResultsFetched | ResultsNotFetched | PutEnded | Connected"
    " | Disconnected | RecipesSpilled | Unsendable | GaveUp | ClientClosing | ClientTick"
)

# --- Actions --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Notify:
    """Call `watcher.on_ready(items)`."""

    watcher: Watcher
    items: list[Any]


@dataclass(slots=True)
class FetchFrom:
    """Ask the worker at `holder` for data; answer with `ResultsFetched` or `ResultsNotFetched`."""

    holder: str
    request: int
    keys: list[str]


@dataclass(slots=True)
class PutAt:
    """Send a value to the worker at `holder`, as that of `attempt`; answer with `PutEnded`."""

    holder: str
    request: int
    key: str
    attempt: int
    value: Blob


@dataclass(slots=True)
class SpillRecipes:
    """Write the arguments of these records into a file; answer with `RecipesSpilled`."""

    records: list[TaskRecord | TaskColumns]


@dataclass(slots=True)
class Warn:
    """Log a warning for the user."""

    text: str


@dataclass(slots=True)
class EndSession:
    """Give up for good: the cluster was stopped."""

    reason: str


Action: TypeAlias = "EndSession | FetchFrom | PutAt | SpillRecipes | Warn"
