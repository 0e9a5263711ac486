"""Attempts on whose behalf the client in a worker's tasks submits. A part of the core.

Each of its submissions names an attempt that runs (`scheduler/core/members/delegation.py`), and is
refused when that has ended. But its tasks share the states of keys: one may wait for what another
one has submitted, which has ended since, or was dropped. So the attempts that have submitted a key
that was known already are kept while it is pending. If the key is refused to one of them, it is
submitted on behalf of another. An input is submitted again on behalf of the task that reads it.

Outside of tasks no submission names an attempt, and nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import Failure, refused_attempt
from ....protocol.wire.options import TaskOptions
from ..feature import ClientFeature
from ..lineage import release_temporary, submit_with_inputs
from ..submitting import close_submissions
from ..tasks import HELD, PENDING, SENT, FutureState
from ..transitions import move

if TYPE_CHECKING:
    from ..state import ClientState


class Callers:
    """The attempts that have submitted known keys. Empty outside of tasks."""

    def __init__(self) -> None:
        #: {state: {(attempt, actor): None}} that have submitted a known key that is pending, or was
        #: at the last tick
        self.by_state: dict[FutureState, dict[tuple[int, str], None]] = {}


def on_joined(core: ClientState, state: FutureState, options: TaskOptions) -> None:
    """Note that an attempt has submitted a key that is known."""
    if state.status == PENDING and state.spec is not None:
        core.record(Callers).by_state.setdefault(state, {})[options.caller] = None


def _on_ticked(core: ClientState) -> None:
    """Forget those of what is not pending any more."""
    known = core.record(Callers)
    if known.by_state:
        known.by_state = {
            state: callers
            for state, callers in known.by_state.items()
            if state.status == PENDING and core.table.states.get(state.key) is state
        }


def submit_for_another(core: ClientState, state: FutureState, failure: Failure) -> bool:
    """Submit what was refused to one attempt on behalf of another; False if there is none."""
    by_state = core.record(Callers).by_state
    callers = by_state.get(state)
    if callers is None or state.phase != SENT or state.spec is None:
        return False
    refused = refused_attempt(failure)
    for caller in [caller for caller in callers if caller[0] == refused]:
        del callers[caller]
    if not callers:
        del by_state[state]
        return False
    move(core, state, HELD)
    if submit_with_inputs(core, state, next(iter(callers))) is not None:
        return False  # an input has failed meanwhile
    close_submissions(core)
    if core.temporary:
        release_temporary(core)
    return True


FEATURE: Final = ClientFeature(
    name="callers",
    records=(Callers,),
    joined=(on_joined,),
    not_permitted=(submit_for_another,),
    ticked=(_on_ticked,),
)
