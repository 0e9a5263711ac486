"""One task of a graph, linked to those it needs and those that need it, and the forms its arguments
take.

A *reference* is any object with a `value`: a `GraphTask` that has finished, or a container that
builds its value from references of its own when the attribute is read. So filling in a call is one
loop for all forms of arguments, and no recursion happens while a graph is read.

Core: independent of the drivers, which run the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Protocol


class HasValue(Protocol):
    """A reference."""

    @property
    def value(self) -> Any: ...


class GraphTask:
    """A call that is made once, and its result for as long as it is needed."""

    __slots__ = (
        "args",
        "dependencies",
        "dependents",
        "func",
        "key",
        "n_uses",
        "n_waiting",
        "refs",
        "value",
    )

    #: The user's name for it, unique in its graph.
    key: Hashable
    #: Called as `func(*args)` once `refs` are filled in.
    func: Callable[..., Any]
    #: The arguments, with literals in their places.
    args: list[Any]
    #: [(i, reference)]: `args[i]` is the reference's value.
    refs: list[tuple[int, HasValue]]
    #: One entry for each reference, those inside containers too; so a task may be in it twice.
    dependencies: list[GraphTask]
    #: The mirror of `dependencies`, as many entries. Emptied when the task has finished.
    dependents: list[GraphTask]
    #: Entries of `dependencies` that have not finished.
    n_waiting: int
    #: 1 if it is an output, else 0, until it has finished; then plus the number of dependents that
    #: have not. At 0 the value is dropped.
    n_uses: int
    #: The result, from the end of the call until it is dropped; else None.
    value: Any

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.dependents = []
        self.n_uses = 0
        self.value = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}>"


def call(task: GraphTask) -> Any:
    """Make the call of a task whose dependencies have finished, and return its result."""
    refs = task.refs
    if not refs:
        return task.func(*task.args)
    # A copy, because the task must not keep its inputs alive, and may have to be called again.
    args = task.args.copy()
    for i, ref in refs:
        args[i] = ref.value
    return task.func(*args)


class Literal:
    """A value that was written in the graph, under a key of its own."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class ListOf:
    """A list in the arguments. Each call gets a new list, so that it cannot affect others."""

    __slots__ = ("refs", "template")

    def __init__(self, template: list[Any]) -> None:
        self.template = template
        self.refs: list[tuple[int, HasValue]] = []

    @property
    def value(self) -> Any:
        return self.filled()

    def filled(self) -> list[Any]:
        """Return the items."""
        items = self.template.copy()
        for i, ref in self.refs:
            items[i] = ref.value
        return items


class ContainerOf(ListOf):
    """A container that is made of a list: a tuple, a set, or a subclass of one of these."""

    __slots__ = ("make",)

    def __init__(self, template: list[Any], make: Callable[[list[Any]], Any]) -> None:
        super().__init__(template)
        self.make = make

    @property
    def value(self) -> Any:
        return self.make(self.filled())


class CallOf(ListOf):
    """A call inside the arguments of another, and a named tuple: `func(*items)`."""

    __slots__ = ("func",)

    def __init__(self, template: list[Any], func: Callable[..., Any]) -> None:
        super().__init__(template)
        self.func = func

    @property
    def value(self) -> Any:
        return self.func(*self.filled())


class ValuesOf:
    """{key: value} of some tasks: the argument of a dask node."""

    __slots__ = ("refs",)

    def __init__(self, refs: list[tuple[Hashable, HasValue]]) -> None:
        self.refs = refs

    @property
    def value(self) -> Any:
        return {key: ref.value for key, ref in self.refs}
