"""The operations and events that the client's core takes, and the actions that it leaves.

Events come through `ClientState.handle`. Operations are the calls of users, in their order; a bare
`FutureState` among them is the release of one future, because that is by far the most frequent one,
and a `TaskRecord` or `TaskColumns` is a submission. Features have operations of their own. Actions
are the work of the shell besides sending messages: those of `ClientState.before` before it sends,
the others after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
class ForgetWatcher:
    """The watcher no longer waits for an answer."""

    watcher: Watcher


@dataclass(slots=True)
class Tell:
    """Notify `watcher` of this item, behind all earlier operations; on any thread."""

    watcher: Watcher
    item: Any = None


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


# --- Events ---------------------------------------------------------------------------------------


class ClientEvent:
    """Something that the shell reports to the core. Features have events of their own."""

    __slots__ = ()


@dataclass(slots=True)
class Operations(ClientEvent):
    """The operations of users since the last event of this type, in order."""

    operations: list[Any]


@dataclass(slots=True)
class AnswersReceived(ClientEvent):
    """Messages from the scheduler, in order."""

    messages: list[Message]


@dataclass(slots=True)
class ResultsFetched(ClientEvent):
    """A worker answered a `FetchFrom`."""

    request: int
    keys: list[str]
    blobs: list[Blob | None]


@dataclass(slots=True)
class ResultsNotFetched(ClientEvent):
    """A worker could not be asked, or did not answer."""

    request: int
    reason: str


@dataclass(slots=True)
class Connected(ClientEvent):
    """The scheduler sent Welcome: a session begins. Another epoch means another scheduler."""

    epoch: int = 0
    #: How long there was no session, in seconds; 0 = not so long that the user was told of it.
    reported_outage_s: float = 0.0


@dataclass(slots=True)
class Disconnected(ClientEvent):
    """The connection was lost; the shell tries to reconnect."""


@dataclass(slots=True)
class RecipesSpilled(ClientEvent):
    """The records of `SpillRecipes` were written, or not; those of `map` have one blob per row."""

    args: list[Blob | Sequence[Blob]] | None
    #: Why they were not written.
    reason: str = ""


@dataclass(slots=True)
class Unsendable(ClientEvent):
    """The protocol forbids this message, most often for its size; it was not sent."""

    message: Message
    reason: str


@dataclass(slots=True)
class GaveUp(ClientEvent):
    """The shell has stopped trying to reconnect."""

    reason: str


@dataclass(slots=True)
class ClientClosing(ClientEvent):
    """The user closed the client."""


@dataclass(slots=True)
class ClientTick(ClientEvent):
    """Time has passed; the event comes several times a second."""


# --- Actions --------------------------------------------------------------------------------------


class ClientAction:
    """Something that the core leaves for the shell. Features have actions of their own."""

    __slots__ = ()


@dataclass(slots=True)
class Notify(ClientAction):
    """Call `watcher.on_ready(items)`."""

    watcher: Watcher
    items: list[Any]


@dataclass(slots=True)
class FetchFrom(ClientAction):
    """Ask the worker at `holder` for data; answer with `ResultsFetched` or `ResultsNotFetched`."""

    holder: str
    request: int
    keys: list[str]


@dataclass(slots=True)
class SpillRecipes(ClientAction):
    """Write the arguments of these records into a file; answer with `RecipesSpilled`."""

    records: list[TaskRecord | TaskColumns]


@dataclass(slots=True)
class Warn(ClientAction):
    """Log a warning for the user."""

    text: str


@dataclass(slots=True)
class EndSession(ClientAction):
    """Give up for good: the cluster was stopped."""

    reason: str
