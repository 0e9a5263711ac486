"""What holds of the records of plugins, for `validate`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ..invariants.checking import differences, unless
from .plugins import MAX_NBYTES, MAX_PLUGINS, is_preparing, lacks_supervisor
from .records import plugins_of

if TYPE_CHECKING:
    from ..state import SchedulerState


def _bytes(state: SchedulerState) -> int:
    return sum(plugin.nbytes for plugin in plugins_of(state).all())


def _with_orders_at_once(state: SchedulerState) -> list[object]:
    """Return the workers that are asked to set several plugins up at the same time."""
    return [
        ws
        for ws in state.workers.values()
        if sum(bool(plugin.waiting.get(ws)) for plugin in plugins_of(state).kept.values()) > 1
    ]


#: {what holds: what breaks it}
PLUGIN_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "plugins are filed by name": lambda s: [
        plugin for name, plugin in plugins_of(s).kept.items() if name != plugin.name
    ],
    "a plugin is kept or ends": lambda s: [
        *(plugin for plugin in plugins_of(s).kept.values() if plugin.is_ending),
        *(plugin for plugin in plugins_of(s).ending if not plugin.is_ending or not plugin.waiting),
    ],
    "each process has a kept plugin, or waits for it": lambda s: differences(
        [
            (p, process)
            for p in plugins_of(s).kept.values()
            for process in (s.supervisors if p.is_for_supervisors else s.workers).values()
            if not p.is_aside
        ],
        [
            (p, process)
            for p in plugins_of(s).kept.values()
            for process in (*p.ready, *p.waiting)
            if not p.is_aside
        ],
    ),
    "a worker sets up one plugin at a time": _with_orders_at_once,
    "a worker that tries a plugin waits for it": lambda s: [
        p for p in plugins_of(s).all() if p.trial is not None and p.trial not in p.waiting
    ],
    "supervisors that are required to have a plugin wait for it, and others renew": lambda s: [
        plugin
        for plugin in plugins_of(s).all()
        if not {*plugin.required} <= {*plugin.waiting}
        or not {*plugin.outdated, *plugin.renewing} <= {*plugin.ready}
        or (plugin.outdated and not plugin.is_new)
    ],
    "a worker that prepares is away and waits for a plugin": lambda s: [
        ws
        for ws in plugins_of(s).preparing
        if not ws.is_away
        or s.workers_by_id.get(ws.worker_id) is not ws
        or (
            is_preparing(s, ws)
            and not any(ws in plugin.waiting for plugin in plugins_of(s).kept.values())
            and not lacks_supervisor(s, ws)
        )
    ],
    "a client waits only for a plugin that some process has not reported": lambda s: [
        plugin
        for plugin in plugins_of(s).all()
        if plugin.orders and not plugin.waiting and not plugin.renewing
    ],
    "plugins are few and small": lambda s: unless(
        _bytes(s) <= 2 * MAX_NBYTES and len(plugins_of(s).kept) <= MAX_PLUGINS, _bytes(s)
    ),
}
