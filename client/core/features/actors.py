"""Actors, as the client's tasks that make them. Their calls are in `actor_calls`.

A task that has made an actor does not run again: that would make an object which knows nothing of
what the first has done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import actor_lost
from ....protocol.wire.messages import ACTOR_FUNCTION
from ..feature import ClientFeature
from ..tasks import ERROR, FutureState, TaskColumns
from ..watching import fail

if TYPE_CHECKING:
    from ..state import ClientState


def on_dropped(core: ClientState, state: FutureState) -> bool:
    """Fail a state whose actor the scheduler has dropped; return False if it is not one."""
    spec = state.spec
    if isinstance(spec, TaskColumns):  # a graph may have rows of other functions, too
        spec = spec.row(state.key)
    if state not in core.made and (spec is None or spec.function.id != ACTOR_FUNCTION):
        return False
    text = (
        "has ended while this client was away: its worker was lost, or nothing else held it for "
        "longer than the client's lease; make a new actor with submit(..., actor=True)"
    )
    fail(core, state, ERROR, actor_lost(state.key, text))
    state.blob = None  # its handle; after the failure, because users read both
    return True


FEATURE: Final = ClientFeature(
    name="actors",
    unique=frozenset({ACTOR_FUNCTION}),
    ending=frozenset({"actor-lost"}),
    dropped=(on_dropped,),
)
