"""The record of one attempt, its function, and the slot that runs it.

Plain data. `transitions` lists the moves that exist; `validate` asserts the comments of this file.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ...protocol.wire.columns import MAX_SIZE
from ...protocol.wire.messages import ALONE, NO_HASH
from ...protocol.wire.payload import Blob

if TYPE_CHECKING:
    from .feature import Filing
    from .fetching import Peer

State: TypeAlias = Literal[
    "new",
    "waiting",
    "ready",
    "executing",
    "memory",
    "missing",
    "fetch",
    "flight",
    "cancelled",
    "released",
    "forgotten",
]

NEW: Final = "new"  #: in no container yet
WAITING: Final = "waiting"  #: a task, some input of which is not in memory
READY: Final = "ready"  #: a task with all inputs in memory, in the ready queue
EXECUTING: Final = "executing"  #: in a slot's chunk: started, or next in line (see `Slot.chunk`)
MEMORY: Final = "memory"  #: the value is in the store
MISSING: Final = "missing"  #: an input that is no task here, and of which no holder is known
FETCH: Final = "fetch"  #: a copy that a peer is to be asked for
FLIGHT: Final = "flight"  #: a copy that a peer has been asked for
CANCELLED: Final = "cancelled"  #: dropped after it had started; its result is thrown away
RELEASED: Final = "released"  #: dropped from memory, and read by unfinished tasks here
FORGOTTEN: Final = "forgotten"  #: in no container any more, except as litter, which is skipped

#: Where a slot is, as `seats.py` moves it.
Place: TypeAlias = Literal["seated", "blocked", "returning", "spare"]

SEATED: Final = "seated"  #: it may run tasks
BLOCKED: Final = "blocked"  #: its task waits for something, and another slot has its seat
RETURNING: Final = "returning"  #: its task could go on, and no seat is free
SPARE: Final = "spare"  #: it runs nothing, and its thread sleeps

#: The attempt of a record in state "missing" whose attempt is not known.
NO_ATTEMPT = -1


class WorkerFunction:
    """A function that tasks here use. Its pickle is opaque to the core."""

    __slots__ = ("blob", "call", "estimate_us", "filing", "id")

    def __init__(self, id: bytes, blob: Blob | None, filing: Filing | None = None) -> None:
        self.id = id
        #: What files its tasks, which are not run; None = they are.
        self.filing = filing
        #: None = the scheduler assumed that it is known here; its tasks fail with an error.
        self.blob = blob
        #: Predicted duration of one task, microseconds; 0 = none was measured yet.
        self.estimate_us = 0.0
        #: The callable that the executor unpickled from the blob. The core does not use it.
        self.call: Any = None


#: The function of records that are not tasks but copies of what other workers made.
NO_FUNCTION = WorkerFunction(b"", None)


class AttemptUsage:
    """What an attempt may use, and what it has used so far.

    An executor that runs it in processes of its own writes this in the thread of its slot, and the
    loop reads it (see `usage_of`).
    """

    __slots__ = (
        "cpu_us",
        "kind",
        "limit_nbytes",
        "peak_nbytes",
        "read_nbytes",
        "report_at",
        "written_nbytes",
    )

    def __init__(self, limit_nbytes: int) -> None:
        #: The memory that it may use.
        self.limit_nbytes = limit_nbytes
        #: OWN_PROCESS, ALONE or SHARED: whose memory was measured.
        self.kind = ALONE
        #: The most memory that was seen; 0 = none was seen.
        self.peak_nbytes = 0
        #: Of its own processes, or its thread; without `cpu_us` (0) none of them is known.
        self.cpu_us = 0
        self.read_nbytes = 0
        self.written_nbytes = 0
        #: When it is reported next that it uses too much.
        self.report_at = 0.0


class WorkerTask:
    """One attempt of one key: work to do here, or (a copy of) the value that it made."""

    #: what it knows of those that run with it; not set of others: the name of their run, its rank,
    #: and the addresses of the workers of all
    together: list[str]
    #: what it may use, and has used; not set of those that are not measured
    usage: AttemptUsage

    __slots__ = (
        "args",
        "arrived",
        "attempt",
        "client",
        "fetched",
        "function",
        "holders",
        "inputs",
        "key",
        "n_raised",
        "n_waiting_on",
        "nbytes",
        "peer",
        "pins",
        "priority",
        "slot",
        "spec_hash",
        "state",
        "together",
        "usage",
        "waiters",
        "wanted",
    )

    def __init__(
        self,
        key: str,
        attempt: int,
        priority: int,
        function: WorkerFunction,
        args: Blob,
        wanted: int,
        client: int = 0,
        spec_hash: bytes = NO_HASH,
    ) -> None:
        self.key = key
        self.attempt = attempt
        self.priority = priority  # smaller runs earlier
        self.function = function
        #: b"" once the task has finished, and for copies.
        self.args = args
        #: 1 = a client waits for the result, which is then sent with the report if it is small.
        self.wanted = wanted
        #: The number that the scheduler gave to the client for which it runs. Clients take turns.
        self.client = client
        #: Of the content of a task that a user named; NO_HASH = of another, or not known.
        self.spec_hash = spec_hash
        #: Exceptions of earlier attempts, which the next scheduler needs to know.
        self.n_raised = 0
        #: When it was assigned, and when the last input that was fetched for it came; seconds, 0 =
        #: none was, or it is a copy.
        self.arrived = 0.0
        self.fetched = 0.0
        self.state: State = NEW
        #: Records of the dependencies, in the order of the message. () once it has finished.
        self.inputs: list[WorkerTask] | tuple[()] = ()
        #: Number of inputs that are not in memory; 0 unless waiting.
        self.n_waiting_on = 0
        #: Tasks that had this as an input when it was not in memory; None when there are none.
        #: Some may not wait any more; they are skipped.
        self.waiters: list[WorkerTask] | None = None
        #: Number of times that unfinished tasks here have this among their inputs.
        self.pins = 0
        #: Bytes of the value: measured in memory, reported by the scheduler in fetch and flight.
        self.nbytes = 0
        #: Addresses that may still be asked, that of `peer` included. () unless in fetch or flight.
        self.holders: list[str] | tuple[()] = ()
        #: The peer in whose queue (fetch) or request (flight) it is; None otherwise.
        self.peer: Peer | None = None
        #: Index of the slot that runs it; -1 unless executing or cancelled.
        self.slot = -1

    def __lt__(self, other: WorkerTask) -> bool:
        """Return whether to run earlier. Called only in a heap, for the same attempt sent twice."""
        return (self.priority, self.attempt) < (other.priority, other.attempt)

    def __repr__(self) -> str:
        return f"<WorkerTask {self.key!r} attempt {self.attempt} {self.state}>"


@dataclass(slots=True, eq=False)
class Slot:
    """One executor thread, as the core sees it."""

    index: int
    #: Tasks to run next, best first. The executor takes from the left, the core gives and takes
    #: back at the right, both atomically: so a task that the core can still take has not started,
    #: and one that is executing and not in here has.
    chunk: deque[WorkerTask] = field(default_factory=deque)
    #: False = its thread sleeps, or is about to, and has to be woken with `Run`.
    busy: bool = False
    place: Place = SEATED
    #: Tasks in state executing or cancelled with this slot's index.
    n_executing: int = 0
    #: The time from the arrival of the first task of the chunk to the chunk's start, and the part
    #: of it until its last fetched input came; reported with all tasks of the chunk.
    queued_us: int = 0
    fetched_us: int = 0
    #: (name, amount) of each resource that it has, until its chunk is done: all tasks of the chunk
    #: ask for these.
    amounts: tuple[tuple[str, float], ...] = ()


def usage_of(task: WorkerTask) -> AttemptUsage:
    """Return where to write what an attempt uses that runs in processes of its own.

    For the thread of its slot, before the attempt has ended there. `kind` is to be OWN_PROCESS.
    """
    usage: AttemptUsage | None = getattr(task, "usage", None)
    if usage is None:
        usage = task.usage = AttemptUsage(MAX_SIZE)
    return usage
