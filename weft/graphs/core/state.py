"""Consequences of a finished task: tasks that become ready, and values that can be dropped.

Core: constant time per task and edge, for all drivers. The ready stack is last in, first out: the
task that became ready last runs first, so that chains and branches end before others begin, and few
results are held at a time. (As in dask's local scheduler, except that an edge is a pointer, and
nothing is looked up by key.)
"""

from __future__ import annotations

from typing import Any

from .tasks import GraphTask


def finish(task: GraphTask, value: Any, ready: list[GraphTask], dropped: list[Any]) -> None:
    """Store the result of a task.

    Tasks that waited for it alone are pushed on `ready`. Values that no other task needs are put on
    `dropped`: the caller drops them where their destructors, which are user code, may run.
    """
    dependents = task.dependents
    # The dependents refer to this task, too: without this, every graph would contain cycles.
    task.dependents = []
    n_uses = task.n_uses = task.n_uses + len(dependents)
    if n_uses:
        task.value = value
    for dependent in dependents:
        n_waiting = dependent.n_waiting = dependent.n_waiting - 1
        if not n_waiting:
            ready.append(dependent)
    for dependency in task.dependencies:
        n_uses = dependency.n_uses = dependency.n_uses - 1
        if not n_uses:
            dropped.append(dependency.value)
            dependency.value = None
