"""Functions as blobs named by their content, and their labels for display.

A function is sent to a worker once and named by a hash of its pickle after that. Pickling one that
travels by value takes 20 µs and more, so the result is kept per function object, and
`dumps_function` checks on each call that it is still true:

- An importable function is sent as its name, and remembered by identity, without further checks.
- A function of `__main__`, a lambda or a closure is sent with its code, defaults, closure variables
  and the module variables that it reads (and those of the `__main__` functions among them). A
  `watching.CodeWatch` compares all of these; a changed one means a new pickle.
- Identity does not show that a list or an array was changed in place. So if a captured value
  is mutable, the function is pickled again each time. If it is large, `large_functions` compares
  the pickle with those that it keeps, which is faster than to hash it and to copy its arrays.
- Callable objects and bound methods carry the state of an object and are pickled likewise.

Not noticed, therefore: attributes set on a function (other than its name) or a class after its
first use.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import SerializationError
from .large_functions import LargeFunctions, identified
from .pickling import (
    PROTOCOL,
    TINY_NBYTES,
    buffer_taker,
    cloudpickle_dumps,
    find_unpicklable,
    needs_cloudpickle,
    travels_as_name,
    type_name,
)
from .watching import CodeWatch

_MAX_ENTRIES = 1024
_MAX_LABEL = 60


class _PickledFunction:
    """A pickled function, and the conditions for using it again."""

    __slots__ = ("ref", "result", "watch")

    #: Returns the function, or None if it was collected.
    ref: Callable[[], Any]
    #: The return value of dumps_function.
    result: tuple[bytes, bytes]
    #: None for importable functions.
    watch: CodeWatch | None


class _InFunction(threading.local):
    """Whether this thread pickles a function, in which no future can be used."""

    depth = 0


in_function = _InFunction()

#: {id(function): entry}. An entry leaves before its function's id can be used again: its weak
#: reference calls back, or it holds the function itself. Bounded; the oldest entry makes room.
_entries: dict[int, _PickledFunction] = {}


def dumps_function(
    func: Callable[..., Any], large: LargeFunctions | None = None
) -> tuple[bytes, bytes]:
    """Return `(function_id, blob)`: 16 bytes that name the content, and the pickle.

    Costs 0.2 µs for an importable function that was pickled before, and 0.4 µs or more for one by
    value that has not changed; see the module's docstring for what counts as a change.
    `serialize.loads` reads the blob.

    Args:
        func: the function.
        large: keeps the results for functions with much data in them; None = nothing is kept.

    Raises:
        SerializationError: the function, or something that it captured, cannot be pickled.
    """
    entry = _entries.get(id(func))
    if (
        entry is not None
        and entry.ref() is func
        and (entry.watch is None or entry.watch.is_unchanged())
    ):
        return entry.result
    return _dumps_and_remember(func, large)


def function_name(func: Callable[..., Any]) -> str:
    """Return a short readable label for `func`: "inc", "Model.fit", "lambda", "itemgetter"."""
    while isinstance(func, functools.partial):
        func = func.func
    name = getattr(func, "__name__", None)
    if not isinstance(name, str):
        return type(func).__name__[:_MAX_LABEL]
    if name == "<lambda>":
        return "lambda"
    owner = getattr(func, "__self__", None)
    if isinstance(func, types.MethodType):
        cls = owner if isinstance(owner, type) else type(owner)
        name = f"{cls.__name__}.{name}"
    return name[:_MAX_LABEL]


def _dumps_and_remember(func: Any, large: LargeFunctions | None) -> tuple[bytes, bytes]:
    # Before pickling, so that a change during it differs from the record, and is noticed.
    watch = None if travels_as_name(func) else CodeWatch((func,))
    buffers: list[memoryview] = []
    in_function.depth += 1
    try:
        data = dumps_plain(func, f"function {function_name(func)}", buffers)
    finally:
        in_function.depth -= 1
    result = identified(data, buffers) if large is None else large.result(func, data, buffers)
    if watch is None or watch.is_frozen:
        entry = _PickledFunction()
        entry.ref = _reference(func, strong=watch is None)
        entry.result = result
        entry.watch = watch
        make_room(_entries, _MAX_ENTRIES)
        _entries[id(func)] = entry
    return result


def make_room(cache: dict[Any, Any], size: int) -> None:
    """Remove the oldest entries until fewer than `size` are left; any thread may change `cache`."""
    while len(cache) >= size:
        for key in list(cache)[: len(cache) - size + 1]:
            cache.pop(key, None)


def dumps_plain(obj: object, what: str, buffers: list[memoryview] | None = None) -> bytes:
    """Pickle `obj` into one piece that plain `pickle.loads` reads.

    Args:
        obj: anything; functions and classes that the reader could not import travel by value.
        what: its name in errors.
        buffers: takes the large buffers, which are not in the pickle then.

    Raises:
        SerializationError: it, or something in it, cannot be pickled.
    """
    take = None if buffers is None else buffer_taker(buffers)
    blob = None
    with contextlib.suppress(Exception):  # plain pickle fails in many ways; cloudpickle decides
        blob = pickle.dumps(obj, PROTOCOL, buffer_callback=take)
    if blob is not None and (len(blob) < TINY_NBYTES or not needs_cloudpickle(blob)):
        return blob
    if buffers:
        buffers.clear()
    try:
        return cloudpickle_dumps(obj, take)
    except MemoryError:
        raise
    except Exception as exc:
        path, culprit = find_unpicklable([(what, obj)])
        raise SerializationError(path, type_name(culprit), str(exc)) from exc


def _reference(func: Any, *, strong: bool) -> Callable[[], Any]:
    ident = id(func)
    try:
        return weakref.ref(func, lambda _ref: _entries.pop(ident, None))
    except TypeError:
        if not strong:
            raise
        # Importable, so its module keeps it anyway. Some (ufuncs) have no weak references.
        return lambda: func
