"""Functions and classes that are sent by value inside arguments, pickled once.

cloudpickle pickles a function of `__main__` again each time that it meets it. A batch object that
holds such a function is an argument of thousands of calls. So the functions and classes that
cloudpickle would pickle by value, the *members* of an argument, are taken out of it while it is
pickled. The members of one argument make one *group*. Those of them that share anything make one
*part* of it, which cloudpickle pickles together; the pickle of the argument contains the pickles of
the parts and refers to the members in them by number.

The pickle of a group is used again while a `CodeWatch` shows no change; and a reader uses what it
has unpickled for later tasks, too, while a `CodeWatch` of that shows no change. The reader gets the
same as from cloudpickle alone, except after changes that a `CodeWatch` does not notice, such as of
annotations or docstrings (`watching` lists them):

- Members that share a function, a class or a closure variable are pickled together, and share it at
  the reader, too. (Others do not share their module variables, which none of them can assign.)
- Every object that a member captured is immutable, or another function or class that meets the same
  conditions. So the members share nothing with the rest of the argument that could change.
- No member assigns module or closure variables. A reader that finds that a task has left something
  in a function or a class, for example an attribute, unpickles the group again for the next task.
  (Two tasks that run at the same time on threads of one worker use the same functions.)

An argument with any other function or class is left to cloudpickle. Equal arguments have equal
pickles, whatever was pickled before: the key of a pure call is a hash of them.
"""

from __future__ import annotations

import copyreg
import hashlib
import io
import operator
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any, Final

from .functions import make_room
from .pickling import PROTOCOL, cloud_reducers, cloudpickle_dumps, is_importable, registered_modules
from .watching import MADE_IN_PYTHON, CodeWatch, NotFrozen

#: Entries of each cache. A larger group than `_KEPT_NBYTES` is not kept.
_MAX_ENTRIES: Final = 512
_KEPT_NBYTES: Final = 64 * 1024


# --- Writing --------------------------------------------------------------------------------------


class _Part:
    """The pickle of some members of an argument."""

    __slots__ = ("args", "nbytes", "taken")

    def __init__(self, members: tuple[Any, ...]) -> None:
        blob = cloudpickle_dumps(members)
        self.args = (hashlib.blake2b(blob, digest_size=16).digest(), blob)
        self.nbytes = len(blob)
        #: Always empty here. It is one list in each pickle that has members of this part.
        self.taken: list[Any] = []

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return load_members, self.args

    def reduce_member(self, i: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return the reduced form of member `i` in the pickle of an argument."""
        if self.nbytes <= _KEPT_NBYTES:
            return load_member, (*self.args, self.taken, i)
        return operator.getitem, (self, i)  # a reader does not keep it; it reads it once


class _Group:
    """The members of an argument, pickled.

    Args:
        members: functions and classes, in the order in which they are met.
        on_collected: called with a weak reference when one of them is collected.
    """

    __slots__ = ("__weakref__", "nbytes", "reduced", "refs", "watch")

    def __init__(self, members: list[Any], on_collected: Callable[[Any], object]) -> None:
        # Before pickling, so that a change during it differs from the record, and is noticed.
        self.watch = CodeWatch(members, strict=True)
        self.nbytes = 0
        #: The reduced form of each member in the pickle of an argument.
        self.reduced: list[Any] = [None] * len(members)
        for indices in _split(members):
            part = _Part(tuple([members[i] for i in indices]))
            self.nbytes += part.nbytes
            for place, i in enumerate(indices):
                self.reduced[i] = part.reduce_member(place)
        self.refs = [weakref.ref(member, on_collected) for member in members]


def _split(members: list[Any]) -> list[list[int]]:
    """Return the indices of the members of each part."""
    parts: list[tuple[set[int], list[int]]] = []
    for i, member in enumerate(members):
        ids, indices = {id(member)}, [i]
        if len(members) > 1:
            ids |= CodeWatch([member], strict=True).shareable
        apart = [part for part in parts if part[0].isdisjoint(ids)]
        for other_ids, others in parts:
            if not other_ids.isdisjoint(ids):
                ids, indices = ids | other_ids, indices + others
        parts = [*apart, (ids, sorted(indices))]
    return [indices for _, indices in parts]


#: {ids of the members: group}. A group leaves before the ids of its members can be used again,
#: and when there are too many; the oldest is dropped first.
_groups: Final[dict[tuple[int, ...], _Group]] = {}

#: {ids of the types of the arguments of a call: the group of the last such call, if it is kept}. It
#: is tried first. A call of other types is expected to have no members. Nothing depends on a hint
#: but time. Bounded likewise.
hints: Final[dict[tuple[int, ...], weakref.ref[_Group]]] = {}


def dumps_as_before(
    obj: object,
    buffer_callback: Callable[[pickle.PickleBuffer], bool],
    restart: Callable[[], object],
) -> bytes | None:
    """Pickle arguments of types that had members the last time.

    Args:
        obj: positional arguments, or a list of them and of keyword arguments.
        buffer_callback: takes buffers that travel out of band.
        restart: called before `obj` is pickled once more, from its beginning.

    Returns:
        The pickle; None if these have no members, or only cloudpickle can pickle them.
    """
    hint = hints.get(_types_of(obj))
    if hint is None:
        return None
    data, group = _dump(obj, buffer_callback, restart, hint())
    if data is None or group is None:
        hints.pop(_types_of(obj), None)
        restart()
        return None
    if hint() is not group:
        hints[_types_of(obj)] = weakref.ref(group)
    return data


def dumps_by_value(
    obj: object,
    buffer_callback: Callable[[pickle.PickleBuffer], bool],
    restart: Callable[[], object],
) -> bytes:
    """Pickle arguments that plain pickle cannot pickle, or that may have members.

    The arguments are those of `dumps_as_before`.
    """
    data, group = _dump(obj, buffer_callback, restart, None)
    if data is None:
        restart()
        return cloudpickle_dumps(obj, buffer_callback)
    if group is not None:
        make_room(hints, _MAX_ENTRIES)
        hints[_types_of(obj)] = weakref.ref(group)
    return data


def _types_of(obj: Any) -> tuple[int, ...]:
    return tuple(map(id, map(type, obj if type(obj) is tuple else obj[0])))


def _dump(
    obj: object,
    buffer_callback: Callable[[pickle.PickleBuffer], bool],
    restart: Callable[[], object],
    group: _Group | None,
) -> tuple[bytes | None, _Group | None]:
    """Pickle `obj`; return the pickle, None if cloudpickle must make it, and the group in it.

    Args:
        obj: positional arguments, or a list of them and of keyword arguments.
        buffer_callback: takes buffers that travel out of band.
        restart: called before `obj` is pickled once more, from its beginning.
        group: the group that it probably has.
    """
    try:
        data, members, group = _dump_with(obj, buffer_callback, group)
        if not members:
            return data, None
        if group is None or not group.watch.is_unchanged():
            group = _find_group(members)  # which are known only now
            restart()
            data, _, again = _dump_with(obj, buffer_callback, group)
            if again is not group:
                return None, None  # a reducer that does something else each time
    except Exception:  # NotFrozen, or an object that only cloudpickle can pickle or explain
        return None, None
    return data, group


def _find_group(members: list[Any]) -> _Group:
    key = tuple(map(id, members))
    group = _groups.get(key)
    if group is not None and group.watch.is_unchanged():
        return group
    group = _Group(members, lambda _ref: _groups.pop(key, None))
    if group.nbytes <= _KEPT_NBYTES:
        make_room(_groups, _MAX_ENTRIES)
        _groups[key] = group
    return group


class _Known:
    """State that holds for all arguments until the user registers something else."""

    #: Modules whose functions and classes travel by value.
    modules: set[str] | None = None
    #: {id: weak reference} of functions and classes that travel as names.
    importable: Final[dict[int, weakref.ref[Any]]] = {}
    #: A copy of `copyreg.dispatch_table`.
    registered: dict[type, Any] | None = None
    #: The reducers of instances, by type.
    reducers: dict[type, Callable[[Any], Any]]


def _refresh_known(modules: set[str]) -> None:
    _Known.importable.clear()
    _Known.modules = modules
    registered = copyreg.dispatch_table.copy()
    _Known.reducers = cloud_reducers()
    _Known.registered = registered


class _ArgumentPickler(pickle.Pickler):
    """Pickles as cloudpickle does, but takes out the members. One is used for many arguments."""

    def __init__(self) -> None:
        self._file = io.BytesIO()
        super().__init__(self._file, PROTOCOL, buffer_callback=self._on_buffer)
        self.dispatch_table = _Known.reducers

    def dump_with(
        self,
        obj: object,
        buffer_callback: Callable[[pickle.PickleBuffer], bool],
        group: _Group | None,
    ) -> tuple[bytes, list[Any], _Group | None]:
        """Pickle; see `_dump_with`. After an exception, this pickler is of no further use."""
        members: list[Any] = []
        self._take = buffer_callback
        self._members = members
        self._group = group
        self._refs: list[weakref.ref[Any]] = [] if group is None else group.refs
        self._is_group = True
        self.dump(obj)
        self.clear_memo()
        data = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        group = self._group
        is_group = self._is_group and group is not None and len(members) == len(self._refs)
        del self._take, self._members, self._group, self._refs
        return data, members, group if is_group else None

    def _on_buffer(self, buffer: pickle.PickleBuffer) -> bool:
        return self._take(buffer)

    def reducer_override(self, part: Any) -> Any:
        """Reduce functions and classes here, and all else as usual."""
        cls = type(part)
        if cls is types.FunctionType or cls is type or issubclass(cls, type):
            if id(part) in _Known.importable:
                return NotImplemented
            # Each member is met once: pickle remembers what it has seen.
            members = self._members
            i = len(members)
            if self._group is not None and i < len(self._refs) and self._refs[i]() is part:
                members.append(part)
                return self._group.reduced[i]
            return self._reduce_unexpected(part)
        return NotImplemented

    def _reduce_unexpected(self, part: Any) -> Any:
        ident = id(part)
        if is_importable(part):
            importable = _Known.importable
            importable[ident] = weakref.ref(part, lambda _ref: importable.pop(ident, None))
            return NotImplemented
        if type(part) is type and not part.__flags__ & MADE_IN_PYTHON:
            return _reduce_type_of_c(part)
        self._members.append(part)
        if len(self._members) == 1 and (known := _groups.get((ident,))) is not None:
            self._group, self._refs = known, known.refs
            return known.reduced[0]
        self._is_group = False
        return operator.getitem, ((), 0)


#: Picklers that are not in use: to make one takes as long as to pickle a small argument. Pickling
#: may nest, and happens on several threads; each then takes one of its own.
_picklers: Final[list[_ArgumentPickler]] = []


def _dump_with(
    obj: object,
    buffer_callback: Callable[[pickle.PickleBuffer], bool],
    group: _Group | None,
) -> tuple[bytes, list[Any], _Group | None]:
    """Pickle as cloudpickle does, but take out the members.

    Args:
        obj: anything.
        buffer_callback: takes buffers that travel out of band.
        group: the group that `obj` probably has.

    Returns:
        The pickle, the members in the order in which they were met, and their group, which is in
        the pickle; None instead of the group if that is not known, and the pickle is of no use.
    """
    modules = registered_modules()
    if modules != _Known.modules or copyreg.dispatch_table != _Known.registered:
        _refresh_known(modules)
        _picklers.clear()
    try:
        pickler = _picklers.pop()
    except IndexError:
        pickler = _ArgumentPickler()
    dumped = pickler.dump_with(obj, buffer_callback, group)
    _picklers.append(pickler)
    return dumped


def _reduce_type_of_c(cls: type) -> Any:
    """Reduce a type of C that is no attribute of `builtins`, such as that of bound methods."""
    for name, value in vars(types).items():
        if value is cls:
            return getattr, (types, name)
    raise NotFrozen  # cloudpickle may have a reducer for it


# --- Reading --------------------------------------------------------------------------------------


#: {digest: (members, their watch; None if they may change unseen)} of parts that were read.
#: Bounded; the oldest is dropped first.
_loaded: Final[dict[bytes, tuple[tuple[Any, ...], CodeWatch | None]]] = {}


def load_member(digest: bytes, blob: bytes, taken: list[tuple[Any, ...]], i: int) -> Any:
    """Return member `i` of a part that is kept; called by the pickles of arguments.

    Args:
        digest: that of `blob`.
        blob: the pickle of the part.
        taken: a list in the pickle of the argument, empty until the first member of the part is
            met. It gets the members, so that the others come from the same load, whatever other
            threads do to those that are kept.
        i: the place of the member in the part.
    """
    if not taken:
        taken.append(_kept_members(digest, blob))
    return taken[0][i]


def _kept_members(digest: bytes, blob: bytes) -> tuple[Any, ...]:
    loaded = _loaded.get(digest)
    if loaded is not None:
        members, watch = loaded
        if watch is not None and watch.is_unchanged():
            return members
    members = load_members(digest, blob)
    try:
        watch = CodeWatch(members, strict=True)
    except Exception:  # NotFrozen, or another thread changes them meanwhile
        watch = None
    make_room(_loaded, _MAX_ENTRIES)
    _loaded[digest] = members, watch
    return members


def load_members(_digest: bytes, blob: bytes) -> tuple[Any, ...]:
    """Return the members of a part; called by the pickles of arguments."""
    members: tuple[Any, ...] = pickle.loads(blob)
    return members
