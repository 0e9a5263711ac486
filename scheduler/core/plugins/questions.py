"""The question `plugins`: what is registered, and which processes have not reported about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.question_arguments import Info, Page
from ..records.peers import WorkerHandle
from .plugins import named
from .records import Plugin, Process, plugins_of

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Processes that a row names.
MAX_LATE: Final = 10


def ask_plugins(state: SchedulerState, arguments: Info, page: str) -> Page:
    """List the plugins; those that are torn down come first."""
    return {"plugins": [_row(state, plugin) for plugin in plugins_of(state).all()]}, ""


def _row(state: SchedulerState, plugin: Plugin) -> Info:
    # Those that are at work come first, then those that wait for something else.
    late = sorted(plugin.waiting, key=lambda process: not plugin.waiting[process])
    return {
        "name": plugin.name,
        "state": _state_of(plugin),
        "kind": "supervisors" if plugin.is_for_supervisors else "workers",
        "n_ready": len(plugin.ready),
        "n_late": len(late),
        "late": [[named(one), _why_late(state, plugin, one)] for one in late[:MAX_LATE]],
    }


def _state_of(plugin: Plugin) -> str:
    if plugin.is_ending:
        return "being torn down"
    if plugin.is_aside:
        return "set aside"
    return "being set up" if plugin.is_new else "kept"


def _why_late(state: SchedulerState, plugin: Plugin, process: Process) -> str:
    """Return why a process has not begun, as far as it is known; "" = it may have begun."""
    if process.peer not in state.roles:
        return "its connection is lost"
    if plugin.waiting[process]:
        return ""
    if isinstance(process, WorkerHandle):
        others = [p for p in plugins_of(state).all() if p.waiting.get(process)]
        if others:
            return f"it is busy with plugin {others[0].name!r}"
    return "it waits for its supervisor, or ends"
