"""What goes into `WorkerState.handle` and what comes out of it, messages aside.

Events and actions are batches of columns. Values never pass through here: the shell has put them
into its store, under the attempt that made them, before it tells.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from ...protocol.wire.failure import Failure
from ...protocol.wire.message import Message
from ...protocol.wire.payload import Blob
from .tasks import WorkerFunction, WorkerTask

# --- Events ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Received:
    """Messages from the scheduler, in order."""

    messages: Sequence[Message]


@dataclass(slots=True)
class ChunkDone:
    """What slot `slot` has done since its last event.

    The first four columns are the attempts whose values are in the store, the failed ones follow.
    The lists become part of a message: the shell must not use them again. With `finished` the chunk
    is empty and the slot asks for the next one, which is in `slots[slot].chunk` after `handle`; if
    that is empty, `Run` will wake the slot.
    """

    slot: int
    attempts: list[int]
    nbytes: list[int]
    durations_us: list[int]
    results: list[Blob | None]
    failed_attempts: list[int] = field(default_factory=list)
    failed_durations_us: list[int] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    finished: bool = True


@dataclass(slots=True)
class Fetched:
    """The answer to a `Fetch`: copies of `keys` are in the store; the holder has no others."""

    holder: str
    request: int
    keys: list[str]
    nbytes: list[int]


@dataclass(slots=True)
class FetchFailed:
    """A `Fetch` got no answer: the holder is out of reach, or its answer made no sense."""

    holder: str
    request: int
    reason: str


@dataclass(slots=True)
class SchedulerLost:
    """The scheduler is gone, and what it wanted with it: forget everything, say nothing."""


@dataclass(slots=True)
class Leave:
    """Finish what runs, start nothing more."""

    reason: str


Event: TypeAlias = Received | ChunkDone | Fetched | FetchFailed | Leave | SchedulerLost

# --- Actions --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Run:
    """Wake slot `slot`, which sleeps: there is work in its chunk."""

    slot: int
    chunk: deque[WorkerTask]


@dataclass(slots=True)
class Fetch:
    """Ask `holder` for `keys`, and put what comes into the store as `attempts`.

    Answered by exactly one `Fetched` or `FetchFailed`.
    """

    holder: str
    request: int
    keys: list[str]
    attempts: list[int]


@dataclass(slots=True)
class GiveUp:
    """End what `holder` was asked for; its outstanding `Fetch` is answered by a `FetchFailed`."""

    holder: str


@dataclass(slots=True)
class Forget:
    """Drop these attempts' values from the store. Some may not be there."""

    attempts: list[int]


@dataclass(slots=True)
class ForgetFunctions:
    """No new task will use these. The last reference goes outside the core, with the action."""

    functions: list[WorkerFunction]


#: What must be done before the messages of the same event leave.
Before: TypeAlias = Run | Forget | ForgetFunctions
#: What is done after them.
After: TypeAlias = Fetch | GiveUp
