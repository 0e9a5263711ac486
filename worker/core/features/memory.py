"""What the memory of this worker leads to: statuses at once, fetches that wait, lost values.

A value whose file cannot be read any more is reported as if this worker had asked itself for it,
and got no answer. The scheduler drops the copy, takes back the tasks that wait for it here, and
names another holder or has the value computed again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import KeysMissing, WorkerStatus
from ..events import WorkerEvent
from ..feature import WorkerFeature
from ..inputs import note_missing
from ..tasks import MEMORY

if TYPE_CHECKING:
    from ..state import WorkerState


@dataclass(slots=True)
class ValueLost(WorkerEvent):
    """The value of `attempt` is not here any more."""

    attempt: int


@dataclass(slots=True)
class PartsMissing(WorkerEvent):
    """A task did not get parts of the values of these keys from `holder`."""

    keys: list[str]
    attempts: list[int]
    holder: str
    is_unreachable: bool


@dataclass(slots=True)
class MemoryChanged(WorkerEvent):
    """The scheduler is to know this status now, behind the results that it counts."""

    status: WorkerStatus


@dataclass(slots=True)
class MemoryPressed(WorkerEvent):
    """Memory is short, and room is being made: no copy is asked for; or that is over."""

    is_pressed: bool


def _on_memory_pressed(state: WorkerState, event: MemoryPressed) -> None:
    state.fetching.is_held_back = event.is_pressed


def _on_value_lost(state: WorkerState, event: ValueLost) -> None:
    record = state.by_attempt.get(event.attempt)
    if record is not None and record.state == MEMORY:
        note_missing(state, record)


def _on_parts_missing(state: WorkerState, event: PartsMissing) -> None:
    state.to_scheduler.append(
        KeysMissing(
            keys=event.keys,
            holder=event.holder,
            unreachable=event.is_unreachable,
            attempts=event.attempts,
        )
    )


def _on_memory_changed(state: WorkerState, event: MemoryChanged) -> None:
    state.to_scheduler.append(event.status)


FEATURE: Final = WorkerFeature(
    name="memory",
    events={
        ValueLost: _on_value_lost,
        PartsMissing: _on_parts_missing,
        MemoryChanged: _on_memory_changed,
        MemoryPressed: _on_memory_pressed,
    },
)
