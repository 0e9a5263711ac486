"""The feature: objects that clients share by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..feature import Feature
from . import (
    background,
    cluster_events,
    cycles,
    marks,
    operating,
    recording,
    records,
    restoring,
    topics,
    values,
)
from .invariants import OBJECT_INVARIANTS

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState


def _on_client_connected(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    operating.on_client_back(state, client, last_epoch)


FEATURE: Final = Feature(
    name="coordination",
    records=(
        records.Objects,
        values.ObjectValues,
        marks.Marks,
        topics.Topics,
        background.BackgroundTasks,
        cycles.Suspects,
        recording.RecordedValues,
    ),
    ticked=(restoring.on_ticked,),
    handlers={m.Operate: operating.on_operate},
    invariants={
        **OBJECT_INVARIANTS,
        **background.BACKGROUND_INVARIANTS,
        **cluster_events.EVENT_INVARIANTS,
    },
    client_connected=(_on_client_connected,),
    client_away=(operating.on_client_away,),
    client_gone=(operating.on_client_expired,),
    assignment_begun=(operating.on_assignment_begun,),
    attempt_blocked=(cycles.on_attempt_blocked,),
    worker_connected=(cluster_events.on_worker_connected,),
    worker_away=(cluster_events.on_worker_away,),
    worker_leaving=(cluster_events.on_worker_leaving,),
    worker_gone=(cluster_events.on_worker_gone,),
    reported=(cluster_events.note,),
)
