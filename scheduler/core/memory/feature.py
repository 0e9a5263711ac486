"""The feature: a brake where the memory of workers is nearly full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..feature import Departure, Feature
from . import full
from .aside import MEMORY_INVARIANTS

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState


def _on_worker_gone(state: SchedulerState, ws: WorkerHandle, departure: Departure) -> None:
    full.forget_worker(state, ws)


FEATURE: Final = Feature(
    name="memory",
    invariants=MEMORY_INVARIANTS,
    worker_joined=full.note_measured,
    worker_measured=full.note_measured,
    worker_gone=_on_worker_gone,
)
