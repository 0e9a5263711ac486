"""Makes what stands for a function or a class of dask.distributed: it chooses at each call.

While nothing is installed, what libraries have kept of these does what the originals do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, TypeAlias

from ..protocol.errors import NotSupported
from .choosing import caller_of

_WEFT: Final = __name__.partition(".")[0]

_DERIVED: Final = (
    "{0} is derived from distributed.{1}, and what it is to work with is of weft: derive it from "
    "weft.{1}, or give it a cluster of dask.distributed"
)

#: Is told the calling module and the arguments; returns whether the call is for weft.
Choose: TypeAlias = Callable[[str, tuple[Any, ...], dict[str, Any]], bool]


def of_weft(where: str) -> Any:
    """Return an object of weft: `module below weft:attribute`."""
    module, _, name = where.partition(":")
    return getattr(import_module(f"{_WEFT}.{module}"), name)


def function_for(original: Any, where: str, choose: Choose) -> Any:
    """Return a function that calls weft's, or the original one."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if choose(caller_of(1), args, kwargs):
            return of_weft(where)(*args, **kwargs)
        return original(*args, **kwargs)

    return call


def refusal_for(original: Any, name: str, advice: str, choose: Choose) -> Any:
    """Return a function that refuses calls that are for weft."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if choose(caller_of(1), args, kwargs):
            raise NotSupported(f"weft has no distributed.{name}: {advice}")
        return original(*args, **kwargs)

    return call


def class_for(
    original: Any,
    where: str,
    choose: Choose | None,
    is_changed: Callable[[], bool],
    make: str = "",
) -> Any:
    """Return a class of which instances of both are instances, while it is installed.

    Args:
        original: the class of dask.distributed.
        where: that of weft.
        choose: whether a call makes an object of weft's class; None = it never does.
        is_changed: whether it is installed.
        make: what makes it; "" = the class.
    """

    def both() -> tuple[type, ...]:
        return (original, of_weft(where)) if is_changed() else (original,)

    class Standing(type(original)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if cls is not standing:
                if choose is not None and choose(caller_of(1), args, kwargs):
                    raise NotSupported(_DERIVED.format(cls, original.__name__))
                return super().__call__(*args, **kwargs)
            if choose is not None and choose(caller_of(1), args, kwargs):
                return of_weft(make or where)(*args, **kwargs)
            return original(*args, **kwargs)

        def __instancecheck__(cls, value: object) -> bool:
            if cls is not standing:
                return bool(super().__instancecheck__(value))
            return isinstance(value, both())

        def __subclasscheck__(cls, other: type) -> bool:
            if cls is not standing:
                return bool(super().__subclasscheck__(other))
            return issubclass(other, both())

    body = {"__doc__": original.__doc__, "__module__": "distributed", "__slots__": ()}
    standing: Any = Standing(original.__name__, (original,), body)
    standing.__qualname__ = original.__qualname__
    return standing
