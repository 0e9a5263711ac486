"""Functions and classes that are sent by value inside arguments, pickled once.

cloudpickle pickles a function of `__main__` again each time that it meets it. A batch object that
holds such a function is an argument of thousands of calls. So the functions and classes that
cloudpickle would pickle by value are taken out of an argument while it is pickled: all of one
argument make one *group*, pickled together by cloudpickle, and what is known to be unchanged since
is not pickled again. The pickle of the argument then consists of

    the group, as a hash and a pickle of its own, whose members it puts into the memo; the argument,
    whose references to members are references to the memo

and is read by plain `pickle.loads`. It is also written by the plain pickler, with its memo filled
beforehand, once the group is known: that of the last call whose arguments had the same types is
tried first, and serves unless the pickle names something of `__main__` after all.

The reader gets the same as from cloudpickle alone, because a group is only made of members for
which that is true:

- All members of one argument are pickled together, so objects that they share (module variables, a
  closure variable, each other) are shared at the reader, too.
- Every object that a member captured is immutable, or another function or class that meets the same
  conditions. So the members share nothing with the rest of the argument that could change, and
  comparing identities shows every change: of code, defaults, attributes, closure and module
  variables, and of the attributes of classes.
- No member assigns module or closure variables: a reader that unpickles a group of functions once
  and uses it for many tasks sees no state that a task left behind. (A group with classes is
  unpickled for each task: the attributes of a class are set again when it arrives.)

An argument with any other function or class is left to cloudpickle.

Costs, CPython 3.11: 6 µs for an argument that holds a function, or is of a class, of `__main__`,
where cloudpickle takes 26 to 53 µs.
"""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import dis
import functools
import hashlib
import io
import operator
import pickle
import struct
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

from .functions import IMMUTABLE_TYPES, travels_as_name
from .pickling import (
    LRU_CACHE,
    PROTOCOL,
    captured,
    closure_cells,
    cloud_reducers,
    cloudpickle_dumps,
    global_names,
    is_importable,
    needs_cloudpickle,
    reduce_lru_cache,
)

_MAX_ENTRIES: Final = 1024
#: The reader unpickles this many groups of functions only once.
_MAX_LOADED: Final = 1024
#: A reference to the memo has one byte for its index.
_MAX_MEMBERS: Final = 200
_MISSING: Final = object()
#: `Py_TPFLAGS_HEAPTYPE`. Types of C have names like "method" that no module has.
_MADE_IN_PYTHON: Final = 1 << 9

#: Attributes of classes that pickling leaves out, or that never change once the class is made.
_FIXED_ATTRIBUTES: Final = frozenset(
    {
        *("__annotations__", "__annotations_cache__", "__dict__", "__slotnames__", "__weakref__"),
        *("__dataclass_fields__", "__dataclass_params__", "_field_defaults"),
    }
)


#: Attributes in which `namedtuple` and `dataclass` keep results of their own, in special types.
_FIXED_TYPES: Final = frozenset(
    {
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        type(collections.namedtuple("_", "x").x),  # type: ignore[attr-defined]
        type(dataclasses._HAS_DEFAULT_FACTORY),  # type: ignore[attr-defined]
        type(dataclasses.MISSING),
    }
)


class _NotFixed(Exception):
    """A member may change without notice, so cloudpickle must pickle the argument."""


# --- Conditions for using a group again -----------------------------------------------------------


class _Observed:
    """The objects that the pickle of some functions and classes was made of."""

    __slots__ = ("_seen", "cells", "functions", "has_classes", "items", "sizes")

    def __init__(self) -> None:
        self.has_classes = False
        self.functions: list[tuple[types.FunctionType, Any, Any, Any]] = []
        self.cells: list[tuple[types.CellType, object]] = []
        self.items: list[tuple[Any, str, object]] = []
        self.sizes: list[tuple[Any, int]] = []
        self._seen: dict[int, object] = {}

    def add(self, value: Any) -> None:
        """Observe `value` and what it captured.

        Raises:
            _NotFixed: some of that may change unseen.
        """
        cls = type(value)
        if cls in IMMUTABLE_TYPES or cls in _FIXED_TYPES or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if cls is types.FunctionType:
            if not is_importable(value):
                self._add_function(value)
        elif isinstance(value, type):
            if value.__flags__ & _MADE_IN_PYTHON and not is_importable(value):
                self._add_class(value)
        elif cls is tuple or cls is frozenset:
            if len(value) > 16:
                raise _NotFixed
            for item in value:
                self.add(item)
        elif cls is staticmethod or cls is classmethod:
            self.add(value.__func__)
        elif cls is property:
            for part in (value.fget, value.fset, value.fdel):
                self.add(part)
        elif not (callable(value) and travels_as_name(value)):
            raise _NotFixed

    def _add_function(self, func: types.FunctionType) -> None:
        if _assigns_outside(func.__code__):
            raise _NotFixed
        self.functions.append((func, func.__code__, func.__defaults__, func.__kwdefaults__))
        self._add_attributes(vars(func), frozenset())
        if func.__globals__.get("__name__") == "dataclasses":
            return  # made by `dataclass`; its closure is a set of the reprs that are being made
        self.cells += [(cell, cell.cell_contents) for _, cell in closure_cells(func)]
        space = func.__globals__
        self.items += [(space, name, space[name]) for name in global_names(func)]
        for _, value in captured(func):
            self.add(value)

    def _add_class(self, cls: type) -> None:
        # Classes of other metaclasses (enums, abstract ones) have registries of their own.
        if type(cls) is not type:
            raise _NotFixed
        self.has_classes = True
        for base in cls.__bases__:
            self.add(base)
        self._add_attributes(vars(cls), _FIXED_ATTRIBUTES)

    def _add_attributes(self, space: Any, fixed: frozenset[str]) -> None:
        self.sizes.append((space, len(space)))
        for name, value in space.items():
            self.items.append((space, name, value))
            if name not in fixed:
                self.add(value)

    def is_unchanged(self) -> bool:
        """Return whether pickling would give the same bytes again."""
        for func, code, defaults, kwdefaults in self.functions:
            if (
                func.__code__ is not code
                or func.__defaults__ is not defaults
                or func.__kwdefaults__ is not kwdefaults
            ):
                return False
        for space, size in self.sizes:
            if len(space) != size:
                return False
        for space, name, value in self.items:
            if space.get(name, _MISSING) is not value:
                return False
        try:
            return all([cell.cell_contents is value for cell, value in self.cells])  # noqa: C419
        except ValueError:  # emptied by `del`
            return False


@functools.lru_cache(maxsize=1024)
def _assigns_outside(code: types.CodeType) -> bool:
    """Return whether a function with this code may assign module or closure variables."""
    outer = set(code.co_freevars)
    codes = [code]
    for inner in codes:  # grows while it is walked
        for step in dis.get_instructions(inner):
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL") or (
                step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outer
            ):
                return True
        codes += [const for const in inner.co_consts if isinstance(const, types.CodeType)]
    return False


# --- Writing --------------------------------------------------------------------------------------


class _PickledGroup:
    """A pickled group."""

    __slots__ = ("head", "marks", "memo", "observed")

    def __init__(self, members: tuple[Any, ...]) -> None:
        if len(members) > _MAX_MEMBERS:
            raise _NotFixed
        self.observed = _Observed()
        # Before pickling, so that a change during it differs from the record, and is noticed.
        for member in members:
            self.observed.add(member)
        blob = cloudpickle_dumps(members)
        digest = hashlib.blake2b(blob, digest_size=16).digest()
        #: The pickle of an argument up to the argument itself. It leaves nothing on the stack, and
        #: the entries of `memo` in the memo.
        self.head = b"".join(
            (
                *(_START, pickle.SHORT_BINBYTES, bytes([len(digest)]), digest),
                *(pickle.BINBYTES8, struct.pack("<Q", len(blob)), blob),
                pickle.NEWTRUE if self.observed.has_classes else pickle.NEWFALSE,
                *(pickle.TUPLE3, pickle.REDUCE, pickle.MEMOIZE, pickle.POP),
                *(_take_member(i) for i in range(len(members))),
            )
        )
        #: The memo of a pickler before the argument: {id: (index, object)}.
        self.memo = {id(members): (0, members)}
        for i, member in enumerate(members, 1):
            self.memo[id(member)] = (i, member)
        #: A pickle with none of these refers to no member.
        self.marks = [pickle.BINGET + bytes([i]) for i in range(1, len(members) + 1)]


def _take_member(i: int) -> bytes:
    """Return opcodes that copy member `i` of the group, first in the memo, to its next place."""
    return b"".join(
        (
            *(pickle.GLOBAL, b"operator\ngetitem\n", pickle.BINGET, b"\0"),
            *(pickle.BININT1, bytes([i]), pickle.TUPLE2, pickle.REDUCE),
            *(pickle.MEMOIZE, pickle.POP),
        )
    )


#: {ids of the members: entry}. An entry holds its members, so their ids are not used again.
#: Bounded; the oldest entry is dropped first.
_entries: dict[tuple[int, ...], _PickledGroup] = {}
#: {types of the arguments of a call: the entry that the last such call used}. Bounded likewise.
group_hints: Final[dict[tuple[type, ...], _PickledGroup]] = {}

#: {function or class: whether it may be a member}. An object that is met for the first time is not
#: in here, and left to cloudpickle: a lambda that is made for one call would gain nothing.
_met: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def dumps_as_before(
    obj: object, buffer_callback: Callable[[pickle.PickleBuffer], bool]
) -> bytes | None:
    """Pickle arguments with the group that the last ones of these types had, if it serves again.

    Args:
        obj: positional arguments, or a list of them and of keyword arguments.
        buffer_callback: takes buffers that travel out of band.

    Returns:
        The pickle; None if there is no such group, or it does not serve: what `buffer_callback` and
        the objects' own reducers noted does not count then.
    """
    if not group_hints:
        return None
    key = _types_of(obj)
    entry = group_hints.get(key)
    if entry is None:
        return None
    try:
        data = _dump_with(entry, obj, buffer_callback) if entry.observed.is_unchanged() else b""
    except Exception:  # plain pickle cannot, so cloudpickle is tried next
        data = b""
    if not needs_cloudpickle(data):
        for mark in entry.marks:
            if data.find(mark) >= 0:
                return entry.head + data
    group_hints.pop(key, None)
    return None


def _types_of(obj: Any) -> tuple[type, ...]:
    return tuple(map(type, obj if type(obj) is tuple else obj[0]))


def _dump_with(
    entry: _PickledGroup, obj: object, buffer_callback: Callable[[pickle.PickleBuffer], bool]
) -> bytes:
    """Pickle `obj`, without the header that `entry.head` has."""
    file = io.BytesIO()
    pickler = pickle.Pickler(file, PROTOCOL, buffer_callback=buffer_callback)
    pickler.dispatch_table = _reducers()
    pickler.memo = entry.memo  # which copies it
    pickler.dump(obj)
    return file.getvalue()[2:]


def dumps_by_value(
    obj: object,
    buffer_callback: Callable[[pickle.PickleBuffer], bool],
    restart: Callable[[], object],
) -> bytes:
    """Pickle arguments as `cloudpickle_dumps` does, with what they have by value pickled only once.

    Args:
        obj: positional arguments, or a list of them and of keyword arguments.
        buffer_callback: takes buffers that travel out of band.
        restart: called before `obj` is pickled once more, from its beginning.
    """
    file = io.BytesIO()
    pickler = _ArgumentPickler(file, buffer_callback)
    try:
        pickler.dump(obj)
        if not pickler.members:
            return file.getvalue()
        if pickler.has_new:
            raise _NotFixed
        entry = _find_entry(pickler.members)
        restart()
        data = _dump_with(entry, obj, buffer_callback)
    except Exception:  # _NotFixed, or an object that only cloudpickle can pickle or explain
        restart()
        return cloudpickle_dumps(obj, buffer_callback)
    while len(group_hints) >= _MAX_ENTRIES:
        group_hints.pop(next(iter(group_hints), ()), None)
    group_hints[_types_of(obj)] = entry
    return entry.head + data


class _Reducers:
    """The reducers of cloudpickle, and those that were registered by `copyreg`.

    A plain dict, where cloudpickle has a chain of two: that is Python code for each object.
    """

    registered: dict[type, Any] | None = None
    table: dict[type, Callable[[Any], Any]]


def _reducers() -> dict[type, Callable[[Any], Any]]:
    if _Reducers.registered != copyreg.dispatch_table:
        registered = copyreg.dispatch_table.copy()
        _Reducers.table = {**registered, **cloud_reducers(), LRU_CACHE: _reduce_cached}
        _Reducers.registered = registered
    return _Reducers.table


class _ArgumentPickler(pickle.Pickler):
    """Pickles as cloudpickle does, and notes functions and classes instead of pickling them.

    Its output is valid only if there are none.
    """

    def __init__(
        self, file: io.BytesIO, buffer_callback: Callable[[pickle.PickleBuffer], bool]
    ) -> None:
        super().__init__(file, PROTOCOL, buffer_callback=buffer_callback)
        self.dispatch_table = _reducers()
        self.members: list[Any] = []
        #: True if one of them was never met before.
        self.has_new = False

    def reducer_override(self, obj: Any) -> Any:
        cls = type(obj)
        if cls is types.FunctionType or cls is type:
            if is_importable(obj):
                return NotImplemented
            if cls is type and not obj.__flags__ & _MADE_IN_PYTHON:
                self.members.append(obj)  # cloudpickle knows its name
                return operator.getitem, ((), 0)
            may_be_member = _met.get(obj)
            if may_be_member is False:
                raise _NotFixed
            if may_be_member is None:
                _met[obj] = True
                self.has_new = True
            # Each is met once: pickle remembers what it has seen.
            self.members.append(obj)
            return operator.getitem, ((), 0)  # this pickle is thrown away
        if isinstance(obj, type) and not is_importable(obj):
            raise _NotFixed
        return NotImplemented


def _reduce_cached(obj: Any) -> Any:
    reduced = reduce_lru_cache(obj)
    return obj.__reduce__() if reduced is NotImplemented else reduced


def _is_fixed(member: Any) -> bool:
    try:
        _Observed().add(member)
    except _NotFixed:
        return False
    return True


def _find_entry(members: list[Any]) -> _PickledGroup:
    key = tuple(map(id, members))
    entry = _entries.get(key)
    if entry is not None and entry.observed.is_unchanged():
        return entry
    try:
        entry = _PickledGroup(tuple(members))
    except _NotFixed:
        for member in members:
            _met[member] = _is_fixed(member)
        raise
    while len(_entries) >= _MAX_ENTRIES:
        _entries.pop(next(iter(_entries), ()), None)
    _entries[key] = entry
    return entry


# --- Reading --------------------------------------------------------------------------------------

#: {digest: members} of groups without classes.
_loaded: Final[dict[bytes, tuple[Any, ...]]] = {}


def _group(digest: bytes, blob: bytes, has_classes: bool) -> tuple[Any, ...]:
    """Return the members of a group; called by the pickles of arguments."""
    group = None if has_classes else _loaded.get(digest)
    if group is None:
        members: tuple[Any, ...] = pickle.loads(blob)
        if has_classes:
            return members
        while len(_loaded) >= _MAX_LOADED:
            _loaded.pop(next(iter(_loaded), b""), None)
        # The first of two threads wins: a function is one object here.
        group = _loaded.setdefault(digest, members)
    return group


_START: Final = b"".join(
    (pickle.PROTO, bytes([PROTOCOL]), pickle.GLOBAL, f"{__name__}\n_group\n".encode())
)
