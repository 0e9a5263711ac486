"""Values, arguments and functions as opaque blobs, and back.

Owns the conversion of objects to `Blob`s and back for clients and workers. `pickling` chooses the
pickler, `functions` pickles functions, `payload` holds the result. The scheduler forwards blobs and
imports only `payload`.

**Futures among arguments.** A future at any depth of a task's arguments is a dependency of the
task, and finding it must not cost a Python-level walk over arguments. So the pickler finds it:
`Future.__reduce__` calls `reduce_future(key)`, which notes the key in the collector that
`dumps_with_dependencies` put up on this thread, and leaves a placeholder in the pickle. The worker
reads with `loads_with_dependencies(blob, values)`, where placeholder i becomes `values[i]`. Pickled
anywhere else (inside a function, a result, by the user), a future keeps its key and is bound to the
client of the process that reads it. Arguments that are different futures and nothing else have the
same pickle in all calls (`dumps_futures`), which neither side has to make or to read.

**Shared memory.** Buffers of 4 KiB and more are not copied. The result of `dumps` views the memory
of the objects: if they may change before the bytes are sent, use `Payload.detached()`. The result
of `loads` views the blob: it is writable if the blob's buffers are (a `bytearray` is, `bytes` are
not).

Costs, CPython 3.11: `dumps((3,))` 0.45 µs, of which pickle takes 0.18, and `dumps_arguments_many`
0.27 µs for such a row; `loads` 0.16 µs, of which pickle takes 0.13. A future adds 1 µs to each.
"""

from __future__ import annotations

import contextlib
import functools
import pickle
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from ..errors import ClientClosed, InternalError, SerializationError
from ..host.process_role import is_worker_process
from ..wire.payload import Blob, Payload, parts_of
from .by_value import dumps_as_before, dumps_by_value, hints
from .functions import dumps_function, function_name, in_function
from .import_races import is_import_race, read_alone
from .pickling import (
    PROTOCOL,
    TINY_NBYTES,
    buffer_taker,
    cloudpickle_dumps,
    explain_unpicklable,
    find_unpicklable,
    needs_cloudpickle,
    type_name,
)

__all__ = [
    "Blob",
    "Payload",
    "dumps",
    "dumps_arguments",
    "dumps_arguments_many",
    "dumps_function",
    "dumps_futures",
    "dumps_placed",
    "dumps_with_dependencies",
    "explain_unpicklable",
    "function_name",
    "futures_met",
    "loads",
    "loads_arguments",
    "loads_with_dependencies",
    "note_met",
    "reduce_future",
    "set_future_binder",
]

_pickle_dumps = pickle.dumps
_pickle_loads = pickle.loads

#: The number of parts of the arguments of a task of a graph; others have two.
_N_PLACED = 3
#: Calls with more futures are pickled in any case.
MAX_LONE_FUTURES = 16
#: Pickling objects of exactly these types meets no future and no buffer, and runs no user code.
_PLAIN_TYPES = frozenset({bool, bytes, float, int, str, type(None)})


class _ThreadPickling(threading.local):
    """The state of pickling and unpickling in this thread.

    Class attributes are the values of a thread that never set its own.
    """

    #: {key: position} of the futures met so far, None when they are not being collected.
    collector: dict[str, int] | None = None
    #: The futures themselves, each as often as it was met; None if they are not collected.
    met: list[Any] | None = None
    #: The values of placeholders, None if placeholders are not allowed.
    values: Sequence[Any] | None = None


_local = _ThreadPickling()


# --- Values ---------------------------------------------------------------------------------------


def dumps(obj: object, what: str = "object") -> Blob:
    """Pickle `obj`.

    Args:
        obj: anything; functions and classes that the reader could not import travel by value.
        what: the name of `obj` in an error.

    Raises:
        SerializationError: it, or something in it, cannot be pickled.
    """
    # An outer dumps_with_dependencies may have called this, through an object's __reduce__. These
    # bytes are read apart from its own, so the futures in them are not its dependencies.
    outer = _local.collector
    if outer is not None:
        _local.collector = None
    try:
        return _encode(obj)
    except Exception as exc:
        _raise_explained(exc, [(what, obj)])
    finally:
        if outer is not None:
            _local.collector = outer


def loads(blob: Blob) -> Any:
    """Return the object of a blob. Large buffers in it are views of the blob's.

    Any error of unpickling is raised, most often ImportError for a module missing here.
    """
    try:
        if blob.__class__ is bytes:
            return _pickle_loads(blob)
        if isinstance(blob, Payload):
            return _pickle_loads(blob.data, buffers=blob.buffers)
        return _pickle_loads(blob)
    except Exception as error:
        if not is_import_race(error):
            raise
    data, *buffers = parts_of(blob)
    return read_alone(lambda: _pickle_loads(data, buffers=buffers))


def _encode(obj: object, is_argument: bool = False) -> Blob:
    """Pickle with the plain pickler or cloudpickle; errors are not converted."""
    buffers: list[memoryview] = []
    take = buffer_taker(buffers)
    data = None
    if is_argument and hints:
        data = dumps_as_before(obj, take, lambda: _restart(buffers))
    if data is None:
        try:
            data = _pickle_dumps(obj, PROTOCOL, buffer_callback=take)
            if len(data) >= TINY_NBYTES and needs_cloudpickle(data):
                data = None
        except Exception:  # plain pickle fails in many ways; cloudpickle is tried next
            data = None
        if data is None:  # not in the except block: the user is to see cloudpickle's error alone
            data = _encode_by_value(obj, buffers, take, is_argument)
    return Payload(data, buffers) if buffers else data


def _encode_by_value(
    obj: object,
    buffers: list[memoryview],
    take: Callable[[pickle.PickleBuffer], bool],
    is_argument: bool,
) -> bytes:
    _restart(buffers)
    if not is_argument:  # a result is pickled once; the next call may have the same function in it
        return cloudpickle_dumps(obj, take)
    return dumps_by_value(obj, take, lambda: _restart(buffers))


def _restart(buffers: list[memoryview]) -> None:
    """Discard the noted futures and buffers, because `obj` is pickled again from its beginning."""
    buffers.clear()
    if _local.collector is not None:
        _local.collector.clear()


def _raise_explained(
    exc: Exception, candidates: list[tuple[str, object]], of: str = ""
) -> NoReturn:
    """Raise a SerializationError that names the culprit; raise MemoryError unchanged."""
    if isinstance(exc, (MemoryError, SerializationError)):
        raise exc
    _local.collector = None  # the search pickles too; our caller restores it
    text = str(exc) or type(exc).__name__
    if isinstance(exc, RecursionError) or isinstance(exc.__cause__, RecursionError):
        # Every part of a chain of a million links fails; naming the innermost would not help.
        path, culprit = candidates[0]
    else:
        path, culprit = find_unpicklable(candidates)
    where = f"argument {path} of {of}" if of else path
    raise SerializationError(where, type_name(culprit), text) from exc


# --- Futures in arguments -------------------------------------------------------------------------


def reduce_future(key: str, future: Any = None) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the result of `__reduce__` for a future of `key`.

    Args:
        key: of its task.
        future: itself, for `futures_met`; its `before_leaving` is called if it is pickled outside
            of a task's arguments.
    """
    found = _local.collector
    if found is None:
        if in_function.depth:
            raise TypeError(
                f"the future of {key!r} is part of a function: there it has no client, and its "
                "result is unknown; pass it as an argument of the call, which gets the result"
            )
        if future is not None:
            future.before_leaving()
            if _local.met is not None:
                _local.met.append(future)
        return _bind_future, (key,)
    met = _local.met
    if met is not None and future is not None:
        met.append(future)
    return _dependency, (found.setdefault(key, len(found)),)


@contextlib.contextmanager
def futures_met() -> Iterator[list[Any]]:
    """Collect the futures that are pickled on this thread meanwhile."""
    outer = _local.met
    met: list[Any] = []
    _local.met = met
    try:
        yield met
    finally:
        _local.met = outer


def _dependency(index: int) -> Any:
    """Return the value of a future's placeholder in the pickle of a task's arguments."""
    values = _local.values
    if values is None:
        raise InternalError(
            "arguments with placeholders for dependencies were read without their values"
        )
    if index >= len(values):
        raise InternalError(
            f"arguments need the value of dependency {index}, but came with {len(values)} values"
        )
    return values[index]


_future_binder: Callable[[str], Any] | None = None


def set_future_binder(binder: Callable[[str], Any] | None) -> None:
    """Set the function that makes a future of a key, for futures pickled outside of arguments.

    Clients set it while they are open. There is one per process, called on any thread.
    """
    global _future_binder  # noqa: PLW0603 - one hook per process is intended
    _future_binder = binder


def _bind_future(key: str) -> Any:
    """Return a future of this process's client, for a future in any other pickle."""
    if _future_binder is None:
        if is_worker_process():
            raise ClientClosed(
                f"the future of {key!r} cannot be used inside a task: pass it as an argument of "
                "the task, which then gets its value"
            )
        raise ClientClosed(
            f"a future of {key!r} came in pickled data, but no client is open in this process: "
            "make one first"
        )
    return _future_binder(key)


def dumps_with_dependencies(obj: object, what: str = "object") -> tuple[Blob, list[str]]:
    """Pickle `obj` with placeholders for the futures in it, and return their keys beside it.

    Keys come in order of first appearance, each once. Raises as `dumps` does.
    """
    outer = _local.collector
    found: dict[str, int] = {}
    _local.collector = found
    try:
        return _encode(obj), list(found)
    except Exception as exc:
        _raise_explained(exc, [(what, obj)])
    finally:
        _local.collector = outer


def loads_with_dependencies(blob: Blob, values: Sequence[Any]) -> Any:
    """Return the object of `dumps_with_dependencies`, with `values[i]` for the i-th future."""
    if not values:
        return loads(blob)
    outer = _local.values
    _local.values = values
    try:
        return loads(blob)
    finally:
        _local.values = outer


# --- The arguments of a call ----------------------------------------------------------------------
# The pickle is the tuple of positional arguments, or a list of that and the keyword arguments; for
# a task of a graph it may be a list of positional arguments, keyword arguments, and places: numbers
# at these places stand for dependencies. The top-level type tells them apart, and the common case
# costs nothing.


def dumps_arguments(
    func_name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Blob, list[str]]:
    """Pickle the arguments of a call, and return the keys of the futures in them beside it.

    Raises:
        SerializationError: names the argument, as in "argument args[1].conn of load".
    """
    if not kwargs and _PLAIN_TYPES.issuperset(map(type, args)):
        return _pickle_dumps(args, PROTOCOL), []
    outer = _local.collector
    found: dict[str, int] = {}
    _local.collector = found
    try:
        blob = _encode([args, kwargs] if kwargs else args, is_argument=True)
        return blob, list(found)
    except Exception as exc:
        _raise_explained(exc, _arguments(args, kwargs), func_name)
    finally:
        _local.collector = outer


class _KnownFutures(dict[str, int]):
    """The positions of futures that are known before the pickling, which stay when it restarts."""

    def __init__(self, known: dict[str, int]) -> None:
        super().__init__(known)
        self._known = known

    def clear(self) -> None:
        super().clear()
        self.update(self._known)


def dumps_placed(
    func_name: str, args: list[Any], places: list[int], keys: dict[str, int]
) -> tuple[Blob, list[str]]:
    """Do `dumps_arguments` for a call whose dependencies are known by their places.

    That takes half the time of pickling a placeholder for each, on the worker too.

    Args:
        func_name: for errors.
        args: the arguments, with the number of a dependency at each place.
        places: indexes of `args`; -1 - i for a list of such numbers at i.
        keys: {key of a dependency: its number}. There may be more in the arguments, as futures.
    """
    if not places:
        return dumps_arguments(func_name, tuple(args), {})
    obj = [args, {}, places]
    if _PLAIN_TYPES.issuperset(map(type, args)):
        return _pickle_dumps(obj, PROTOCOL), list(keys)
    outer = _local.collector
    found = _local.collector = _KnownFutures(keys)
    try:
        return _encode(obj, is_argument=True), list(found)
    except Exception as exc:
        _raise_explained(exc, _arguments(tuple(args), {}), func_name)
    finally:
        _local.collector = outer


def dumps_arguments_many(
    func_name: str, rows: Iterable[tuple[Any, ...]], kwargs: dict[str, Any] | None = None
) -> tuple[list[Blob], list[list[str]]]:
    """Do `dumps_arguments` for each row, in half the time; `kwargs` are the same for all.

    Returns:
        Blobs and key lists, one of each per row.

    Raises:
        SerializationError: names the argument and the row, as in "argument args[0] of f (call 17)".
    """
    blobs: list[Blob] = []
    dependencies: list[list[str]] = []
    buffers: list[memoryview] = []
    take = buffer_taker(buffers)
    found: dict[str, int] = {}
    rows = list(rows)  # before the collector is up: an iterator may pickle futures of its own
    outer = _local.collector
    _local.collector = found
    args: tuple[Any, ...] = ()
    try:
        for args in rows:
            obj = [args, kwargs] if kwargs else args
            data = None
            if hints:
                data = dumps_as_before(obj, take, lambda: _restart(buffers))
            if data is None:
                try:
                    data = _pickle_dumps(obj, PROTOCOL, buffer_callback=take)
                    if len(data) >= TINY_NBYTES and needs_cloudpickle(data):
                        data = None
                except Exception:  # see _encode
                    data = None
                if data is None:
                    data = _encode_by_value(obj, buffers, take, is_argument=True)
            if buffers:
                blobs.append(Payload(data, buffers.copy()))
                buffers.clear()
            else:
                blobs.append(data)
            if found:
                dependencies.append(list(found))
                found.clear()
            else:
                dependencies.append([])
    except Exception as exc:
        _raise_explained(exc, _arguments(args, kwargs or {}), f"{func_name} (call {len(blobs)})")
    finally:
        _local.collector = outer
    return blobs, dependencies


class _AnyFuture:
    """Stands for a future whose key does not matter, only its place among the arguments."""

    def __init__(self, place: int) -> None:
        self._place = place

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return reduce_future(str(self._place))


@functools.lru_cache(maxsize=MAX_LONE_FUTURES)
def dumps_futures(n: int) -> bytes:
    """Return the pickle of the arguments of all calls with `n` different futures and nothing else.

    Such calls are the most frequent ones with futures, so neither side needs to pickle for them.
    """
    outer = _local.collector
    _local.collector = {}
    try:
        return _pickle_dumps(tuple(map(_AnyFuture, range(n))), PROTOCOL)
    finally:
        _local.collector = outer


def note_met(futures: Iterable[Any]) -> None:
    """Do for `futures_met` what the pickling of these futures would."""
    met = _local.met
    if met is not None:
        met.extend(futures)


def loads_arguments(blob: Blob, values: Sequence[Any] = ()) -> tuple[tuple[Any, ...], Any]:
    """Return `(args, kwargs)` as given to `dumps_arguments`, with `values` for the futures."""
    if values:
        if len(values) <= MAX_LONE_FUTURES and blob == dumps_futures(len(values)):
            return tuple(values), {}
        obj = loads_with_dependencies(blob, values)
    elif blob.__class__ is bytes:
        try:
            obj = _pickle_loads(blob)
        except Exception as error:
            if not is_import_race(error):
                raise
            obj = loads(blob)
    else:
        obj = loads(blob)
    if obj.__class__ is tuple:
        return obj, {}
    if len(obj) == _N_PLACED:
        args, kwargs, places = obj
        for i in places:
            if i >= 0:
                args[i] = values[args[i]]
            else:
                args[-1 - i] = [values[number] for number in args[-1 - i]]
        return tuple(args), kwargs
    args, kwargs = obj
    return args, kwargs


def _arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, object]]:
    return [(f"args[{i}]", arg) for i, arg in enumerate(args)] + list(kwargs.items())
