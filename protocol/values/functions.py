"""Functions as blobs named by their content, and their labels for display.

A function is sent to a worker once and named by a hash of its pickle after that. Pickling one that
travels by value takes 20 µs and more, so the result is kept per function object, and
`dumps_function` checks on each call that it is still true:

- An importable function is sent as its name, and remembered by identity, without further checks.
- A function of `__main__`, a lambda or a closure is sent with its code, defaults, closure variables
  and the module variables that it reads (and those of the `__main__` functions among them). A
  `watching.CodeWatch` compares all of these; a changed one means a new pickle.
- Identity does not show that a list or an array was changed in place. So if a captured value
  is mutable, the function is pickled again each time; unless the pickle is beyond 64 KiB: then
  it is trusted, because 5000 calls of a function over 100 MB must not pickle it 5000 times.
- Callable objects and bound methods carry the state of an object and are pickled each time.

Not noticed, therefore: data of more than 64 KiB in all that changes in place, and attributes set on
a function (other than its name) or a class after its first use. Pass data that changes as an
argument.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import SerializationError
from .pickling import (
    PROTOCOL,
    TINY_NBYTES,
    cloudpickle_dumps,
    find_unpicklable,
    needs_cloudpickle,
    travels_as_name,
    type_name,
)
from .watching import CodeWatch

_MAX_ENTRIES = 1024
TRUSTED_NBYTES = 64 * 1024
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


#: {id(function): entry}. An entry leaves before its function's id can be used again: its weak
#: reference calls back, or it holds the function itself. Bounded; the oldest entry makes room.
_entries: dict[int, _PickledFunction] = {}


def dumps_function(func: Callable[..., Any]) -> tuple[bytes, bytes]:
    """Return `(function_id, blob)`: 16 bytes that name the content, and the pickle.

    Costs 0.2 µs for an importable function that was pickled before, and 0.4 µs or more for one by
    value that has not changed; see the module's docstring for what counts as a change.
    `serialize.loads` reads the blob.

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
    return _dumps_and_remember(func)


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


def _dumps_and_remember(func: Any) -> tuple[bytes, bytes]:
    # Before pickling, so that a change during it differs from the record, and is noticed.
    watch = None if travels_as_name(func) else CodeWatch((func,))
    # In one piece: the content is hashed, and sent once.
    blob = dumps_plain(func, f"function {function_name(func)}")
    result = (hashlib.blake2b(blob, digest_size=16).digest(), blob)
    is_trusted = type(func) is types.FunctionType and len(blob) > TRUSTED_NBYTES
    if watch is None or watch.is_frozen or is_trusted:
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


def dumps_plain(obj: object, what: str) -> bytes:
    """Pickle `obj` into one piece that plain `pickle.loads` reads.

    Args:
        obj: anything; functions and classes that the reader could not import travel by value.
        what: its name in errors.

    Raises:
        SerializationError: it, or something in it, cannot be pickled.
    """
    blob = None
    with contextlib.suppress(Exception):  # plain pickle fails in many ways; cloudpickle decides
        blob = pickle.dumps(obj, PROTOCOL)
    if blob is not None and (len(blob) < TINY_NBYTES or not needs_cloudpickle(blob)):
        return blob
    try:
        return cloudpickle_dumps(obj)
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
