"""Turns one object into bytes: by the C pickler, or by cloudpickle where that is not enough.

This module owns the choice between the two, the rule which buffers travel out of band, and the
search for the culprit when an object cannot be pickled. `serialize` is its public side.

cloudpickle is needed for lambdas, closures and nested functions (plain pickle refuses them), for
everything of `__main__` (plain pickle would send a name that means something else on the worker),
and for modules that the user registered with `cloudpickle.register_pickle_by_value`. It is about
ten times slower to start, and 15 ms to import, so it is imported when it is first needed.

Never imported by the scheduler, which must run with `pickle` blocked.
"""

from __future__ import annotations

import copyreg
import functools
import io
import pickle
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final

from .hdf5 import reduce_hdf5

#: Protocol 5 has out-of-band buffers, and every Python that weft supports reads it.
PROTOCOL = 5

#: Smaller buffers are copied into the pickle: a buffer of its own costs about a microsecond on
#: each side (a view, an entry of `writelines`), more than copying this many bytes.
OUT_OF_BAND_NBYTES = 4096

#: More buffers than this in one value go into the pickle, so that no value exceeds what a frame or
#: one call of `sendmsg` takes.
MAX_BUFFERS = 512

#: The module name of a class or function of `__main__` in a pickle (opcode, length, text).
#: With opcode and length in it, a text that merely contains "__main__" does not look like one.
_MAIN_MARK = b"\x8c\x08__main__"

#: A shorter pickle cannot name anything in `__main__`, so tiny ones need no search.
TINY_NBYTES = 24

#: A pickler writes pieces of 64 KiB and a little more, and what is larger alone.
_PIECE_NBYTES: Final = 192 << 10

_MAX_PATH_DEPTH = 20
_MAX_PATH_CHARS = 60


def buffer_taker(buffers: list[memoryview]) -> Callable[[pickle.PickleBuffer], bool]:
    """Return a `buffer_callback` that collects large buffers and leaves the others in band."""

    def take(buffer: pickle.PickleBuffer) -> bool:
        try:
            view = buffer.raw()
        except BufferError:  # not contiguous: pickle raises the error
            return True
        if view.nbytes < OUT_OF_BAND_NBYTES or len(buffers) >= MAX_BUFFERS:
            return True
        buffers.append(view)
        return False

    return take


def needs_cloudpickle(data: bytes) -> bool:
    """Return whether a plain pickle names something that must be pickled by value instead."""
    # find, not `in`: half the time on short bytes.
    if data.find(_MAIN_MARK) >= 0:
        return True
    registered = registered_modules()
    return bool(registered) and any(name.encode() in data for name in registered)


def registered_modules() -> set[str]:
    """Return the names of the modules that the user registered to travel by value."""
    # While another thread imports it, it lacks that function, and nothing is registered.
    listed = getattr(sys.modules.get("cloudpickle"), "list_registry_pickle_by_value", set)
    return listed()


def cloudpickle_dumps(
    obj: object, buffer_callback: Callable[[pickle.PickleBuffer], bool] | None = None
) -> bytes:
    """Pickle `obj`, and by value what other processes cannot import."""
    file = io.BytesIO()
    _cloud_pickler()(file, PROTOCOL, buffer_callback).dump(obj)
    return file.getvalue()


class _WriterTo:
    """A file for a pickler."""

    def __init__(self, write: Callable[[Any], int]) -> None:
        self.write = write


class _PicklesNames(Exception):
    """Raised to end a pickling that names what must be pickled by value."""


def dump_plain(obj: object, write: Callable[[Any], int], buffers: list[memoryview]) -> bool:
    """Pickle `obj` piece by piece, so that the pickle is never in memory as a whole.

    Args:
        obj: anything.
        write: takes the pieces.
        buffers: get what travels beside the pickle.

    Returns:
        False if it must be done by `dump_by_value`, from the beginning.
    """
    failed: list[BaseException] = []

    def checked(data: Any) -> int:
        # Large texts and bytes come alone, and contain no name.
        if len(data) < _PIECE_NBYTES and needs_cloudpickle(bytes(data)):
            raise _PicklesNames
        try:
            return write(data)
        except BaseException as error:
            failed.append(error)
            raise

    try:
        pickle.Pickler(_WriterTo(checked), PROTOCOL, buffer_callback=buffer_taker(buffers)).dump(
            obj
        )
    except Exception:  # plain pickle fails in many ways; cloudpickle is tried next
        if failed:
            raise
        return False
    return True


def dump_by_value(obj: object, write: Callable[[Any], int], buffers: list[memoryview]) -> None:
    """Do the same for what other processes cannot import."""
    _cloud_pickler()(_WriterTo(write), PROTOCOL, buffer_taker(buffers)).dump(obj)


@functools.lru_cache(maxsize=1)
def _cloud_pickler() -> Callable[..., Any]:
    import cloudpickle

    class CloudPickler(cloudpickle.CloudPickler):  # type: ignore[misc]  # untyped base
        """cloudpickle's, which also knows functions under `functools.lru_cache`, and h5py."""

        dispatch_table: ClassVar[Any] = ChainMap(
            {types.CodeType: _reduce_code, types.ModuleType: _reduce_module},
            cloudpickle.CloudPickler.dispatch_table,
        )

        def reducer_override(self, obj: Any) -> Any:
            reduced = reduce_lru_cache(obj)
            if reduced is NotImplemented:
                reduced = reduce_hdf5(obj)
            return super().reducer_override(obj) if reduced is NotImplemented else reduced

    return CloudPickler


# A pickle refers to a text that is the same object as an earlier one. Which texts are one object is
# not the same in a function that was unpickled as in the original: the qualified name of a function
# that calls itself, and the name of a module, are that of a global variable in one of them. So a
# call by a task would not be the equal call of its client. cloudpickle copies the name of code for
# this reason; here the other two are copied, so that none is the same object as another.

#: The places of `co_filename` among the arguments of `types.CodeType`, and of `co_qualname`, from
#: Python 3.11 on.
_FILENAME: Final = 10
_QUALNAME: Final = 12
#: What cloudpickle has there, from version 3.1.3 on.
_NO_FILE: Final = "<dynamic-code>"


def _reduce_code(code: types.CodeType) -> Any:
    """Reduce code as cloudpickle does, with a qualified name that is no other object.

    It keeps the name of its file, without which a traceback has no source lines.
    """
    import cloudpickle

    reduce: Callable[[types.CodeType], Any] = cloudpickle.cloudpickle._code_reduce
    function, args, *more = reduce(code)
    args = [*args]
    if len(args) > _FILENAME and args[_FILENAME] == _NO_FILE:
        args[_FILENAME] = code.co_filename
    if len(args) > _QUALNAME and args[_QUALNAME] is getattr(code, "co_qualname", None):
        args[_QUALNAME] = "".join(code.co_qualname)
    return function, tuple(args), *more


def _reduce_module(module: types.ModuleType) -> Any:
    """Reduce a module as cloudpickle does, with a name that is no other object."""
    import cloudpickle

    reduce: Callable[[types.ModuleType], Any] = cloudpickle.cloudpickle._module_reduce
    function, args, *more = reduce(module)
    if len(args) == 1 and type(args[0]) is str:
        args = ("".join(args[0]),)
    return function, args, *more


def cloud_reducers() -> dict[type, Callable[[Any], Any]]:
    """Return the reducers of cloudpickle, and those that were registered by `copyreg`.

    A plain dict, where cloudpickle has a chain of two: that is Python code for each object.
    """
    table = getattr(_cloud_pickler(), "dispatch_table", None)
    known = dict(table) if isinstance(table, Mapping) else {}
    return {**copyreg.dispatch_table, **known, LRU_CACHE: _reduce_lru_cache_anywhere}


LRU_CACHE = functools._lru_cache_wrapper


def reduce_lru_cache(obj: Any) -> Any:
    """Return the reduced form of `obj` if it is a function under `functools.lru_cache` by value."""
    if type(obj) is LRU_CACHE and not is_importable(obj):
        return _rebuild_lru_cache, (obj.__wrapped__, obj.cache_parameters())
    return NotImplemented


def _reduce_lru_cache_anywhere(obj: Any) -> Any:
    reduced = reduce_lru_cache(obj)
    return obj.__reduce__() if reduced is NotImplemented else reduced


def _rebuild_lru_cache(wrapped: Callable[..., Any], parameters: dict[str, Any]) -> object:
    # The name is of this module, so that a worker finds it; the cache starts empty there.
    return functools.lru_cache(**parameters)(wrapped)


def is_importable(obj: Any) -> bool:
    """Return whether another process can import `obj` by its module and name."""
    module_name = getattr(obj, "__module__", None)
    name = getattr(obj, "__qualname__", None)
    if not isinstance(module_name, str) or not isinstance(name, str) or module_name == "__main__":
        return False
    found: Any = sys.modules.get(module_name)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not obj:
        return False
    return not any(
        module_name == by_value or module_name.startswith(by_value + ".")
        for by_value in registered_modules()
    )


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


# --- Why an object cannot be pickled --------------------------------------------------------------


def type_name(obj: object) -> str:
    """Return the qualified name of the type of `obj`, without "builtins."."""
    cls = type(obj)
    prefix = "" if cls.__module__ == "builtins" else f"{cls.__module__}."
    return f"{prefix}{cls.__qualname__}"


def explain_unpicklable(obj: object, name: str) -> str:
    """Return the path to the innermost part of `obj` that cannot be pickled, and its type.

    For example "args[1].conn (type _thread.lock)". Pickles parts of `obj` again, about
    log2(length) times at each level of the path, so it is for the failure path only.
    """
    path, culprit = find_unpicklable([(name, obj)])
    return f"{path} (type {type_name(culprit)})"


def find_unpicklable(candidates: Iterable[tuple[str, object]]) -> tuple[str, object]:
    """Return path and object of the innermost culprit below the first bad one of `candidates`."""
    path, culprit = _first_unpicklable(list(candidates))
    seen = {id(culprit)}
    for _ in range(_MAX_PATH_DEPTH):
        try:
            parts = [part for part in _parts(culprit, path) if id(part[1]) not in seen]
        except Exception:  # user code (`__reduce_ex__`) may raise anything at all
            break
        if not parts:
            break
        # Methods refer to their class, and so to all of its attributes: these are searched first.
        parts.sort(key=lambda part: isinstance(part[1], types.FunctionType))
        inner_path, inner = _first_unpicklable(parts)
        if _is_picklable(inner):
            break
        path, culprit = inner_path, inner
        seen.add(id(culprit))
    return _cut(path), culprit


def _cut(path: str) -> str:
    """Leave out the middle of a long path."""
    if len(path) <= _MAX_PATH_CHARS:
        return path
    half = (_MAX_PATH_CHARS - 5) // 2
    return f"{path[:half]} ... {path[-half:]}"


def _first_unpicklable(parts: list[tuple[str, object]]) -> tuple[str, object]:
    """Bisect. What is left may be picklable all the same, if `parts` fail only all together."""
    while len(parts) > 1:
        half = len(parts) // 2
        first = parts[:half]
        parts = parts[half:] if _is_picklable([obj for _, obj in first]) else first
    return parts[0]


def _is_picklable(obj: object) -> bool:
    try:
        cloudpickle_dumps(obj, lambda _buffer: False)
    except Exception:  # any exception means that it cannot be pickled
        return False
    return True


def _parts(obj: Any, path: str) -> list[tuple[str, object]]:
    """Return what pickling `obj` would pickle next, with a path to each."""
    if isinstance(obj, (tuple, list)):
        return [(f"{path}[{i}]", item) for i, item in enumerate(obj)]
    if isinstance(obj, dict):
        keys = [(f"a key of {path}", key) for key in obj]
        return keys + [(f"{path}[{_short(key)}]", value) for key, value in obj.items()]
    if isinstance(obj, (set, frozenset)):
        return [(f"an element of {path}", item) for item in obj]
    if isinstance(obj, types.FunctionType):
        return [(f"variable {name} of {path}", value) for name, value in captured(obj)]
    if isinstance(obj, types.MethodType):
        return [(f"{path}.__self__", obj.__self__), (f"{path}.__func__", obj.__func__)]
    if isinstance(obj, functools.partial):
        return [(f"{path}.{name}", getattr(obj, name)) for name in ("func", "args", "keywords")]
    if isinstance(obj, type):
        attributes = vars(obj).items()
        return [(f"{path}.{name}", value) for name, value in attributes if name[:2] != "__"]
    reduced: Any = obj.__reduce_ex__(PROTOCOL)
    if isinstance(reduced, str):
        return []
    parts = [(f"constructor argument {i} of {path}", arg) for i, arg in enumerate(reduced[1])]
    state: Any = reduced[2] if len(reduced) > 2 else None
    for fields in state if isinstance(state, tuple) else (state,):
        if isinstance(fields, dict):
            parts += [(f"{path}.{name}", value) for name, value in fields.items()]
    return parts


def captured(func: types.FunctionType) -> list[tuple[str, object]]:
    """Return name and value of all objects that are pickled with `func` by value."""
    cells = zip(func.__code__.co_freevars, func.__closure__ or (), strict=True)
    found = [(name, cell_contents(cell)) for name, cell in cells]
    found += [(name, func.__globals__.get(name, MISSING)) for name in global_names(func.__code__)]
    found = [(name, value) for name, value in found if value is not MISSING]
    found += [(f"default {i}", value) for i, value in enumerate(func.__defaults__ or ())]
    return found + list((func.__kwdefaults__ or {}).items())


#: The value of a variable that does not exist.
MISSING: Final = object()


def cell_contents(cell: types.CellType) -> object:
    """Return the value of a closure variable; MISSING if it has none."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


@functools.lru_cache(maxsize=1024)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """Return the module variables and builtins that this code, or code nested in it, refers to."""
    import dis  # takes some milliseconds

    names: dict[str, None] = {}  # in order
    for inner in nested_codes(code):
        for step in dis.get_instructions(inner):
            if step.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"):
                names[step.argval] = None
    return tuple(names)


def nested_codes(code: types.CodeType) -> list[types.CodeType]:
    """Return this code and all code nested in it."""
    codes = [code]
    for inner in codes:  # grows while it is walked
        codes += [const for const in inner.co_consts if isinstance(const, types.CodeType)]
    return codes


def _short(key: object) -> str:
    text = repr(key)
    return text if len(text) <= 60 else f"{text[:57]}..."
