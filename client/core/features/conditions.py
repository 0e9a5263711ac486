"""Conditions of tasks on how others have ended (`after=`), when a task is submitted again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.options import DONE, ENDED, FAILED, TaskOptions
from ..feature import ClientFeature
from ..tasks import ERROR, FINISHED, PENDING, FutureState

if TYPE_CHECKING:
    from ..state import ClientState

#: {status of a future: the state that conditions name}, where they differ
_STATES: Final = {FINISHED: DONE, ERROR: FAILED}
#: The options on when a task may begin, and when it is given up, with no effect.
_NONE: Final[dict[str, Any]] = {"conditions": (), "start_ms": 0, "begin_by_ms": 0, "end_by_ms": 0}


def is_met(state: FutureState | None, how: str) -> bool:
    """Return whether a task is known to have ended so."""
    if state is None or state.status == PENDING:
        return False
    return how in (ENDED, _STATES.get(state.status, state.status))


def still_unmet(core: ClientState, options: TaskOptions, has_ended: bool) -> TaskOptions:
    """Leave out the conditions that are met: another scheduler does not know what has ended.

    A task that has ended itself has none left, and no times: if its result is lost it runs again.
    """
    if has_ended:
        return options.changed(**_NONE) if any(getattr(options, one) for one in _NONE) else options
    if not options.conditions:
        return options
    states = core.table.states
    unmet = [[how, key] for how, key in options.conditions if not is_met(states.get(key), how)]
    return options if len(unmet) == len(options.conditions) else options.changed(conditions=unmet)


FEATURE: Final = ClientFeature(name="conditions", resubmitting=(still_unmet,))
