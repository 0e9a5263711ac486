"""Messages about coordination objects: locks, events, queues and others."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from ..message import Blobs, Info, Ints, KeyLists, Keys, Message, Number, Text, message
from ..roles import CLIENTS

#: Kinds of coordination objects.
LOCK: Final = "lock"
SEMAPHORE: Final = "semaphore"
MULTILOCK: Final = "multilock"
LIMIT: Final = "limit"
EVENT: Final = "event"
COUNT_DOWN: Final = "countdown"
QUEUE: Final = "queue"
VARIABLE: Final = "variable"
#: Values that are kept under a name, and a tree of plain data; one object of each kind.
DATASET: Final = "dataset"
METADATA: Final = "metadata"
DATASETS_NAME: Final = "datasets"
METADATA_NAME: Final = "metadata"
#: Events that are logged under a name.
TOPIC: Final = "topic"
#: The topic of the scheduler's own events.
OWN_TOPIC: Final = "scheduler"
#: Tasks that go on although no client wants them; there is one object of this kind.
BACKGROUND: Final = "background"

# Operations of a client's session, on no object.
#: Nothing but the acknowledgements is meant.
NOTE: Final = "note"
#: A session begins: only the calls in the argument `pending` are not answered for the client. The
#: answer has those of the settings in the argument `set` that do not hold any more.
RESUME: Final = "resume"
#: The client does not wait for the call in the argument `request`; what it has got is given back.
WITHDRAW: Final = "withdraw"

#: In the info of an answer, or of an `Operated` that answers nothing: the numbers of those settings
#: of the client that do not hold any more.
SUPERSEDED: Final = "superseded"

#: In the arguments of an operation: the journal records what it puts or sets, and its answer comes
#: when that is done.
DURABLE: Final = "durable"

#: The operation by which a client states to a scheduler what it holds, or has set.
RESTATE: Final = "restate"

# Bounds of arguments, which clients and the scheduler check.
#: The largest limit, number of leases, and size of a queue; the most locks of a MultiLock.
MAX_COUNT: Final = 1 << 40
MAX_LOCKS: Final = 10_000
#: The most values of one batch of a queue.
MAX_BATCH: Final = 10_000
#: The rates of a limit, per second; as many grants are remembered.
MIN_RATE: Final = 1e-6
MAX_RATE: Final = 10_000

# Why an operation was refused.
BAD_CALL: Final = "bad-call"
ALREADY_HELD: Final = "already-held"
NOT_HELD: Final = "not-held"
HOLD_LOST: Final = "hold-lost"
CLOSED: Final = "closed"
OTHER_LIMIT: Final = "other-limit"
TOO_LARGE: Final = "too-large"
EXISTS: Final = "exists"
UNKNOWN_NAME: Final = "unknown-name"
KEY_LOST: Final = "key-lost"
NOT_RECORDED: Final = "not-recorded"
LATE: Final = "late"
CYCLE: Final = "cycle"

#: Begins the name of an owner that is a task, before the number of its attempt.
_ATTEMPT: Final = "attempt-"


def owner_of_attempt(attempt: int) -> str:
    """Return how a client names the thread of a task, as the owner of what it holds."""
    return f"{_ATTEMPT}{attempt}"


def attempt_of(owner: str) -> int:
    """Return the attempt that an owner is; 0 = it is no task."""
    number = owner.removeprefix(_ATTEMPT)
    if number == owner or not number.isascii() or not number.isdecimal() or len(number) > 20:
        return 0
    return int(number)


@message(115, by=CLIENTS)
class Operate(Message):
    """Ask for an operation on a coordination object; `Operated` answers, when its turn has come.

    A client repeats it in each session with the same `request`, until it has the answer; the
    scheduler keeps the answer until it is acknowledged, so the operation is done once. What has
    `request` 0 is not answered.
    """

    request: Number
    operation: Text
    kind: Text = ""
    name: Text = ""
    arguments: Info = field(default_factory=dict)
    values: Blobs = field(default_factory=list)  #: pickles, opaque to the scheduler
    keys: Keys = field(default_factory=list)  #: of the futures in them, which are kept
    acknowledged: Ints = field(default_factory=list)  #: requests whose answers have arrived


@message(116, to=CLIENTS)
class Operated(Message):
    """Answer an `Operate`: with its outcome, or with a `problem` and a text for the user."""

    request: Number
    info: Info = field(default_factory=dict)
    values: Blobs = field(default_factory=list)
    keys: KeyLists = field(default_factory=list)  #: of the futures in each value
    problem: Text = ""
    text: Text = ""
