"""The graphs: dicts in dask's oldest form, which every engine reads, with their known results.

A graph is built outside the clock. Its dict is in topological order, so that `bare` can run it
as it is: no scheduler can be faster than that.
"""

from __future__ import annotations

import functools
import importlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..tasks import inc

#: Calls every node once in topological order and returns the requested results, nested like keys.
Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Shape:
    """A graph, the keys to ask for and their results. Literals are not counted as tasks."""

    graph: dict[Any, Any]
    keys: list[Any]
    n_tasks: int
    expected: list[Any]


def independent(n: int) -> Shape:
    """n tasks without dependencies, all of them requested."""
    graph = {("x", i): (inc, i) for i in range(n)}
    return Shape(graph, list(graph), n, [i + 1 for i in range(n)])


def trivial(n: int, layers: int = 5) -> Shape:
    """Chains of `layers` tasks side by side, at least n tasks in all; n < `layers`: one chain of
    n.
    """
    layers = min(layers, n)
    width = -(-n // layers)
    graph: dict[Any, Any] = {("x", 0, i): i for i in range(width)}
    for j in range(1, layers + 1):
        graph.update({("x", j, i): (inc, ("x", j - 1, i)) for i in range(width)})
    keys = [("x", layers, i) for i in range(width)]
    return Shape(graph, keys, width * layers, [i + layers for i in range(width)])


def crosstalk(width: int, edges: int, layers: int = 4) -> Shape:
    """`layers` layers of `width` tasks over one of literals; each task adds up `edges` results of
    the layer below, drawn at random (with repetition), the same ones every time.
    """
    draw = random.Random(edges).randrange
    graph: dict[Any, Any] = {("x", 0, i): i for i in range(width)}
    values = list(range(width))
    for j in range(1, layers + 1):
        below, values = values, []
        for i in range(width):
            chosen = [draw(width) for _ in range(edges)]
            graph["x", j, i] = (sum, [("x", j - 1, k) for k in chosen])
            values.append(sum(below[k] for k in chosen))
    return Shape(graph, [("x", layers, i) for i in range(width)], width * layers, values)


def bare(graph: Mapping[Any, Any], keys: list[Any]) -> Run:
    """Return a function that runs a graph of the shapes above and nothing else."""
    literals = {key: node for key, node in graph.items() if not isinstance(node, tuple)}
    plan = []
    for key, node in graph.items():
        if key in literals:
            continue
        function, *arguments = node
        if len(arguments) > 1:
            are_keys = [isinstance(a, tuple) and a in graph for a in arguments]
            plan.append((key, function, "several", list(zip(arguments, are_keys, strict=True))))
            continue
        (argument,) = arguments
        kind = "all" if isinstance(argument, list) else "one" if argument in graph else "literal"
        plan.append((key, function, kind, argument))

    def run() -> list[Any]:
        values = dict(literals)
        for key, function, kind, argument in plan:
            if kind == "one":
                values[key] = function(values[argument])
            elif kind == "all":
                values[key] = function([values[k] for k in argument])
            elif kind == "literal":
                values[key] = function(argument)
            else:
                values[key] = function(*[values[a] if is_key else a for a, is_key in argument])
        return [values[key] for key in keys]

    return run


@dataclass(frozen=True, slots=True)
class ArraySum:
    """dask's `da.ones(n, chunks=2).sum()`: the collection, and the graph that dask hands to a
    scheduler for it, made once.
    """

    collection: Any
    graph: dict[Any, Any]
    keys: list[Any]


@functools.cache
def array_sum(n: int) -> ArraySum:
    dask: Any = importlib.import_module("dask")
    da = importlib.import_module("dask.array")
    collection = da.ones(n, chunks=2).sum()
    handed: list[Any] = []

    def note(graph: Any, keys: Any, **options: Any) -> Any:
        handed[:] = [graph, keys]
        return dask.get(graph, keys, **options)

    collection.compute(scheduler=note)
    graph, keys = handed
    return ArraySum(collection, dict(graph.__dask_graph__()), keys)


def bare_nodes(graph: Mapping[Any, Any], keys: list[Any]) -> Run:
    """Return a function that calls each of dask's nodes once in topological order, with just the
    values of its dependencies.
    """
    plan = [(key, graph[key], tuple(graph[key].dependencies)) for key in _topological(graph)]

    def run() -> list[Any]:
        values: dict[Any, Any] = {}
        for key, node, dependencies in plan:
            values[key] = node({k: values[k] for k in dependencies})
        return [values[key] for key in keys]

    return run


def _topological(graph: Mapping[Any, Any]) -> list[Any]:
    order: dict[Any, None] = {}
    stack = list(graph)
    while stack:
        key = stack[-1]
        missing = [k for k in graph[key].dependencies if k not in order]
        if key in order or not missing:
            order.setdefault(key)
            stack.pop()
        else:
            stack += missing
    return list(order)
