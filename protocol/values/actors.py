"""`Actor`: a handle of an object on one worker, as clients, tasks and other actors hold it.

The same class in every process; the calls themselves are made by the client package, which a
worker imports with the first of them (`set_handle_calls`). A handle that is pickled into the
arguments of a task is a dependency of the task, as a future is; anywhere else it keeps its key. So
each holder keeps the actor alive.

The result of the task that made an actor is a `StoredActor`, the only object that keeps it alive in
its own process. A copy of that, which another process has fetched, is a handle that keeps nothing
alive, because the store that has the copy would keep the actor for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ..errors import ClientClosed
from .functions import in_function
from .staying import Staying

__all__ = ["Actor", "ActorInfo", "HandleCalls", "StoredActor", "set_handle_calls"]

#: Counts for more than a result that is sent along with the report of its task: the key stays with
#: the worker, also at a return to a new scheduler, and tasks that call the actor go to it.
_NBYTES: Final = 128 << 10


class ActorInfo(NamedTuple):
    """The identity of an actor: what a handle is made from."""

    key: str  #: of the task that made it
    address: str  #: of its worker's data port
    worker: str  #: the name of that
    secret: str  #: what a call must name; known to holders only
    name: str  #: of its class
    methods: frozenset[str]


class Actor:
    """An object on one worker: a call of a method returns an `ActorFuture`, an attribute its value.

    Made by `client.submit(cls, ..., actor=True).result()`. Calls of one holder are done in their
    order, each at most once, and one at a time unless they are coroutines. Each holder keeps the
    object alive: a client, a task that has the handle as an argument, another actor.

    Example:
        >>> class Counter:
        ...     n = 0
        ...     def add(self, by):
        ...         self.n += by
        ...         return self.n
        >>> counter = client.submit(Counter, actor=True).result()
        >>> [counter.add(1).result(), counter.add(2).result()]
        [1, 3]
        >>> counter.n
        3
    """

    __slots__ = ("__weakref__", "_cell", "_hold", "_info")

    _info: ActorInfo
    #: The future that keeps the actor alive; None for a copy of a worker's store.
    _hold: Any
    #: In the actor's own process: what keeps it alive there.
    _cell: Any

    def __init__(self, info: ActorInfo, hold: Any = None, cell: Any = None) -> None:
        put = object.__setattr__
        put(self, "_info", info)
        put(self, "_hold", hold)
        put(self, "_cell", cell)

    @property
    def key(self) -> str:
        """The key of the task that made the actor."""
        return self._info.key

    def __getattr__(self, name: str) -> Any:
        # Names that libraries look for in every object must not become calls.
        if name.startswith(("__", "_repr_", "_ipython_")) or name in Actor.__slots__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        calls = _calls()
        if name in self._info.methods:
            return partial(calls.call, self, name)
        return calls.read(self, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"attribute {name!r} of actor {self._info.key!r} cannot be set from outside: its state "
            "is on its worker; add a method to the class that sets it"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(
            f"attribute {name!r} of actor {self._info.key!r} cannot be deleted from outside; add a "
            "method to the class that does it"
        )

    def __dir__(self) -> list[str]:
        return sorted({"key", *self._info.methods})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Actor) and other._info.secret == self._info.secret

    def __hash__(self) -> int:
        return hash(self._info.secret)

    def __repr__(self) -> str:
        return f"<Actor: {self._info.name}, key: {self._info.key}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        if in_function.depth:
            raise TypeError(
                f"the actor {self._info.key!r} is part of a function, where nothing keeps it "
                "alive: pass it as an argument of the call"
            )
        return actor_from, (_PassedOn(self._hold), self._info)


class StoredActor(Actor, Staying):
    """A handle as a worker's store has it: on the actor's worker, or a copy elsewhere."""

    __slots__ = ()

    def __sizeof__(self) -> int:
        return _NBYTES

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return StoredActor, (self._info,)


class _PassedOn:
    """A future in the pickle of a handle: the reader gets the future, or its result."""

    __slots__ = ("_future",)

    def __init__(self, future: Any) -> None:
        self._future = future

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        reduced: tuple[Callable[..., Any], tuple[Any, ...]] = self._future.__reduce__()
        return reduced


def actor_from(found: Any, info: ActorInfo) -> Actor:
    """Return the handle of a pickle, from the actor's future or, in a task, from its result."""
    if isinstance(found, Actor):
        return _calls().kept(found)
    return Actor(info, found)


def passed_on(found: Any) -> Any:
    """Return the handle of a future of an actor in a pickle; outside of tasks the future."""
    if isinstance(found, Actor):
        return _calls().kept(found)
    return _calls().future_of_actor(found)


def reduce_future_of_actor(plain: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the result of `__reduce__` for the future of an actor; `plain` stands for it."""
    return passed_on, (plain,)


# --- What makes the calls -------------------------------------------------------------------------


class HandleCalls(NamedTuple):
    """What the client package does for handles."""

    call: Callable[..., Any]  #: (actor, name of a method, its arguments) -> the future of a call
    read: Callable[[Actor, str], Any]  #: the value of an attribute
    kept: Callable[[Actor], Actor]  #: a handle that keeps the actor alive, of a stored one
    future_of_actor: Callable[[Any], Any]  #: of any other future of the same key


def _without_client() -> HandleCalls:
    raise ClientClosed("a handle of an actor is used in a process without a client: make one first")


_calls: Callable[[], HandleCalls] = _without_client


def set_handle_calls(provide: Callable[[], HandleCalls]) -> None:
    """Set the function that returns what the client package does for handles, on any thread.

    The client package sets one; before that, the program of a worker sets one that imports it.
    """
    global _calls  # noqa: PLW0603 - one hook per process is intended
    _calls = provide
