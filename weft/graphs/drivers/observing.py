"""dask's callbacks and caches, which see each task begin and end.

An `Observer` keeps the tables that dask's callbacks get, beside those of the run and by key,
because callbacks read them (a progress bar counts their entries). It decides nothing. The thread
that requested the graph calls its methods in dask's order: `start`, `start_state`, `pretask` and
`posttask` of each task, `finish`.

Engines do not wait for it: tasks begin and end in other threads, and are shown one after the other
in an order in which they might have been run, a moment later. So at each call the tables are the
same as in dask's own engines at such a moment. A task whose result stays in a worker process is not
in the table of results, and no `posttask` is called for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

from ..core.reading import Graph
from ..core.tasks import GraphTask

#: start(dsk), start_state(dsk, state), pretask(key, dsk, state),
#: posttask(key, result, dsk, state, worker_id), finish(dsk, state, is_errored); None = not wanted
CallbackTuple: TypeAlias = "tuple[Callable[..., object] | None, ...]"

#: The place of a result that is not in this process.
ELSEWHERE: Final = object()


class Observer:
    """Shows a run to callbacks, and keeps its results in a cache.

    Args:
        callbacks: tuples of five functions.
        cache: the results that are still needed; outputs stay there.

    Attributes:
        wants_results: True if `posttask` needs the results themselves.
        state: the tables, as dask's own engines show them to callbacks.
    """

    def __init__(
        self, callbacks: Sequence[CallbackTuple], cache: MutableMapping[Any, Any] | None
    ) -> None:
        self._callbacks = callbacks
        self._started: list[CallbackTuple] = []
        self._pretasks = [callback[2] for callback in callbacks if callback[2]]
        self._posttasks = [callback[3] for callback in callbacks if callback[3]]
        self.wants_results = bool(self._posttasks) or cache is not None
        self._cache: MutableMapping[Any, Any] = {} if cache is None else cache
        #: Keys that the owner of the cache has put there, which are not removed.
        self._given = set(self._cache)
        self._dsk: Mapping[Any, Any] = {}
        self._outputs: set[Any] = set()
        #: {key: keys of dependents, in the order in which they become ready}
        self._dependents: dict[Any, list[Any]] = {}
        self.state: dict[str, Any] = {}
        #: {key in state["ready"]: its index}
        self._places: dict[Any, int] = {}

    def start(self, dsk: Mapping[Any, Any]) -> None:
        """Show the graph before it is read; callbacks may change it."""
        self._dsk = dsk
        for callback in self._callbacks:
            if callback[0]:
                callback[0](dsk)
            self._started.append(callback)

    def make_tables(self, graph: Graph) -> None:
        """Make the tables of a graph that was read and not begun."""
        cache = self._cache
        for key, value in graph.literals():
            cache[key] = value
        dependencies = {task.key: {one.key for one in task.dependencies} for task in graph.tasks}
        for task, key in graph.literal_uses:
            dependencies[task.key].add(key)
        dependents: dict[Any, set[Any]] = {key: set() for key in (*dependencies, *cache)}
        for key, keys in dependencies.items():
            for dependency in keys:
                dependents[dependency].add(key)
        self._dependents = {
            task.key: list(dict.fromkeys(one.key for one in task.dependents))
            for task in graph.tasks
        }
        self._outputs = {task.key for task in graph.tasks if task.n_uses}
        self.state = {
            "dependencies": {key: set() for key in cache} | dependencies,
            "dependents": dependents,
            "waiting": {
                task.key: {one.key for one in task.dependencies}
                for task in graph.tasks
                if task.dependencies
            },
            "waiting_data": {key: set(keys) for key, keys in dependents.items()},
            "cache": cache,
            "ready": [task.key for task in graph.sources],
            "running": set(),
            "finished": set(),
            "released": set(),
        }
        self._places = {key: place for place, key in enumerate(self.state["ready"])}

    def start_state(self) -> None:
        """Show the tables before anything runs."""
        for callback in self._callbacks:
            if callback[1]:
                callback[1](self._dsk, self.state)

    def pretask(self, task: GraphTask) -> None:
        """Show that a task begins, after its inputs were shown to have ended."""
        state, key = self.state, task.key
        # It is on top, unless several workers have stacks of their own, with no common order.
        ready = state["ready"]
        place, last = self._places.pop(key), ready.pop()
        if last is not key:
            ready[place] = last
            self._places[last] = place
        state["running"].add(key)
        for pretask in self._pretasks:
            pretask(key, self._dsk, state)

    def posttask(self, task: GraphTask, value: Any, worker_id: object) -> None:
        """Show that a task has ended; `ELSEWHERE` means that its value is not here."""
        state, key = self.state, task.key
        cache = state["cache"]
        is_here = value is not ELSEWHERE
        if is_here:
            cache[key] = value
        waiting, ready = state["waiting"], state["ready"]
        for dependent in self._dependents[key]:
            waiting[dependent].remove(key)
            if not waiting[dependent]:
                del waiting[dependent]
                self._places[dependent] = len(ready)
                ready.append(dependent)
        waiting_data = state["waiting_data"]
        for dependency in state["dependencies"][key]:
            users = waiting_data[dependency]
            users.remove(key)
            if not users and dependency not in self._outputs:
                del waiting_data[dependency]
                state["released"].add(dependency)
                if dependency not in self._given and dependency in cache:
                    del cache[dependency]
        state["finished"].add(key)
        state["running"].remove(key)
        if is_here:
            for posttask in self._posttasks:
                posttask(key, value, self._dsk, state, worker_id)

    def finish(self, *, is_errored: bool) -> None:
        """Call the `finish` of each callback whose `start` was called."""
        for callback in self._started:
            if callback[4]:
                callback[4](self._dsk, self.state, is_errored)
