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
from typing import TYPE_CHECKING, Any, TypeAlias

from ...protocol.wire.message import Message
from ...protocol.wire.messages import AssignTasks

if TYPE_CHECKING:
    from .events import ChunkDone, WorkerEvent
    from .state import WorkerState
    from .tasks import Slot, WorkerTask

#: `(state, message or event)`
Handler: TypeAlias = "Callable[[WorkerState, Any], None]"
#: What breaks it.
Invariant: TypeAlias = "Callable[[WorkerState], Iterable[object]]"
StateHook: TypeAlias = "Callable[[WorkerState], None]"
AssignHook: TypeAlias = "Callable[[WorkerState, AssignTasks], None]"
#: Files the rows of a function before the others; returns what follows when these are filed.
Filing: TypeAlias = "Callable[[WorkerState, AssignTasks], Callable[[], None] | None]"


@dataclass(frozen=True, kw_only=True, eq=False)
class WorkerFeature:
    """What the kernel needs to know of a feature; all of it is optional but the name."""

    name: str
    #: the class of its record, of which each state has one: `WorkerState.record`
    record: type | None = None
    messages: Mapping[type[Message], Handler] = field(default_factory=dict)
    events: Mapping[type[WorkerEvent], Handler] = field(default_factory=dict)
    #: {what holds: what breaks it}
    invariants: Mapping[str, Invariant] = field(default_factory=dict)

    #: {function id: what files its tasks}: they wait for an event of the feature, and do not run
    filing: Mapping[bytes, Filing] = field(default_factory=dict)
    #: {column of `AssignTasks`: what follows, when its tasks are filed, if the column has rows}
    columns: Mapping[str, AssignHook] = field(default_factory=dict)
    #: tasks are filed; while the feature is busy
    assigned: AssignHook | None = None
    #: a slot reports, which is not handled yet; while the feature is busy
    chunk_done: Callable[[WorkerState, ChunkDone, Slot], None] | None = None
    #: these attempts are not unfinished any more; while the feature is busy
    attempts_ended: Callable[[WorkerState, Sequence[int]], None] | None = None
    #: a record is in memory, dropped or replaced, or no peer is asked for it any more; if True, the
    #: feature forgets it when nothing else needs it. While the feature is busy
    settled: Callable[[WorkerState, WorkerTask, bool], None] | None = None
    #: the records that are pinned beside the inputs of tasks, each as often; for `validate`
    pins: Callable[[WorkerState], Iterable[WorkerTask]] | None = None
    #: whether an attempt waits that has no slot
    waits: Callable[[WorkerState, int], bool] | None = None
    #: a session begins: before the inventory is made
    session_opening: StateHook | None = None
    #: a later session begins: the inventory is in the out-box
    session_back: StateHook | None = None
    #: it has ended
    session_lost: StateHook | None = None
    #: the worker ends: before all records are dropped
    ending: StateHook | None = None


class WorkerFeatures:
    """The features of a state: the hooks of each event, in their order, and the other tables."""

    def __init__(self, features: Sequence[WorkerFeature]) -> None:
        self.records: dict[type, Any] = {f.record: f.record() for f in features if f.record}
        self.messages: dict[type[Message], Handler] = {}
        self.events: dict[type[WorkerEvent], Handler] = {}
        self.invariants: dict[str, Invariant] = {}
        for feature in features:
            assert self.messages.keys().isdisjoint(feature.messages), feature.name
            assert self.events.keys().isdisjoint(feature.events), feature.name
            assert self.invariants.keys().isdisjoint(feature.invariants), feature.name
            self.messages |= feature.messages
            self.events |= feature.events
            self.invariants |= feature.invariants
        self.filing = {id: file for f in features for id, file in f.filing.items()}
        self.columns = [(column, hook) for f in features for column, hook in f.columns.items()]
        self.assigned = [(f.name, f.assigned) for f in features if f.assigned]
        self.chunk_done = [(f.name, f.chunk_done) for f in features if f.chunk_done]
        self.attempts_ended = [(f.name, f.attempts_ended) for f in features if f.attempts_ended]
        self.settled = [(f.name, f.settled) for f in features if f.settled]
        self.pins = [f.pins for f in features if f.pins]
        self.waits = [f.waits for f in features if f.waits]
        self.session_opening = [f.session_opening for f in features if f.session_opening]
        self.session_back = [f.session_back for f in features if f.session_back]
        self.session_lost = [f.session_lost for f in features if f.session_lost]
        self.ending = [f.ending for f in features if f.ending]
