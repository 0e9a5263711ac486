"""Blocking or awaited: how type checkers know which of the two a call is.

At run time one class serves both, because an object does not always know: the client of a task's
process blocks in threads and is awaited in coroutines. So the mode is a parameter of types alone,
with a default: `Client` is `Client[Blocking]`, and `Client(asynchronous=True)` is a
`Client[Awaited]`, whose futures, queues and locks are awaited, too. A method is written once:
`waits` gives it the type of either mode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, overload

from .shell.short_tracebacks import short_tracebacks

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .shell.engine import Engine
else:
    from typing import TypeVar


class Blocking:
    """The mode of clients whose methods block."""


class Awaited:
    """The mode of clients with `asynchronous=True`, and of coroutines in tasks."""


P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

if TYPE_CHECKING:
    #: What a future leads to.
    Result = TypeVar("Result", covariant=True, default=Any)  # noqa: PLC0105 - users read it
    #: What a queue or variable holds, and one of the futures of a `wait`.
    Item = TypeVar("Item", default=Any)
    Mode = TypeVar("Mode", default=Blocking)
else:  # Python knows defaults since 3.13
    Result, Item, Mode = map(TypeVar, ("Result", "Item", "Mode"))


class OfMode(Generic[Mode]):
    """A base class of all whose methods block or are awaited."""

    __slots__ = ()
    if TYPE_CHECKING:
        _mode: Mode
    else:
        __class_getitem__ = classmethod(GenericAlias)  # takes fewer parameters, too


class Waited(OfMode[Mode], Generic[Result, Mode]):
    """A base class of futures, and of what yields some."""

    __slots__ = ()


if TYPE_CHECKING:

    class Method(Generic[P, T_co]):
        """A method that returns `T_co` when it blocks."""

        @overload
        def __get__(self, instance: OfMode[Blocking], owner: Any) -> Callable[P, T_co]: ...
        @overload
        def __get__(
            self, instance: OfMode[Awaited], owner: Any
        ) -> Callable[P, Coroutine[Any, Any, T_co]]: ...
        @overload
        def __get__(self, instance: object, owner: Any) -> Callable[P, Any]: ...
        def __get__(self, instance: object, owner: Any) -> Any: ...

    class LoopMethod(Method[P, T_co]):
        """A method that is a coroutine on the loop of the client."""

        def on(
            self, engine: Engine, *args: P.args, **options: P.kwargs
        ) -> Coroutine[Any, Any, T_co]:
            """Return the coroutine, in one of the same loop."""

    def on_loop(
        method: Callable[Concatenate[Engine, P], Coroutine[Any, Any, T]],
    ) -> LoopMethod[P, T]:
        """Make a method of clients of a coroutine function that takes their engine."""

    def waits(method: Callable[Concatenate[Any, P], T]) -> Method[P, T]:
        """Give a method, which is declared as it blocks, the types of both modes."""

    class Attribute(Generic[T_co]):
        """A property that blocks, or is awaited."""

        @overload
        def __get__(self, instance: OfMode[Blocking], owner: Any) -> T_co: ...
        @overload
        def __get__(self, instance: OfMode[Awaited], owner: Any) -> Coroutine[Any, Any, T_co]: ...
        @overload
        def __get__(self, instance: object, owner: Any) -> Any: ...
        def __get__(self, instance: object, owner: Any) -> Any: ...

    def waits_to_be_read(method: Callable[[Any], T]) -> Attribute[T]:
        """Do what `waits` does, for a property."""

    def as_result(coroutine: Coroutine[Any, Any, T]) -> T:
        """Return a coroutine in the place of its result, as in the body of such a method."""

else:

    def on_loop(method: Any) -> Any:
        """Make a method of clients of a coroutine function that takes their engine."""

        @functools.wraps(method)
        def call(client: Any, /, *args: Any, **options: Any) -> Any:
            with short_tracebacks:
                return client._run(method(client._running(), *args, **options))

        call.__code__ = call.__code__.replace(co_name=method.__name__)  # as tracebacks show it
        call.on = method
        return call

    def waits(method: Any) -> Any:
        """Return the method: it does both already."""
        return method

    as_result = waits
    waits_to_be_read = property
