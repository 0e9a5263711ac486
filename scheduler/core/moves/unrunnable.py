"""Tasks that no connected worker may run: they are set aside, and clients are notified.

Tasks whose inputs are out of reach are filed here as well, for a moment each (see `missing.py`),
and those that pause before a retry (`retrying.py`); clients are not notified of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ..records.peers import ClientHandle

if TYPE_CHECKING:
    from ..records.tasks import SchedulerTask, TaskClass
    from ..state import SchedulerState

#: Keys named in one KeysUnrunnable message.
MAX_KEYS_NAMED: Final = 20


def file_unrunnable(state: SchedulerState, task: SchedulerTask) -> None:
    """File a task that has just become no_worker."""
    task_class = task.group.task_class
    if not task_class.unrunnable:
        task_class.unrunnable_since = state.now
    if not task_class.unrunnable and not task.is_without_recipe:
        delay_s = state.settings.unrunnable_after_s
        task_class.unrunnable_notice = state.call_after(delay_s, _notify_clients, task_class)
    task_class.unrunnable[task] = None


def unfile_unrunnable(state: SchedulerState, task: SchedulerTask) -> None:
    """Undo `file_unrunnable`."""
    if state.paused:
        state.deadlines.cancel(state.paused.pop(task, None))
    if state.busy:
        for unfiled in state.features.unfiled:
            unfiled(state, task)
    task_class = task.group.task_class
    del task_class.unrunnable[task]
    if not task_class.unrunnable:
        state.deadlines.cancel(task_class.unrunnable_notice)


def _notify_clients(state: SchedulerState, task_class: TaskClass) -> None:
    # The workers of the last scheduler may still come back. Or the tasks were only set aside for a
    # moment, because their inputs are out of reach; later no worker may be left.
    if state.awaits_peers or task_class.members:
        delay_s = state.settings.unrunnable_after_s
        task_class.unrunnable_notice = state.call_after(delay_s, _notify_clients, task_class)
        return
    reason = "; ".join(why(state, task_class) for why in state.features.why_unrunnable)
    by_client: dict[ClientHandle, list[str]] = {}
    for task in task_class.unrunnable:
        for client in task.wanted_by:
            by_client.setdefault(client, []).append(task.key)
    for client, keys in by_client.items():
        state.send_client(client, m.KeysUnrunnable(keys=keys[:MAX_KEYS_NAMED], reason=reason))
