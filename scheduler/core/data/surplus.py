"""Copies that nobody wished for leave the workers whose memory is short.

A worker that fetches an input keeps it, for tasks that read it later. When such copies fill its
memory, it would write them to its disk, though another worker has them. So a worker reports how
much should leave, before it begins to write, and the scheduler lets it drop copies that others have
as well. The scheduler decides, so two holders never drop each other's: the copy that is left counts
as the only one at once.

A copy stays where a task of that worker reads it, and where copies are wished for (`copies`). It
also stays if all others are at workers that are away or leave. A unique result stays in any case:
what counts as another copy of it, after a restart, is only a name for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..actors.actors import may_have_copies
from ..feature import Feature
from ..records.peers import AWAY, LEAVING, SupervisorHandle, WorkerHandle
from ..records.tasks import SchedulerTask
from .copies import drop_copy, is_wished

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Smaller copies stay: they are not written to a disk either.
LEAST_BYTES: Final = 64 << 10
#: Results of a worker that are looked at for one report, oldest first.
MAX_SEEN: Final = 2000


def is_surplus(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Return whether a worker may drop its copy."""
    return (
        len(task.replicas) > 1
        and task.nbytes >= LEAST_BYTES
        and may_have_copies(state, task)
        and any(other is not ws and not other.closed & (AWAY | LEAVING) for other in task.replicas)
        and not any(reader.worker is ws for reader in task.dependents or ())
        and not is_wished(state, task)
    )


def on_numbers(
    state: SchedulerState, process: WorkerHandle | SupervisorHandle, numbers: Sequence[int]
) -> None:
    """Let a worker drop what it should, after its status has come."""
    if isinstance(process, SupervisorHandle) or process.status is None or process.is_away:
        return
    left = process.status.excess_nbytes
    if left <= 0:
        return
    chosen = []
    for task in islice(process.has_what, MAX_SEEN):
        if is_surplus(state, task, process):
            chosen.append(task)
            left -= task.nbytes
            if left <= 0:
                break
    for task in chosen:
        drop_copy(state, task, process)


FEATURE: Final = Feature(name="surplus copies", numbers_reported=(on_numbers,))
