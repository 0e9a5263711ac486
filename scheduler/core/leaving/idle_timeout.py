"""The end of a cluster that nobody uses: no task is unfinished or comes for some time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..insight.info import task_counts
from ..members.membership import stop_cluster
from ..records.tasks import NO_WORKER, PROCESSING, QUEUED, WAITING

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Looks in the time after which a cluster ends; it ends at most one look later.
_N_LOOKS: Final = 8


def start(state: SchedulerState) -> None:
    """Begin to look, if the cluster is to end."""
    if state.idle_timeout_s:
        _look_later(state, 0)


def _look_later(state: SchedulerState, n_idle: int) -> None:
    n_submitted = state.counters.tasks_submitted
    state.call_after(state.idle_timeout_s / _N_LOOKS, _look, n_submitted, n_idle)


def _look(state: SchedulerState, n_submitted: int, n_idle: int) -> None:
    counts = task_counts(state)
    is_busy = any(counts[name] for name in (WAITING, QUEUED, NO_WORKER, PROCESSING))
    is_busy = is_busy or state.recovery is not None or n_submitted != state.counters.tasks_submitted
    n_idle = 0 if is_busy else n_idle + 1
    if n_idle < _N_LOOKS:
        _look_later(state, n_idle)
        return
    text = f"no task ran or came for {state.idle_timeout_s:g} s (--idle-timeout)"
    state.log("info", f"the cluster ends: {text}")
    stop_cluster(state, text)
