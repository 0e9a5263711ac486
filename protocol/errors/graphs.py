"""Errors of graphs that run on one machine, and of options of dask's functions."""

from __future__ import annotations

from collections.abc import Iterable

from .base import WeftError


class GraphError(WeftError, ValueError):
    """The argument of a `get` function is not a graph that can be run; nothing was run.

    A graph is a mapping of keys to tasks, or a collection of dask; docs/embedded.md describes the
    forms of tasks.
    """


class GraphCycle(GraphError, RuntimeError):
    """Tasks of a graph need each other's results; nothing was run.

    Remove one of the named references. A string or tuple that is meant as a value but equals a key
    is a reference too: rename the key.

    Args:
        keys: the keys of the cycle, each needing the next; the last is the first again.
    """

    def __init__(self, keys: Iterable[object]) -> None:
        keys = list(keys)
        super().__init__(keys)
        self.keys = keys

    def __str__(self) -> str:
        shown = [repr(key) for key in self.keys]
        if len(shown) > 12:
            shown[6:-5] = [f"... {len(shown) - 11} more ..."]
        text = "the graph has a cycle: " + " needs ".join(shown)
        if len(shown) == 2:
            text += "; a value that equals a key is a reference to that task: rename the key"
        return text


class MissingKey(GraphError, KeyError):
    """A key that was requested, or that a task needs, is not in the graph; nothing was run.

    Compare the key with those of the graph: `1` and `"1"` are different keys, and so are a tuple
    and a list.

    Args:
        key: the key that is missing.
        needed_by: the key of the task that needs it; None if it was requested.
    """

    def __init__(self, key: object, needed_by: object = None) -> None:
        super().__init__(key, needed_by)
        self.key = key
        self.needed_by = needed_by

    def __str__(self) -> str:
        asked = self.needed_by is None
        who = "was asked for and" if asked else f"is needed by {self.needed_by!r} and"
        hint = "; a tuple is one key, for several use a list" if type(self.key) is tuple else ""
        return f"key {self.key!r} {who} is not in the graph{hint if asked else ''}"


class WrongExecutor(WeftError, TypeError):
    """The executor cannot run a graph; nothing was run.

    Pass an instance of `concurrent.futures.Executor` that is not shut down, or none.
    """


class NotSupported(WeftError, NotImplementedError):
    """A feature of dask is not supported by weft yet, and ignoring it would change results.

    The text says what to do instead.
    """


class UnknownOption(WeftError, TypeError):
    """A `get` function does not have this option; nothing was run.

    The text lists the options. Options of a cluster, like `resources` or `retries`, need a
    `Client`.
    """
