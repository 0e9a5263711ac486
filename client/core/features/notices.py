"""Notices for the user, beside results: printed lines, warnings, the return of the scheduler.

A scheduler that was started again and had peers before reports what it has found (`Recovering`,
later `Recovered`). The line about its return waits for that, but not for long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import (
    KeysUnrunnable,
    LogRecords,
    Recovered,
    Recovering,
    TaskOutput,
)
from ....protocol.wording import counted
from ..events import Connected, Warn
from ..feature import ClientFeature
from ..tasks import PENDING, Watcher
from ..watching import touch

if TYPE_CHECKING:
    from ..state import ClientState

#: Ticks within which a scheduler that recovers reports so.
PATIENCE_TICKS: Final = 4
_MAX_WARNINGS: Final = 100
_MAX_UNRUNNABLE: Final = 1000


class Notices:
    """The notices that were given, and those that are due."""

    def __init__(self) -> None:
        #: takes what tasks print and log; None = the user does not want it
        self.output: Watcher | None = None
        #: {reason: None} of tasks that no worker can run: the user was warned
        self.warnings: dict[str, None] = {}
        #: {key: reason} of tasks that no worker could run when the scheduler reported it last, for
        #: the texts of timeouts. Any thread reads it.
        self.unrunnable: dict[str, str] = {}
        #: how long the scheduler was away; 0 = there is nothing to report
        self.outage_s = 0.0
        #: keys that were submitted again, or wanted; -1 = the scheduler is the same one
        self.n_submitted = 0
        #: ticks until the scheduler counts as one that does not recover; None = it does
        self.n_ticks: int | None = 0


def notices_of(core: ClientState) -> Notices:
    """Return what the user was told, and is to be told."""
    return core.record(Notices)


def on_output(core: ClientState, message: TaskOutput | LogRecords) -> None:
    """Show it, before results that come later are seen."""
    watcher = notices_of(core).output
    if watcher is not None:
        touch(core, watcher, message)


def on_keys_unrunnable(core: ClientState, message: KeysUnrunnable) -> None:
    """Note the reason, and warn of each once."""
    known = notices_of(core)
    if len(known.unrunnable) >= _MAX_UNRUNNABLE:
        known.unrunnable.clear()
    known.unrunnable.update(dict.fromkeys(message.keys, message.reason))
    if message.reason in known.warnings:
        return
    if len(known.warnings) >= _MAX_WARNINGS:
        known.warnings.clear()
    known.warnings[message.reason] = None
    n = len(message.keys)
    first = message.keys[0] if message.keys else "?"
    if n == 1:
        text = f"task {first!r} waits for a worker that can run it"
    else:  # only the first are named
        text = f"tasks ({first!r} and others) wait for a worker that can run them"
    core.after.append(Warn(f"{text}: {message.reason}"))


def on_asked(core: ClientState, event: Connected, n_submitted: int) -> None:
    """Report the same scheduler at once; wait for what another one has found."""
    notices = notices_of(core)
    notices.outage_s = event.reported_outage_s
    notices.n_submitted = n_submitted
    notices.n_ticks = PATIENCE_TICKS
    if n_submitted < 0:
        _report(core, "")


def on_recovering(core: ClientState, _message: Recovering) -> None:
    """Wait with the report: the scheduler will send what it has found."""
    notices_of(core).n_ticks = None


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
    notices = notices_of(core)
    outage_s, notices.outage_s = notices.outage_s, 0.0
    if not outage_s:
        return
    text = "the scheduler is back after " + (
        f"{outage_s:.0f} s" if outage_s >= 1 else "less than 1 s"
    )
    n_pending = n_here = 0
    for state in core.table.snapshot():
        n_pending += state.status == PENDING
        n_here += state.has_data
    if notices.n_submitted < 0:
        text += f"; {counted(n_pending, 'future')} pending"
    else:
        text += (
            f", and has been started again: {counted(n_here, 'result')} kept here, "
            f"{counted(notices.n_submitted, 'task')} submitted again{found}"
        )
    core.after.append(Warn(text))


def _on_lost(core: ClientState) -> None:
    notices_of(core).outage_s = 0.0


def _on_ticked(core: ClientState) -> None:
    notices = notices_of(core)
    if notices.outage_s and notices.n_ticks is not None:
        notices.n_ticks -= 1
        if notices.n_ticks < 0:  # it does not recover: it had no peers before
            _report(core, "")


FEATURE: Final = ClientFeature(
    name="notices",
    records=(Notices,),
    handlers={
        TaskOutput: on_output,
        LogRecords: on_output,
        KeysUnrunnable: on_keys_unrunnable,
        Recovering: on_recovering,
        Recovered: on_recovered,
    },
    asked=(on_asked,),
    lost=(_on_lost,),
    ticked=(_on_ticked,),
)
