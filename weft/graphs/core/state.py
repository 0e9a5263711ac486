"""Consequences of a finished task: tasks that become ready, and values that can be dropped.

Core: constant time per task and edge, for all drivers. The ready stack is last in, first
out: the task that became possible last runs first, so that chains and branches end before others
begin, and few results are held at a time. (After dask's local scheduler; what differs: nothing is
looked up by key, an edge is a pointer.)
"""

from __future__ import annotations

from typing import Any

from .tasks import GraphTask


def finish(task: GraphTask, value: Any, ready: list[GraphTask], dropped: list[Any]) -> None:
    """Note the result of a task.

    Tasks that waited for it alone are pushed on `ready`. Values that it was the last to need are
    put on `dropped`: the caller lets go of them where their destructors, which are user code, may
    run.
    """
    dependents = task.dependents
    # The dependents point here too: without this, every graph would be garbage for the collector.
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
