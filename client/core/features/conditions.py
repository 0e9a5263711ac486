"""Conditions of tasks on how others have ended (`after=`), when a task is submitted again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.options import DONE, ENDED, FAILED, TaskOptions
from ..feature import ClientFeature
from ..tasks import ERROR, FINISHED, PENDING, FutureState

if TYPE_CHECKING:
    from ..state import ClientState

#: {status of a future: the state that conditions name}, where they differ
_STATES: Final = {FINISHED: DONE, ERROR: FAILED}


def is_met(state: FutureState | None, how: str) -> bool:
    """Return whether a task is known to have ended so."""
    if state is None or state.status == PENDING:
        return False
    return how in (ENDED, _STATES.get(state.status, state.status))


def still_unmet(core: ClientState, options: TaskOptions) -> TaskOptions:
    """Leave out the conditions that are met: another scheduler does not know what has ended."""
    if not options.conditions:
        return options
    states = core.table.states
    unmet = [[how, key] for how, key in options.conditions if not is_met(states.get(key), how)]
    return options if len(unmet) == len(options.conditions) else options.changed(conditions=unmet)


FEATURE: Final = ClientFeature(name="conditions", resubmitting=(still_unmet,))
