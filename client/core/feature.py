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

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...protocol.wire.message import Message

if TYPE_CHECKING:
    from ...protocol.wire.failure import Failure
    from ...protocol.wire.options import TaskOptions
    from .events import Connected
    from .state import ClientState
    from .tasks import FutureState, TaskRecord, Watcher

_Function = TypeVar("_Function")

#: What follows an event, of each feature that follows it, in the order of the features.
Hooks: TypeAlias = tuple[_Function, ...]
#: It is given an event, an operation of a user, or a message of the scheduler.
Handler: TypeAlias = "Callable[[ClientState, Any], None]"
#: What breaks it.
Invariant: TypeAlias = "Callable[[ClientState], Iterable[object]]"
StateHook: TypeAlias = "Callable[[ClientState], None]"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ClientFeature:
    """The declaration of a feature, for the kernel; all of it is optional but the name.

    All features of a client are one `ClientFeature`: `protocol.seam` joins them.
    """

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
    requests: Hooks[Callable[[ClientState], Iterable[int]]] = ()

    #: ids of functions whose results are unique: their tasks do not run again
    unique: frozenset[bytes] = frozenset()
    #: kinds of the failures that also end results which are here
    ending: frozenset[str] = frozenset()

    #: a session begins, before all other messages: whether the scheduler is another one
    begun: Hooks[Callable[[ClientState, bool], None]] = ()
    #: the first messages of a session were made: the number of keys that were submitted again or
    #: wanted, -1 = the scheduler is the same one
    asked: Hooks[Callable[[ClientState, Connected, int], None]] = ()
    #: whether the scheduler has been started again
    linked: Hooks[Callable[[ClientState, bool], None]] = ()
    #: `is_linked` still says whether it was
    lost: Hooks[StateHook] = ()
    ended: Hooks[StateHook] = ()
    #: several times a second
    ticked: Hooks[StateHook] = ()
    #: a watcher waits no longer for an answer
    forgotten: Hooks[Callable[[ClientState, Watcher], None]] = ()
    #: the scheduler does not take a request: whether it was one of this feature
    refused: Hooks[Callable[[ClientState, Any], bool]] = ()
    #: a task without a function is submitted: its arguments are its result
    brought: Hooks[Callable[[ClientState, FutureState, TaskRecord], None]] = ()
    #: the result of such a task is at a worker for the first time
    placed: Hooks[Callable[[ClientState, FutureState], None]] = ()
    #: a task is submitted again, with these options, and it may have ended: returns those that are
    #: sent
    resubmitting: Hooks[Callable[[ClientState, TaskOptions, bool], TaskOptions]] = ()
    #: the task of the first state reads the second, which has something `shared`
    inherited: Hooks[Callable[[ClientState, FutureState, FutureState], None]] = ()
    #: a known key was submitted on behalf of an attempt
    joined: Hooks[Callable[[ClientState, FutureState, TaskOptions], None]] = ()
    #: a key has failed, with the state for which that is new, or None: whether it is settled
    erred: Hooks[Callable[[ClientState, str, FutureState | None, Failure], bool]] = ()
    #: the scheduler does not know a finished task: whether its result is of no use any more, and
    #: the state has failed
    dropped: Hooks[Callable[[ClientState, FutureState], bool]] = ()
