"""The records of coordination objects, of the calls that wait for them, and of the values in them.

An object is named by its kind and its name, and exists while it has content, holders, waiting calls
or, where its limit has to be remembered, users.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from ....protocol.wire.payload import Blob, blob_nbytes

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: Bytes that a value takes beside its pickle, and each key.
VALUE_OVERHEAD = 200
#: The lane of calls that are given nothing because their clients have no connection. It is never
#: served.
AWAY: Final = "away"


class OperationRefused(Exception):
    """An operation is refused: `problem` as in the messages, `text` for the user."""

    def __init__(self, problem: str, text: str) -> None:
        super().__init__(problem, text)
        self.problem = problem
        self.text = text


class ObjectValue:
    """A value of a queue or variable, or on its way to or from one."""

    __slots__ = ("blob", "keys", "keys_nbytes", "n_uses", "nbytes", "number")

    def __init__(self, blob: Blob | None, keys: list[str]) -> None:
        self.blob = blob
        #: keys of the futures in it, each once; their tasks are wanted while the value is used
        self.keys = keys
        self.keys_nbytes = sum(len(key.encode("utf-8", "surrogatepass")) for key in keys)
        self.nbytes = VALUE_OVERHEAD * (1 + len(keys)) + (0 if blob is None else blob_nbytes(blob))
        #: the places that it has: in objects, in waiting calls, in kept answers
        self.n_uses = 0
        #: under which it is recorded; 0 = it is not durable
        self.number = 0


class Reply(NamedTuple):
    """The outcome of an operation."""

    info: Mapping[str, Any] = MappingProxyType({})
    values: tuple[ObjectValue, ...] = ()
    problem: str = ""
    text: str = ""


class Call:
    """One operation of a client, until its answer is acknowledged."""

    __slots__ = (
        "arguments",
        "client",
        "deadline",
        "is_recording",
        "keys",
        "kind",
        "lane",
        "name",
        "operation",
        "place",
        "record",
        "request",
        "since",
        "value",
        "waiter",
    )

    def __init__(
        self,
        client: ClientHandle,
        request: int,
        kind: str,
        name: str,
        operation: str,
        arguments: dict[str, Any],
    ) -> None:
        self.client = client
        self.request = request
        self.kind = kind
        self.name = name
        self.operation = operation
        self.arguments = arguments
        #: keys of the message, for operations with `takes_keys`
        self.keys: list[str] = []
        #: the value that it carries; used by the call until it has one more use, or none
        self.value: ObjectValue | None = None
        #: its answer waits until the journal has recorded what it has done
        self.is_recording = False
        #: where it waits; None while it does not, and before the end of a recovery
        self.record: ObjectRecord | None = None
        self.lane = ""
        #: among all calls that have waited in lanes; those of a lane are in this order
        self.place = 0
        self.deadline: Deadline | None = None
        #: when it began to wait in the lane, in waking time
        self.since = 0.0
        #: its place in `Objects.waits`, while it waits there
        self.waiter: int | tuple[ClientHandle, str] | None = None

    @property
    def owner(self) -> str:
        """The thread or task that calls, as its client names it; "" = not known."""
        owner = self.arguments.get("owner")
        return owner if type(owner) is str else ""

    @property
    def timeout(self) -> float | None:
        """The seconds that it may wait; None = no limit."""
        timeout: float | None = self.arguments.get("timeout")
        return timeout

    @property
    def blocks(self) -> bool:
        """True if the whole task waits for the answer, even if its worker has not reported it."""
        return self.arguments.get("blocks") is True

    def __repr__(self) -> str:
        what = f"{self.kind} {self.name!r}"
        return f"<Call {self.request} of {self.client.name}: {self.operation} {what}>"


class Holder(NamedTuple):
    """A lease of a client, which holds something."""

    client: ClientHandle
    #: text that the client has chosen, another one for each lease
    lease: str


class ObjectRecord:
    """The part of a record that all kinds share."""

    __slots__ = ("due", "is_closed", "kind", "lanes", "name", "users")

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        #: {lane: {call: None}} that wait, in order; none is empty. The first of a lane is the only
        #: one whose turn may have come, except for kinds with a `serve` of their own
        self.lanes: dict[str, OrderedDict[Call, None]] = {}
        #: {client: None} of those that have called; symmetric with `ClientCalls.records`
        self.users: dict[ClientHandle, None] = {}
        #: operations are refused until an object of that name is made anew
        self.is_closed = False
        #: when calls that wait are served next though nothing has changed (`ObjectKind.pause_s`)
        self.due: Deadline | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.kind} {self.name!r}>"


class EventRecord(ObjectRecord):
    """An event."""

    __slots__ = ("is_set",)

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.is_set = False


class QueueRecord(ObjectRecord):
    """A queue."""

    __slots__ = ("is_durable", "items", "maxsize", "number", "restored")

    def __init__(self, kind: str, name: str, maxsize: int) -> None:
        super().__init__(kind, name)
        self.is_durable = False  #: its values are recorded
        self.number = 0  #: under which it is recorded itself, without values
        #: (client, request) of the calls that have put what an earlier scheduler has recorded
        self.restored: set[tuple[str, int]] = set()
        self.maxsize = maxsize  #: 0 = no limit
        self.items: deque[ObjectValue] = deque()


class VariableRecord(ObjectRecord):
    """A variable."""

    __slots__ = ("is_durable", "value")

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.is_durable = False  #: its value is recorded
        self.value: ObjectValue | None = None  #: None = it is not set


class DatasetsRecord(ObjectRecord):
    """All datasets."""

    __slots__ = ("values",)

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.values: dict[str, ObjectValue] = {}  #: {name of a dataset: its value}


class MetadataRecord(ObjectRecord):
    """The tree of metadata."""

    __slots__ = ("durable", "nbytes", "tree")

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.tree: dict[str, Any] = {}
        #: {path: number} of what is recorded, with all below it; a change below a recorded path may
        #: be recorded by itself, also that something was deleted
        self.durable: dict[tuple[str, ...], int] = {}
        #: sum over its items: the length of the key, and `size_of` the value
        self.nbytes = 0


class TopicEvent(NamedTuple):
    """An event of a topic."""

    #: in its topic, one more for each
    number: int
    #: among the events of all topics
    place: int
    #: seconds since 1970, by the clock of the machine that has logged it
    time: float
    #: a pickle; packed plain data for the scheduler's own
    value: ObjectValue


class TopicRecord(ObjectRecord):
    """The last events of a topic."""

    __slots__ = ("before_first", "events", "last", "nbytes")

    def __init__(self, kind: str, name: str) -> None:
        super().__init__(kind, name)
        self.events: deque[TopicEvent] = deque()  #: their numbers are consecutive
        self.nbytes = 0  #: sum over the events
        #: number of the last event; 0 = there was none
        self.last = 0
        #: the number before that of the first event that it has ever had
        self.before_first = 0


class ClientCalls:
    """The calls of one client."""

    __slots__ = ("answered", "is_of_earlier", "records", "waiting")

    def __init__(self) -> None:
        #: it came from an earlier scheduler, and has not been given up since
        self.is_of_earlier = False
        #: {request: call} that are not answered
        self.waiting: dict[int, Call] = {}
        #: {request: (call, its answer)} that are not acknowledged, of operations that are no reads
        self.answered: dict[int, tuple[Call, Reply]] = {}
        #: {record: None} that it has called
        self.records: dict[ObjectRecord, None] = {}


class Objects:
    """All objects, and the calls of all clients."""

    __slots__ = ("calls", "deferred", "last_place", "records", "waits")

    def __init__(self) -> None:
        #: {(kind, name): record}; none is idle
        self.records: dict[tuple[str, str], ObjectRecord] = {}
        #: {client: its calls}
        self.calls: dict[ClientHandle, ClientCalls] = {}
        #: {call: None}, in order, that wait for the end of the recovery
        self.deferred: dict[Call, None] = {}
        self.last_place = 0  #: of the calls that have waited in lanes
        #: {attempt of a task, or (client, owner): call} that waits in a lane, the last one of each
        self.waits: dict[int | tuple[ClientHandle, str], Call] = {}


def objects_of(state: SchedulerState) -> Objects:
    """Return the objects that clients share, and the calls on them."""
    return state.record(Objects)


def forget(state: SchedulerState, record: ObjectRecord) -> None:
    """Forget an object that is idle, and for which no call waits."""
    objects = objects_of(state)
    del objects.records[record.kind, record.name]
    for user in record.users:
        del objects.calls[user].records[record]
    record.users.clear()


#: `(client, owner)` of those that must let go, and whether all of them must, or one.
Blockers: TypeAlias = "tuple[list[tuple[ClientHandle, str]], bool]"


class ObjectOperation(NamedTuple):
    """An operation of a kind."""

    #: (state, record, call) -> the reply; None = its turn has not come
    attempt: Callable[[SchedulerState, Any, Call], Reply | None]
    #: the lane of calls that wait; "" = a call never waits
    lane: str = ""
    #: the reply when its time is over
    late: Reply = Reply()
    #: gives back what the answer has given to a client that has not taken it
    undo: Callable[[SchedulerState, Any, Call, Reply], None] | None = None
    #: raises `OperationRefused` if the arguments are not valid for the object
    check: Callable[[Any, Call], None] | None = None
    #: raises `OperationRefused` if the call would wait for itself
    check_wait: Callable[[Any, Call], None] | None = None
    #: it carries a value
    has_value: bool = False
    #: it is about the tasks of some keys
    takes_keys: bool = False
    #: not before the end of a recovery: others may come back with what it asks for
    is_deferred: bool = False
    #: also on a closed object
    may_be_closed: bool = False
    #: it changes nothing, so its answer is not kept until it is acknowledged: a call that is sent
    #: again reads again. The values of its replies are not used by the answer
    is_read: bool = False

    @property
    def gives(self) -> bool:
        """True if its answer takes something from others, so that a dead client must not get it."""
        return self.undo is not None


class ObjectKind(NamedTuple):
    """A kind of coordination objects."""

    #: in messages
    name: str
    make: Callable[[Call], ObjectRecord]
    operations: dict[str, ObjectOperation]
    #: removes what a client holds
    drop: Callable[[Any, ClientHandle], None]
    #: whether nothing would be lost with the record
    is_idle: Callable[[Any], bool]
    #: whether the turn of a call has come that is the first of its lane, or, with `serve`, in a
    #: lane; asked by invariants only. None = no call waits
    is_ready: Callable[[Any, Call], bool] | None = None
    #: the owners that must let go before the turn of a call that waits comes, and whether all of
    #: them must or one; None = it is not known which those are
    blockers: Callable[[Any, Call], Blockers | None] | None = None
    #: the calls whose turn has come, with their replies; None = the first ones of each lane
    serve: Callable[[SchedulerState, Any], list[tuple[Call, Reply]]] | None = None
    #: for how long only time holds up the first call that waits, seconds; None = it never does
    pause_s: Callable[[SchedulerState, Any], float] | None = None
