"""Functions as blobs named by their content, and their labels for display.

A function is sent to a worker once and named by a hash of its pickle after that. Pickling one that
travels by value takes 20 µs and more, so the result is kept per function object, and
`dumps_function` checks on each call that it is still true:

- An importable function is sent as its name, and remembered by identity, without further checks.
- A function of `__main__`, a lambda or a closure is sent with its code, defaults, closure variables
  and the module variables that it reads (and those of the `__main__` functions among them). All of
  these are compared by identity, which takes about 50 ns each; a changed one means a new pickle.
- Identity does not show that a list or an array was changed in place. So if a captured value
  is mutable, the function is pickled again each time; unless the pickle is beyond 64 KiB: then
  it is trusted, because 5000 calls of a function over 100 MB must not pickle it 5000 times.
- Callable objects and bound methods carry the state of an object and are pickled each time.

Not noticed, therefore: data of more than 64 KiB in all that changes in place, attributes set on a
function or a class after its first use, a module variable that begins to hide a builtin. Pass data
that changes as an argument.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import logging
import pickle
import re
import types
import weakref
from collections.abc import Callable
from typing import Any

from ..errors import SerializationError
from .pickling import (
    PROTOCOL,
    TINY_NBYTES,
    captured,
    closure_cells,
    cloudpickle_dumps,
    find_unpicklable,
    global_names,
    is_importable,
    needs_cloudpickle,
    type_name,
)

_MAX_ENTRIES = 1024
_TRUSTED_NBYTES = 64 * 1024
_MAX_LABEL = 60
_MISSING = object()

#: Types whose values never change in a way that pickling would notice.
IMMUTABLE_TYPES = frozenset(
    {
        bool,
        bytes,
        complex,
        float,
        int,
        logging.Logger,  # pickles as its name
        range,
        re.Pattern,
        str,
        type(None),
        type(...),
        types.BuiltinFunctionType,
        types.ModuleType,
    }
)


class _PickledFunction:
    """A pickled function, and the conditions for using it again."""

    __slots__ = ("code", "defaults", "kwdefaults", "ref", "result", "watched")

    #: Returns the function, or None if it was collected.
    ref: Callable[[], Any]
    #: The return value of dumps_function.
    result: tuple[bytes, bytes]
    #: None for objects without code to compare: importable functions, partials, classes.
    code: types.CodeType | None
    defaults: Any
    kwdefaults: Any
    #: (cell, None, contents) and (globals, name, value) of everything captured.
    watched: list[tuple[Any, str | None, object]]


#: {id(function): entry}. An entry leaves before its function's id can be used again: its weak
#: reference calls back, or it holds the function itself. Bounded; the oldest entry makes room.
_entries: dict[int, _PickledFunction] = {}


def dumps_function(func: Callable[..., Any]) -> tuple[bytes, bytes]:
    """Return `(function_id, blob)`: 16 bytes that name the content, and the pickle.

    Costs 0.2 µs for a function that was pickled before and has not changed; see the module's
    docstring for what counts as a change. `serialize.loads` reads the blob.

    Raises:
        SerializationError: the function, or something that it captured, cannot be pickled.
    """
    entry = _entries.get(id(func))
    if entry is not None and entry.ref() is func:
        function: Any = func
        if (
            entry.code is None
            or (
                entry.code is function.__code__
                and entry.defaults is function.__defaults__
                and entry.kwdefaults is function.__kwdefaults__
            )
        ) and (not entry.watched or _is_unchanged(entry.watched)):
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


def _is_unchanged(watched: list[tuple[Any, str | None, object]]) -> bool:
    for where, name, value in watched:
        if name is None:
            try:
                if where.cell_contents is not value:
                    return False
            except ValueError:  # emptied by `del`
                return False
        elif where.get(name, _MISSING) is not value:
            return False
    return True


def _dumps_and_remember(func: Any) -> tuple[bytes, bytes]:
    # Before pickling, so that a change during it differs from the record, and is noticed.
    by_name = travels_as_name(func)
    watched: list[tuple[Any, str | None, object]] = []
    is_frozen = by_name or _watch(func, watched, {})
    code = getattr(func, "__code__", None)
    defaults = getattr(func, "__defaults__", None)
    kwdefaults = getattr(func, "__kwdefaults__", None)
    # In one piece: the content is hashed, and sent once.
    blob = dumps_plain(func, f"function {function_name(func)}")
    result = (hashlib.blake2b(blob, digest_size=16).digest(), blob)
    is_function = isinstance(func, types.FunctionType)
    if is_frozen or (is_function and len(blob) > _TRUSTED_NBYTES):
        entry = _PickledFunction()
        entry.ref = _reference(func, strong=by_name)
        entry.result = result
        entry.code = None if by_name or not is_function else code
        entry.defaults = defaults
        entry.kwdefaults = kwdefaults
        entry.watched = watched
        while len(_entries) >= _MAX_ENTRIES:
            _entries.pop(next(iter(_entries), -1), None)
        _entries[id(func)] = entry
    return result


def dumps_plain(obj: object, what: str) -> bytes:
    """Pickle `obj` into one piece that plain `pickle.loads` reads.

    Args:
        obj: anything; functions and classes that the reader could not import travel by value.
        what: its name in errors.

    Raises:
        SerializationError: it, or something in it, cannot be pickled.
    """
    try:
        try:
            blob = pickle.dumps(obj, PROTOCOL)
            if len(blob) >= TINY_NBYTES and needs_cloudpickle(blob):
                blob = cloudpickle_dumps(obj)
        except Exception:  # plain pickle fails in many ways; cloudpickle decides
            blob = cloudpickle_dumps(obj)
    except MemoryError:
        raise
    except Exception as exc:
        path, culprit = find_unpicklable([(what, obj)])
        raise SerializationError(path, type_name(culprit), str(exc)) from exc
    return blob


def _reference(func: Any, *, strong: bool) -> Callable[[], Any]:
    ident = id(func)
    try:
        return weakref.ref(func, lambda _ref: _entries.pop(ident, None))
    except TypeError:
        if not strong:
            raise
        # Importable, so its module keeps it anyway. Some (ufuncs) have no weak references.
        return lambda: func


def travels_as_name(func: Any) -> bool:
    """Return whether `func` is pickled as a name that means the same in other processes."""
    if isinstance(func, types.BuiltinFunctionType):
        owner = func.__self__
        return owner is None or isinstance(owner, types.ModuleType)
    if isinstance(func, (types.FunctionType, type)):
        return is_importable(func)
    if isinstance(func, types.MethodType):
        return False
    try:
        registered = copyreg.dispatch_table.get(type(func))
        reduced = registered(func) if registered else func.__reduce_ex__(PROTOCOL)
        # A ufunc has no module to be checked against; pickle searches all for its name.
        has_module = getattr(func, "__module__", None) is not None
    except Exception:  # user code; pickling it will raise the error
        return False
    return isinstance(reduced, str) and (not has_module or is_importable(func))


def _watch(func: Any, watched: list[tuple[Any, str | None, object]], seen: dict[int, None]) -> bool:
    """Record what `func` captured; return whether comparing identities shows every change."""
    seen[id(func)] = None
    if isinstance(func, functools.partial) and type(func) is functools.partial:
        values = [func.func, *func.args, *func.keywords.values()]
        watched += [(func.keywords, name, value) for name, value in func.keywords.items()]
    elif isinstance(func, types.FunctionType):
        watched += [(cell, None, cell.cell_contents) for _, cell in closure_cells(func)]
        space = func.__globals__
        watched += [(space, name, space[name]) for name in global_names(func)]
        values = [value for _, value in captured(func)]
    else:
        return isinstance(func, type)
    # A list: every function among the values must be watched, even behind a mutable one.
    return all([_is_frozen(value, watched, seen) for value in values])  # noqa: C419


def _is_frozen(
    value: object, watched: list[tuple[Any, str | None, object]], seen: dict[int, None]
) -> bool:
    cls = type(value)
    if cls in IMMUTABLE_TYPES or isinstance(value, type):
        return True
    if id(value) in seen:
        return True  # being looked at, further up
    if cls is tuple or cls is frozenset:
        items: Any = value
        return len(items) <= 16 and all([_is_frozen(item, watched, seen) for item in items])  # noqa: C419
    if callable(value) and travels_as_name(value):
        return True
    if cls is types.FunctionType or cls is functools.partial:
        return _watch(value, watched, seen)
    return False
