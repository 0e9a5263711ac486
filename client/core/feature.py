"""The seam between the kernel of the client's core and its features.

The kernel is the life of futures: tasks and their submission, results, and the session. All else
that a client does is a feature: one module with one declaration, which says what the kernel calls
and when. A feature may import the kernel; the kernel imports no feature and names none. The
features of a client and their order are `features.FEATURES`, which the shell gives to the state.

A session *begins* with the scheduler's welcome. It is *linked* when the scheduler has answered for
all keys that the client wants; from then on messages may be sent. It is *lost* with its connection.
The client *ends* once: after that there is no session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ...protocol.wire.message import Message

if TYPE_CHECKING:
    from ...protocol.wire.failure import Failure
    from ...protocol.wire.options import TaskOptions
    from .events import Connected
    from .state import ClientState
    from .tasks import FutureState, Watcher

#: It is given an event, an operation of a user, or a message of the scheduler.
Handler: TypeAlias = "Callable[[ClientState, Any], None]"
#: What breaks it.
Invariant: TypeAlias = "Callable[[ClientState], Iterable[object]]"
Hook: TypeAlias = "Callable[[ClientState], None]"


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientFeature:
    """What the kernel needs to know of a feature; all of it is optional but the name."""

    name: str
    #: the classes of its records, of which each client has one: `ClientState.record`
    records: tuple[type, ...] = ()
    #: {type of events, operations or messages: what handles them}
    handlers: Mapping[type, Handler] = field(default_factory=dict)
    #: {message: what follows if the protocol forbids it, for a reason}
    unsendable: Mapping[type[Message], Callable[[ClientState, Any, str], None]] = field(
        default_factory=dict
    )
    #: {what holds: what breaks it}
    invariants: Mapping[str, Invariant] = field(default_factory=dict)
    #: numbers of its requests
    requests: Callable[[ClientState], Iterable[int]] | None = None

    #: ids of functions whose results are unique: their tasks do not run again
    unique: frozenset[bytes] = frozenset()
    #: kinds of the failures that also end results which are here
    ending: frozenset[str] = frozenset()

    #: a session begins, before all other messages: whether the scheduler is another one
    begun: Callable[[ClientState, bool], None] | None = None
    #: the first messages of a session were made: the number of keys that were submitted again or
    #: wanted, -1 = the scheduler is the same one
    asked: Callable[[ClientState, Connected, int], None] | None = None
    #: whether the scheduler has been started again
    linked: Callable[[ClientState, bool], None] | None = None
    #: `is_linked` still says whether it was
    lost: Hook | None = None
    ended: Hook | None = None
    #: several times a second
    ticked: Hook | None = None
    #: a watcher waits no longer for an answer
    forgotten: Callable[[ClientState, Watcher], None] | None = None
    #: the scheduler does not take a request: whether it was one of this feature
    refused: Callable[[ClientState, Any], bool] | None = None
    #: a known key was submitted on behalf of an attempt
    joined: Callable[[ClientState, FutureState, TaskOptions], None] | None = None
    #: a task was not permitted to the one on whose behalf it was submitted: whether that is settled
    not_permitted: Callable[[ClientState, FutureState, Failure], bool] | None = None
    #: the scheduler does not know a finished task: whether its result is of no use any more, and
    #: the state has failed
    dropped: Callable[[ClientState, FutureState], bool] | None = None


class ClientFeatures:
    """The features of a client: the hooks of each event, in their order, and the other tables."""

    def __init__(self, features: Sequence[ClientFeature]) -> None:
        self.records = [kind for f in features for kind in f.records]
        self.handlers = {kind: handler for f in features for kind, handler in f.handlers.items()}
        self.unsendable = {kind: fail for f in features for kind, fail in f.unsendable.items()}
        self.invariants = {name: found for f in features for name, found in f.invariants.items()}
        assert len(self.handlers) == sum(len(f.handlers) for f in features), "one each"
        assert len(self.invariants) == sum(len(f.invariants) for f in features), "one each"
        self.requests = [f.requests for f in features if f.requests]
        self.unique = frozenset[bytes]().union(*(f.unique for f in features))
        self.ending = frozenset[str]().union(*(f.ending for f in features))
        self.begun = [f.begun for f in features if f.begun]
        self.asked = [f.asked for f in features if f.asked]
        self.linked = [f.linked for f in features if f.linked]
        self.lost = [f.lost for f in features if f.lost]
        self.ended = [f.ended for f in features if f.ended]
        self.ticked = [f.ticked for f in features if f.ticked]
        self.forgotten = [f.forgotten for f in features if f.forgotten]
        self.refused = [f.refused for f in features if f.refused]
        self.joined = [f.joined for f in features if f.joined]
        self.not_permitted = [f.not_permitted for f in features if f.not_permitted]
        self.dropped = [f.dropped for f in features if f.dropped]
