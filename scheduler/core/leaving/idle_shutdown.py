"""The end of a cluster that nobody uses: no task is unfinished or comes for some time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..feature import Feature
from ..members.membership import stop_cluster

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Looks in the time after which a cluster ends; it ends at most one look later.
_N_LOOKS: Final = 8


class IdleTimeout:
    """The time without tasks after which the cluster ends."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0  #: 0 = the cluster does not end


def idle_timeout_of(state: SchedulerState) -> IdleTimeout:
    """Return the time after which the cluster ends."""
    return state.record(IdleTimeout)


def _start(state: SchedulerState) -> None:
    """Begin to look, if the cluster is to end."""
    if idle_timeout_of(state).seconds:
        _look_later(state, 0)


def _look_later(state: SchedulerState, n_idle: int) -> None:
    n_submitted = state.counters.tasks_submitted
    state.call_after(idle_timeout_of(state).seconds / _N_LOOKS, _look, n_submitted, n_idle)


def _look(state: SchedulerState, n_submitted: int, n_idle: int) -> None:
    counters = state.counters
    n_at_rest = counters.n_memory + counters.n_erred + counters.n_released
    is_busy = len(state.tasks) > n_at_rest or n_submitted != counters.tasks_submitted
    is_busy = is_busy or state.awaits_peers
    n_idle = 0 if is_busy else n_idle + 1
    if n_idle < _N_LOOKS:
        _look_later(state, n_idle)
        return
    text = f"no task ran or came for {idle_timeout_of(state).seconds:g} s (--idle-timeout)"
    state.log("info", f"the cluster ends: {text}")
    stop_cluster(state, text)


FEATURE: Final = Feature(name="idle timeout", records=(IdleTimeout,), started=(_start,))
