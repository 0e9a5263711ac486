"""The events that `WorkerState.handle` takes, and the actions that it leaves for the shell.

These are the kernel's; features have events and actions of their own, beside their handlers. Both
are batches of columns. Values never pass through here: the shell has put them
into its store, under the attempt that made them, before it reports them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...protocol.wire.failure import Failure
from ...protocol.wire.message import Message
from ...protocol.wire.payload import Blob
from .tasks import WorkerFunction

# --- Events ---------------------------------------------------------------------------------------


class WorkerEvent:
    """Something that the shell reports to the core."""

    __slots__ = ()


@dataclass(slots=True)
class SchedulerSent(WorkerEvent):
    """Messages from the scheduler, in order."""

    messages: Sequence[Message]


@dataclass(slots=True)
class ChunkDone(WorkerEvent):
    """The attempts that slot `slot` has finished since its last event.

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
    #: The types of the values, if a feature needs them.
    types: list[str] | None = None
    #: {attempt: how long it waited without a seat}, of those that did.
    waited_us: dict[int, int] | None = None


@dataclass(slots=True)
class CopiesFetched(WorkerEvent):
    """The answer to a `Fetch`: copies of `keys` are in the store; the holder has no others."""

    holder: str
    request: int
    keys: list[str]
    nbytes: list[int]


@dataclass(slots=True)
class CopiesNotFetched(WorkerEvent):
    """A `Fetch` got no answer: the holder is out of reach, or its answer was invalid."""

    holder: str
    request: int


@dataclass(slots=True)
class CopiesElsewhere(WorkerEvent):
    """The answer to a `Fetch` of large copies: another worker has them by now, and gives them."""

    holder: str
    request: int
    elsewhere: str


@dataclass(slots=True)
class SchedulerLost(WorkerEvent):
    """The connection to the scheduler has ended: keep everything and go on, report nothing."""


@dataclass(slots=True)
class SessionOpened(WorkerEvent):
    """The scheduler, the same or a new one, sent its welcome."""

    is_first: bool  #: this process has had no session before: it has nothing


@dataclass(slots=True)
class WorkerEnding(WorkerEvent):
    """The worker ends now: forget everything, and start nothing more."""


@dataclass(slots=True)
class Leave(WorkerEvent):
    """Finish the running tasks and start no others; `EndWorker` follows, once, when it may.

    After `within_s` the shell ends the worker in any case; 0 = it does not.
    """

    reason: str
    within_s: float = 0.0


@dataclass(slots=True)
class SlotBlocked(WorkerEvent):
    """The task of slot `slot` waits from now on. All that the slot has finished was reported."""

    slot: int
    attempt: int
    #: {column of `AttemptsBlocked`: the first of what it waits for, of this kind}; empty: it waits
    #: for something else, or for a limited time.
    waits_for: dict[str, list[str]] = field(default_factory=dict)
    #: If many tasks wait here already, no other one is to be started in its place.
    may_park: bool = False


@dataclass(slots=True)
class SlotWaits(WorkerEvent):
    """The task of slot `slot`, which has given its seat up for good, begins or ends a wait."""

    slot: int
    #: As `SlotBlocked` has it; empty: it waits for nothing that is known.
    waits_for: dict[str, list[str]] = field(default_factory=dict)


@dataclass(slots=True)
class SlotResumes(WorkerEvent):
    """The task of slot `slot` could go on: give it a seat, now or later with `Run`."""

    slot: int


# --- Actions --------------------------------------------------------------------------------------


class WorkerAction:
    """Something that the core leaves for the shell. Features have actions of their own."""

    __slots__ = ()


@dataclass(slots=True)
class Run(WorkerAction):
    """Wake slot `slot`, which sleeps: there is work in its chunk, or its task may go on."""

    slot: int


@dataclass(slots=True)
class StartSlot(WorkerAction):
    """Start the thread of a new slot, which sleeps."""

    slot: int


@dataclass(slots=True)
class TakeSeat(WorkerAction):
    """Count the time of slot `slot` from now on: it has a seat."""

    slot: int


@dataclass(slots=True)
class LeaveSeat(WorkerAction):
    """Do not count the time of slot `slot` any more: it has no seat."""

    slot: int


@dataclass(slots=True)
class Fetch(WorkerAction):
    """Request `keys` from `holder`, and put the values that arrive into the store as `attempts`.

    Answered by exactly one `CopiesFetched`, `CopiesElsewhere` or `CopiesNotFetched`.
    """

    holder: str
    request: int
    keys: list[str]
    attempts: list[int]
    nbytes: int  #: of all of them, as the scheduler knows it


@dataclass(slots=True)
class EndFetch(WorkerAction):
    """End all requests to `holder`, which is lost; a `Fetch` is answered by `CopiesNotFetched`."""

    holder: str


@dataclass(slots=True)
class ForgetValues(WorkerAction):
    """Drop these attempts' values from the store. Some may not be there."""

    attempts: list[int]


@dataclass(slots=True)
class ForgetFunctions(WorkerAction):
    """Drop functions that no new task will use. The action holds the last reference to each."""

    functions: list[WorkerFunction]


@dataclass(slots=True)
class FailWait(WorkerAction):
    """End the wait of an attempt with an error: it waits for itself, by way of others."""

    attempt: int
    text: str


@dataclass(slots=True)
class InterruptRunning(WorkerAction):
    """Interrupt these attempts as long as they run; they are in `WorkerState.cancelled`."""

    attempts: list[int]


@dataclass(slots=True)
class EndWorker(WorkerAction):
    """End the worker as soon as the messages are sent: it leaves, and no task runs any more."""
