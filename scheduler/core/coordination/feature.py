"""The feature: objects that clients share by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..feature import Feature
from . import cycles, operating
from .background import BACKGROUND_INVARIANTS
from .invariants import HELD_INVARIANTS

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState


def _on_client_connected(state: SchedulerState, client: ClientHandle, last_epoch: int) -> None:
    operating.on_client_back(state, client)


FEATURE: Final = Feature(
    name="coordination",
    records=(cycles.Suspects,),
    handlers=operating.HANDLERS,
    invariants={**HELD_INVARIANTS, **BACKGROUND_INVARIANTS},
    client_connected=_on_client_connected,
    client_away=operating.on_client_away,
    client_gone=operating.on_client_expired,
)
