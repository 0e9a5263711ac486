"""What pickled arguments refer to in the worker that reads them: values, and functions, by number.

What it owns: the two functions that such pickles name, and which run of the calling thread they
mean. Pickles of another run must not be read meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Tables:
    """What the numbers of a run stand for, in one worker."""

    __slots__ = ("blobs", "functions", "values")

    def __init__(self) -> None:
        #: {number of a task or literal: value}
        self.values: dict[int, Any] = {}
        #: {number: function}, of those that were needed so far.
        self.functions: dict[int, Callable[..., Any]] = {}
        #: {number: what makes a function}, of the others.
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


class Stored:
    """A reference to the value of a task that ran before."""

    __slots__ = ("number", "values")

    def __init__(self, values: dict[int, Any], number: int) -> None:
        self.values = values
        self.number = number

    @property
    def value(self) -> Any:
        return self.values[self.number]


def stored(number: int) -> Stored:
    """Stand for a task among pickled arguments."""
    return Stored(current.tables.values, number)


def function(number: int) -> Callable[..., Any]:
    """Stand for a function that was sent apart from the pickle that names it."""
    return current.tables.function(number)
