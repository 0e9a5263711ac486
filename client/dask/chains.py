"""Chains of tasks of dask's data frames as one task each, in graphs that read parts of values.

dask joins such chains when a frame is persisted or optimized, but not by `compute`. Around a
shuffle of n partitions to m there would be several times n + m tasks, each with a record at the
scheduler and a result at a worker.

The tasks of a chain are those of the same steps for different partitions. What they have in common
is sent once, in the function that calls the steps (`CallsInTurn`); what differs is the arguments.
A chain ends at a result that somebody may ask for: it is requested, or this client has its future.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from ...protocol.values.parts import index_of_parts
from ...protocol.values.sizeof import sizeof
from ...protocol.wire.keys import prefix_of, text_of

__all__ = ["CallsInTurn", "with_chains"]

#: Values that tasks share are sent with the function up to this size.
_MAX_COMMON_NBYTES: Final = 32 << 10
_MAX_NAME: Final = 80


class _Step(NamedTuple):
    """One call of a chain."""

    func: Any
    #: None in the places of what differs
    args: list[Any]
    kwargs: dict[str, Any]
    #: of arguments that differ from task to task
    places: list[int]
    #: of the result of the step before; -1 in the first step
    place: int


class CallsInTurn:
    """Calls functions in turn, each with the result of the one before as an argument."""

    def __init__(self, name: str, steps: list[_Step]) -> None:
        self.__name__ = name
        self._steps = steps

    def __reduce__(self) -> tuple[Any, ...]:
        return _calls_in_turn, (self.__name__, [tuple(step) for step in self._steps])

    def __call__(self, *args: Any) -> Any:
        given, result = iter(args), None
        del args
        for func, common, kwargs, places, place in self._steps:
            filled = list(common)
            for i in places:
                filled[i] = next(given)
            if place >= 0:
                filled[place] = result
            result = None  # only the call has it
            result = func(*filled, **kwargs)
        return result


def _calls_in_turn(name: str, steps: list[tuple[Any, ...]]) -> CallsInTurn:
    return CallsInTurn(name, [_Step(*step) for step in steps])


def with_chains(
    graph: Mapping[Any, Any], keys: Any, wanted: Collection[str], annotated: Collection[Any] = ()
) -> Mapping[Any, Any]:
    """Return a graph with shuffles in which each chain is one task; other graphs as they are.

    Args:
        graph: keys and nodes of dask.
        keys: those that are requested, in lists of any depth.
        wanted: the texts of keys whose futures the client has.
        annotated: keys of tasks with annotations. If there are any, nothing is joined.
    """
    spec: Any = sys.modules.get("dask._task_spec")
    if spec is None or annotated or not any(_is_index(task) for task in graph.values()):
        return graph
    kept = set(_flat(keys))
    n_readers: Counter[Any] = Counter()
    for task in graph.values():
        n_readers.update(_inputs_of(graph, task, spec))
    #: {key: the key of the task before it, and the place of its result among the arguments}
    before: dict[Any, tuple[Any, int]] = {}
    for key, task in graph.items():
        place = _place_of_only_input(task, spec)
        if place < 0:
            continue
        source = task.args[place].key
        if (
            n_readers[source] == 1
            and source not in kept
            and _is_call(graph.get(source), spec)
            and not _is_wanted(source, wanted)
        ):
            before[key] = source, place
    inner = {source for source, _ in before.values()}
    #: {what the steps have in common: chains}
    groups: dict[Any, list[list[Any]]] = {}
    for key in before:
        if key not in inner:
            chain = [key]
            while (found := before.get(chain[-1])) is not None:
                chain.append(found[0])
            chain.reverse()
            groups.setdefault(_likeness(graph, chain), []).append(chain)
    changed = dict(graph)
    for chains in groups.values():
        if len(chains) > 1:
            places = [-1] + [before[key][1] for key in chains[0][1:]]
            _join(changed, graph, chains, places)
    return changed


def _join(
    changed: dict[Any, Any], graph: Mapping[Any, Any], chains: list[list[Any]], places: list[int]
) -> None:
    """Put one task in the place of each of some chains that are alike."""
    spec: Any = sys.modules["dask._task_spec"]
    steps = []
    given: list[list[Any]] = [[] for _ in chains]
    for number, place in enumerate(places):
        tasks = [graph[chain[number]] for chain in chains]
        first = tasks[0]
        args, differing = list(first.args), []
        for i, arg in enumerate(first.args):
            if i == place:
                args[i] = None
            elif not _is_common(arg, [task.args[i] for task in tasks], spec):
                args[i] = None
                differing.append(i)
                for task, some in zip(tasks, given, strict=True):
                    some.append(task.args[i])
        steps.append(_Step(first.func, args, first.kwargs, differing, place))
    names = dict.fromkeys(prefix_of(key) for key in chains[0])
    call = CallsInTurn("-".join(names)[-_MAX_NAME:], steps)
    for chain, some in zip(chains, given, strict=True):
        for key in chain[:-1]:
            del changed[key]
        changed[chain[-1]] = spec.Task(chain[-1], call, *some)


def _is_common(arg: Any, others: list[Any], spec: Any) -> bool:
    return (
        not isinstance(arg, (spec.TaskRef, spec.GraphNode))
        and all(other is arg for other in others)
        and sizeof(arg) <= _MAX_COMMON_NBYTES
    )


def _likeness(graph: Mapping[Any, Any], chain: list[Any]) -> tuple[Any, ...]:
    """Return what chains have in common whose steps differ in arguments only."""
    return tuple(
        (
            key[0] if key.__class__ is tuple else key,
            id(task.func),
            len(task.args),
            tuple((name, id(value)) for name, value in task.kwargs.items()),
        )
        for key, task in ((key, graph[key]) for key in chain)
    )


def _is_index(task: Any) -> bool:
    return getattr(task, "func", None) is index_of_parts


def _is_call(task: Any, spec: Any) -> bool:
    """Return whether a task may be a step."""
    return (
        type(task) is spec.Task
        and not _is_index(task)
        and not task.block_fusion
        and not task.has_subgraph()
        and not any(isinstance(v, (spec.TaskRef, spec.GraphNode)) for v in task.kwargs.values())
    )


def _place_of_only_input(task: Any, spec: Any) -> int:
    """Return the place of the only input of a task among its arguments; -1 = it has no such."""
    if not _is_call(task, spec) or len(task.dependencies) != 1:
        return -1
    nodes = [
        i for i, arg in enumerate(task.args) if isinstance(arg, (spec.TaskRef, spec.GraphNode))
    ]
    if len(nodes) != 1 or type(task.args[nodes[0]]) is not spec.TaskRef:
        return -1
    return nodes[0]


def _inputs_of(graph: Mapping[Any, Any], task: Any, spec: Any) -> Iterable[Any]:
    if isinstance(task, spec.GraphNode):
        return task.dependencies  # type: ignore[no-any-return]
    core: Any = sys.modules["dask.core"]
    return core.keys_in_tasks(graph, [task])  # type: ignore[no-any-return]


def _is_wanted(key: Any, wanted: Collection[str]) -> bool:
    try:
        return text_of(key) in wanted
    except (TypeError, ValueError):
        return True  # it has another name


def _flat(keys: Any) -> Iterable[Any]:
    stack = [keys]
    while stack:
        each = stack.pop()
        if each.__class__ is list:
            stack += each
        else:
            yield each
