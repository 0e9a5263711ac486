"""Reads the tasks around one from the scheduler: inputs, dependents, and theirs.

The scheduler is asked page by page about twenty tasks (`tasks`), so none of its turns is long. How
many tasks are asked about is bounded, whatever the size of the graph.
"""

from __future__ import annotations

from typing import Any, Final

from .graph_layout import Neighbours, NeighbourTask
from .viewer import Viewer

#: Tasks of one picture.
MAX_TASKS: Final = 240
#: How far away a task may be, in steps.
MAX_STEPS: Final = 6
#: Tasks of one question.
_N_ASKED: Final = 60


async def read_neighbours(viewer: Viewer, key: str) -> Neighbours:
    """Return the tasks around a key, the nearest ones first; none if it is not known.

    Raises:
        TimeoutError, WeftError: see `Viewer.ask`.
    """
    found = Neighbours()
    near = [key] if key else []
    seen = dict.fromkeys(near)
    for _ in range(MAX_STEPS + 1):
        if not near:
            break
        more: dict[str, None] = {}
        for start in range(0, len(near), _N_ASKED):
            keys = near[start : start + _N_ASKED]
            for task in (await viewer.ask_all("tasks", {"keys": keys}))["tasks"]:
                found.tasks[task["key"]] = _task_of(task)
                more |= dict.fromkeys([*task["inputs"], *task["dependents"]])
        room = MAX_TASKS - len(seen)
        near = [one for one in more if one not in seen][: max(room, 0)]
        seen |= dict.fromkeys(near)
    return found


def _task_of(task: dict[str, Any]) -> NeighbourTask:
    return NeighbourTask(
        key=task["key"],
        function=task["function"],
        state=task["state"],
        inputs=tuple(task["inputs"]),
        dependents=tuple(task["dependents"]),
        n_inputs=task["n_inputs"],
        n_dependents=task["n_dependents"],
    )
