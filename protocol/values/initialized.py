"""A function that is called after an initializer was called once in its process.

An executor with `initializer=` sends each function as an `Initialized`. What the initializer sets
must be what the function reads: if it is found by its name, both use the module of that name, and
it is called once in a process for all functions of the executor. One that was pickled by value
shares its global variables with the functions of the same pickle only, so it is called once for
each of these.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ..errors import InitializerFailed

__all__ = ["Initialized", "InitializedCoroutine", "initialized"]


class _Once:
    """One call of an initializer, and its outcome."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_done = False
        self.error: InitializerFailed | None = None


#: {token of an executor: the call of its initializer in this process}
_once: dict[str, _Once] = {}


class Initialized:
    """A function with an initializer, both callable; pickled in one piece.

    Args:
        function: the function of the user.
        initializer: called once before it.
        initargs: the arguments of the initializer.
        token: of the executor.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        initializer: Callable[..., Any],
        initargs: tuple[Any, ...],
        token: str,
    ) -> None:
        self._parts = function, initializer, initargs, token
        is_shared = _is_found_by_name(initializer)
        self._once = _once.setdefault(token, _Once()) if is_shared else _Once()
        functools.update_wrapper(self, function, updated=())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._parts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function.

        Raises:
            InitializerFailed: the initializer has raised, now or before.
        """
        self._prepare()
        return self._parts[0](*args, **kwargs)

    def _prepare(self) -> None:
        once = self._once
        if not once.is_done:
            with once.lock:
                if not once.is_done:
                    self._call_initializer(once)
        if once.error is not None:
            raise InitializerFailed(*once.error.args)  # without the traceback of calls before

    def _call_initializer(self, once: _Once) -> None:
        _, initializer, initargs, _ = self._parts
        try:
            initializer(*initargs)
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            name = getattr(initializer, "__qualname__", type(initializer).__name__)
            once.error = InitializerFailed(name, text)
        once.is_done = True


class InitializedCoroutine(Initialized):
    """The same for a coroutine function."""

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See `Initialized`."""
        self._prepare()
        return await self._parts[0](*args, **kwargs)


def initialized(
    function: Callable[..., Any],
    initializer: Callable[..., Any],
    initargs: tuple[Any, ...],
    token: str,
) -> Initialized:
    """Return the function with its initializer."""
    cls = InitializedCoroutine if inspect.iscoroutinefunction(function) else Initialized
    return cls(function, initializer, initargs, token)


def _is_found_by_name(function: Callable[..., Any]) -> bool:
    found: Any = sys.modules.get(getattr(function, "__module__", None) or "")
    for name in getattr(function, "__qualname__", "?").split("."):
        found = getattr(found, name, None)
    return found is function
