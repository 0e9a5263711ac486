"""The line for the user when the scheduler is back: what it has kept, and what is done again.

A scheduler that was started again and had peers before reports what it has found
(`Recovering`, later `Recovered`). The line waits for that, but not for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import Recovered, Recovering
from ....protocol.wording import counted
from ..events import Connected, Warn
from ..feature import ClientFeature
from ..tasks import PENDING

if TYPE_CHECKING:
    from ..state import ClientState

#: Ticks within which a scheduler that recovers reports so.
PATIENCE_TICKS: Final = 4


class Comeback:
    """The return of the scheduler, if the user is to read of it and has not yet."""

    def __init__(self) -> None:
        #: how long it was away; 0 = there is nothing to report
        self.outage_s = 0.0
        #: keys that were submitted again, or wanted; -1 = the scheduler is the same one
        self.n_submitted = 0
        #: ticks until the scheduler counts as one that does not recover; None = it does
        self.n_ticks: int | None = 0


def on_asked(core: ClientState, event: Connected, n_submitted: int) -> None:
    """Report the same scheduler at once; wait for what another one has found."""
    comeback = core.record(Comeback)
    comeback.outage_s = event.reported_outage_s
    comeback.n_submitted = n_submitted
    comeback.n_ticks = PATIENCE_TICKS
    if n_submitted < 0:
        _report(core, "")


def on_recovering(core: ClientState, _message: Recovering) -> None:
    """Wait with the report: the scheduler will send what it has found."""
    core.record(Comeback).n_ticks = None


def on_recovered(core: ClientState, message: Recovered) -> None:
    """Report to the user what the scheduler has found."""
    lost = f", {counted(message.n_lost, 'key')} unknown to all" if message.n_lost else ""
    n_others = max(message.n_clients - 1, 0)
    others = f" and {counted(n_others, 'other client')}" if n_others else ""
    _report(
        core,
        f"; {counted(message.n_workers, 'worker')}{others} joined it, and workers had kept "
        f"{counted(message.n_kept, 'result')} and "
        f"{counted(message.n_adopted, 'unfinished task')}{lost}",
    )


def _report(core: ClientState, found: str) -> None:
    """Report the return of the scheduler to the user, once."""
    comeback = core.record(Comeback)
    outage_s, comeback.outage_s = comeback.outage_s, 0.0
    if not outage_s:
        return
    text = "the scheduler is back after " + (
        f"{outage_s:.0f} s" if outage_s >= 1 else "less than 1 s"
    )
    n_pending = n_here = 0
    for state in core.table.snapshot():
        n_pending += state.status == PENDING
        n_here += state.has_data
    if comeback.n_submitted < 0:
        text += f"; {counted(n_pending, 'future')} pending"
    else:
        text += (
            f", and has been started again: {counted(n_here, 'result')} kept here, "
            f"{counted(comeback.n_submitted, 'task')} submitted again{found}"
        )
    core.after.append(Warn(text))


def _on_lost(core: ClientState) -> None:
    core.record(Comeback).outage_s = 0.0


def _on_ticked(core: ClientState) -> None:
    comeback = core.record(Comeback)
    if comeback.outage_s and comeback.n_ticks is not None:
        comeback.n_ticks -= 1
        if comeback.n_ticks < 0:  # it does not recover: it had no peers before
            _report(core, "")


FEATURE: Final = ClientFeature(
    name="restarts",
    records=(Comeback,),
    handlers={Recovering: on_recovering, Recovered: on_recovered},
    asked=on_asked,
    lost=_on_lost,
    ticked=_on_ticked,
)
