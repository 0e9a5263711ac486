"""Resolves the references of pickled arguments, in the worker that reads them: numbers of values
and functions.

It fills references in, and owns the function that such pickles name, and the tables of the run to
which the calling thread's pickles belong. Pickles of another run must not be read meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeAlias


class Tables:
    """The values and functions of a run by their numbers, in one worker."""

    __slots__ = ("blobs", "functions", "values")

    def __init__(self) -> None:
        #: {number of a task or literal: value}
        self.values: dict[int, Any] = {}
        #: {number: function} of those that were needed so far.
        self.functions: dict[int, Callable[..., Any]] = {}
        #: {number: callable that unpickles the function} of the others.
        self.blobs: dict[int, Callable[[], Callable[..., Any]]] = {}

    def function(self, number: int) -> Callable[..., Any]:
        """Return a function or class, unpickled at its first use. Raises whatever that raises."""
        func = self.functions.get(number)
        if func is None:
            func = self.functions[number] = self.blobs[number]()
            del self.blobs[number]
        return func


class _Current(threading.local):
    tables: Tables


current = _Current()


#: Kinds of nodes: a list; `make(items)`; `make(*items)`; {key: item}, and `make` is the keys.
LIST, CONTAINER, CALL, DICT = range(4)

#: One container, or call, among the arguments of a call: (kind, make, items, references). The nodes
#: inside it follow it, the last of them first.
Node: TypeAlias = "tuple[int, Any, list[Any], list[tuple[int, int]]]"


def fill(
    args: list[Any], refs: list[tuple[int, int]], nodes: list[Node], values: dict[int, Any]
) -> None:
    """Put the values of references into arguments, and into those of the calls in them.

    Args:
        args: changed, as are the items of the nodes.
        refs: [(i, number)]: `args[i]` is that value; or (i, ~number): it is made from that node.
        nodes: of containers and calls in the arguments.
        values: by number.
    """
    made: list[Any] = [None] * len(nodes)
    # From the back, so that inner nodes come before outer ones, and otherwise in order.
    for place in range(len(nodes) - 1, -1, -1):
        kind, make, items, inner = nodes[place]
        for i, number in inner:
            items[i] = values[number] if number >= 0 else made[~number]
        if kind == LIST:
            made[place] = items
        elif kind == CONTAINER:
            made[place] = make(items)
        elif kind == CALL:
            made[place] = make(*items)
        else:
            made[place] = dict(zip(make, items, strict=True))
    for i, number in refs:
        args[i] = values[number] if number >= 0 else made[~number]


def function(number: int) -> Callable[..., Any]:
    """Return the function of that number; pickles name this function in the place of it."""
    return current.tables.function(number)
