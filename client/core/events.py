"""What goes into the client's core and what comes out of it.

Events come through `ClientState.handle`. Operations are what users did, in the order in which they
did it; a bare `FutureState` among them is the release of one future, because that is by far the
most frequent one. Actions are what the shell must do besides sending `to_scheduler`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from ...protocol.wire.failure import Failure
from ...protocol.wire.message import Message
from ...protocol.wire.payload import Blob
from .tasks import FutureState, TaskColumns, TaskRecord, Watcher

# --- Operations -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Want:
    """Futures were made of keys that somebody else submitted."""

    states: list[FutureState]


@dataclass(slots=True)
class Cancel:
    """Drop these tasks if they have not finished."""

    states: list[FutureState]
    force: bool = False
    reason: str = ""


@dataclass(slots=True)
class Watch:
    """Tell `watcher` about each of these states once."""

    watcher: Watcher
    states: list[FutureState]


@dataclass(slots=True)
class Unwatch:
    """The watcher lost its patience."""

    watcher: Watcher
    states: list[FutureState]


@dataclass(slots=True)
class WatchCluster:
    """Tell `watcher` the number of workers as soon as there are `n_workers`."""

    watcher: Watcher
    n_workers: int


@dataclass(slots=True)
class AskInfo:
    """Tell `watcher` what the scheduler answers to GetClusterInfo."""

    watcher: Watcher


@dataclass(slots=True)
class Forget:
    """The watcher of a cluster or of an answer lost its patience."""

    watcher: Watcher


@dataclass(slots=True)
class Unreadable:
    """The result of `state` came, and unpickling it raised."""

    state: FutureState
    failure: Failure


@dataclass(slots=True)
class Confirm:
    """Tell `watcher` when the scheduler has read what was submitted before, or never will."""

    watcher: Watcher


@dataclass(slots=True)
class Send:
    """Send this message as it is."""

    message: Message


Operation: TypeAlias = (
    "FutureState | TaskRecord | TaskColumns | Want | Cancel | Watch | Unwatch | WatchCluster"
    " | AskInfo | Forget | Unreadable | Confirm | Send"
)

# --- Events ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Operations:
    """What users did since the last time, in order."""

    operations: list[Any]  #: of Operation; a list of a union would be checked item by item


@dataclass(slots=True)
class Received:
    """Messages from the scheduler, in order."""

    messages: list[Message]


@dataclass(slots=True)
class Fetched:
    """A worker answered a `FetchFrom`."""

    request: int
    keys: list[str]
    blobs: list[Blob | None]
    missing: list[str]


@dataclass(slots=True)
class FetchFailed:
    """A worker could not be asked, or did not answer."""

    request: int
    reason: str


@dataclass(slots=True)
class Connected:
    """The scheduler said Welcome."""

    epoch: int
    session: int


@dataclass(slots=True)
class Disconnected:
    """The connection is gone; another one is being tried."""

    reason: str


@dataclass(slots=True)
class Unsendable:
    """The protocol forbids this message, most often for its size; it was not sent."""

    message: Message
    reason: str


@dataclass(slots=True)
class GaveUp:
    """There will be no connection any more."""

    reason: str


@dataclass(slots=True)
class Closed:
    """The user closed the client."""


@dataclass(slots=True)
class Tick:
    """Time has passed; comes about once a second."""


Event: TypeAlias = (
    "Operations | Received | Fetched | FetchFailed | Connected | Disconnected | Unsendable"
    " | GaveUp | Closed | Tick"
)

# --- Actions --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Notify:
    """Call `watcher.on_ready(items)`."""

    watcher: Watcher
    items: list[Any]


@dataclass(slots=True)
class FetchFrom:
    """Ask the worker at `holder` for data; answer with `Fetched` or `FetchFailed`."""

    holder: str
    request: int
    keys: list[str]


@dataclass(slots=True)
class Warn:
    """Tell the user."""

    text: str


Action: TypeAlias = "Notify | FetchFrom | Warn"
