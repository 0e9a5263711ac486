"""The seam between the kernel of a worker and its features.

The kernel is the life of a task here: assignment, inputs and copies, slots and seats, reports, and
the session. All else is a feature: one module in `features/` with one declaration, which says what
the kernel calls and when. A feature may import the kernel; the kernel imports no feature and names
none. `features.FEATURES` has them in their order, and the shell gives them to the state.

A feature that has something to do is in `WorkerState.busy`. Hooks on lanes that count nanoseconds
are called for these features only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ...protocol.wire.message import Message
from ...protocol.wire.messages import AssignTasks

if TYPE_CHECKING:
    from .events import ChunkDone, WorkerEvent
    from .state import WorkerState
    from .tasks import Slot, WorkerTask

_Function = TypeVar("_Function")

#: What follows an event, of each feature that follows it, in the order of the features.
Hooks: TypeAlias = tuple[_Function, ...]
#: Those that are called while their feature is busy, by the name that is given here.
BusyHooks: TypeAlias = tuple[tuple[str, _Function], ...]

#: `(state, message or event)`
Handler: TypeAlias = "Callable[[WorkerState, Any], None]"
#: What breaks it.
Invariant: TypeAlias = "Callable[[WorkerState], Iterable[object]]"
StateHook: TypeAlias = "Callable[[WorkerState], None]"
AssignHook: TypeAlias = "Callable[[WorkerState, AssignTasks], None]"
#: Files the rows of a function before the others; returns what follows when these are filed.
Filing: TypeAlias = "Callable[[WorkerState, AssignTasks], Callable[[], None] | None]"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class WorkerFeature:
    """What the kernel needs to know of a feature; all of it is optional but the name.

    All features of a state are one `WorkerFeature`: `protocol.seam` joins them.
    """

    name: str
    #: the classes of its records, of which each state has one: `WorkerState.record`
    records: tuple[type, ...] = ()
    messages: Mapping[type[Message], Handler] = field(default_factory=dict)
    events: Mapping[type[WorkerEvent], Handler] = field(default_factory=dict)
    #: messages that may wait in the out-box for later ones
    patient: frozenset[type[Message]] = frozenset()
    #: {what holds: what breaks it}
    invariants: Mapping[str, Invariant] = field(default_factory=dict)

    #: {function id: what files its tasks}: they wait for an event of the feature, and do not run
    filing: Mapping[bytes, Filing] = field(default_factory=dict)
    #: (column of `AssignTasks`, what follows, when its tasks are filed, if the column has rows)
    columns: tuple[tuple[str, AssignHook], ...] = ()
    #: tasks are filed
    assigned: BusyHooks[AssignHook] = ()
    #: a slot reports, which is not handled yet
    chunk_done: BusyHooks[Callable[[WorkerState, ChunkDone, Slot], None]] = ()
    #: these attempts are not unfinished any more
    attempts_ended: BusyHooks[Callable[[WorkerState, Sequence[int]], None]] = ()
    #: a record is in memory, dropped or replaced, or no peer is asked for it any more; if True, the
    #: feature forgets it when nothing else needs it
    settled: BusyHooks[Callable[[WorkerState, WorkerTask, bool], None]] = ()
    #: the records that are pinned beside the inputs of tasks, each as often; for `validate`
    pins: Hooks[Callable[[WorkerState], Iterable[WorkerTask]]] = ()
    #: whether an attempt waits that has no slot
    waits: Hooks[Callable[[WorkerState, int], bool]] = ()
    #: a session begins: before the inventory is made
    session_opening: Hooks[StateHook] = ()
    #: a later session begins: the inventory is in the out-box
    session_back: Hooks[StateHook] = ()
    #: it has ended
    session_lost: Hooks[StateHook] = ()
    #: the worker ends: before all records are dropped
    ending: Hooks[StateHook] = ()
