"""Notices changes of functions and classes that were pickled, by comparing identities.

A function that travels by value is pickled with its code, defaults, names, closure variables and
the module variables that it reads, and the same of the functions among them. Pickling takes 20 µs
and more; to compare all of these by identity takes about 50 ns each. Variables that do not exist
(a name that is defined or imported later, a builtin that a module variable hides later, an empty
closure cell) are compared too.

Identity does not show that a list or an array was changed in place, so a `CodeWatch` also records
whether it met anything mutable.

Some changes are not noticed, because each look would take longer for what programs set once, when
they define a function or a class: changes of the docstring, the annotations and `__module__` of a
function; of the name and the bases of a class; and inside the annotations of a class and what
`dataclass` and `namedtuple` record about its fields (`_FIXED_ATTRIBUTES`).
"""

from __future__ import annotations

import collections
import copyreg
import dataclasses
import dis
import functools
import logging
import re
import types
import weakref
from collections.abc import Callable, Iterable, KeysView, Sequence
from typing import Any, Final

from .pickling import (
    MISSING,
    cell_contents,
    global_names,
    is_importable,
    nested_codes,
    travels_as_name,
)

#: Types whose values never change in a way that pickling would notice.
_IMMUTABLE_TYPES: Final = frozenset(
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

#: Attributes in which `namedtuple` and `dataclass` keep results of their own, in special types.
_FIXED_TYPES: Final = frozenset(
    {
        type(collections.namedtuple("_", "x").x),  # type: ignore[attr-defined]
        type(dataclasses.MISSING),
        type(getattr(dataclasses, "_HAS_DEFAULT_FACTORY", None)),
    }
)

_DESCRIPTORS_OF_C: Final = frozenset({types.GetSetDescriptorType, types.MemberDescriptorType})

#: Attributes of classes that pickling leaves out, or that never change once the class is made.
_FIXED_ATTRIBUTES: Final = frozenset(
    {
        *("__annotations__", "__annotations_cache__", "__dict__", "__slotnames__", "__slots__"),
        *("__static_attributes__", "__weakref__"),
        *("__dataclass_fields__", "__dataclass_params__", "__match_args__", "_field_defaults"),
        *("_fields",),
    }
)

#: The `__repr__` that `dataclass` makes is wrapped in a function of one of these (which of them
#: depends on the version of Python), with a closure variable for the reprs that are being made.
_MODULES_OF_REPR: Final = ("dataclasses", "reprlib")

#: A function that uses one of these may assign module variables.
_ASSIGNING_NAMES: Final = frozenset({"__globals__", "eval", "exec", "globals"})

#: Longer tuples count as mutable: a look at each of their items would cost more than it saves.
_MAX_ITEMS: Final = 16

#: `Py_TPFLAGS_HEAPTYPE`. Types of C have names like "method" that no module has.
MADE_IN_PYTHON: Final = 1 << 9


class NotFrozen(Exception):
    """A part of what is watched is mutable."""


class CodeWatch:
    """The objects that the pickle of some functions and classes is made of.

    Make it before pickling, so that a change during it differs from the record, and is noticed.

    Args:
        roots: functions, classes and partials. They are not kept alive, unless what they captured
            refers to them.
        strict: look at the attributes of functions and classes as well, and accept no function that
            assigns module or closure variables, and no class of another metaclass than `type`.
            Otherwise classes count as immutable.

    Raises:
        NotFrozen: something mutable was met, and `strict` is set.
    """

    __slots__ = (
        *("_cells", "_classes", "_functions", "_items", "_missing", "_seen", "_sizes", "_strict"),
        *("is_frozen", "shareable"),
    )

    def __init__(self, roots: Sequence[Any], *, strict: bool = False) -> None:
        #: Whether comparing identities is enough to notice every change.
        self.is_frozen = True
        #: The ids of all functions, classes and cells among the objects.
        self.shareable: set[int] = set()
        self._strict = strict
        #: (function, code, defaults, keyword-only defaults, name, qualified name).
        self._functions: list[tuple[Callable[[], Any], Any, Any, Any, str, str]] = []
        #: (class, number of attributes, attributes).
        self._classes: list[tuple[Callable[[], Any], int, list[tuple[str, object]]]] = []
        #: (`get` of a namespace, name, value).
        self._items: list[tuple[Callable[..., Any], str, object]] = []
        #: (names of a namespace, names that are not among them).
        self._missing: list[tuple[KeysView[str], frozenset[str]]] = []
        self._cells: list[tuple[types.CellType, object]] = []
        #: (namespace, number of its names).
        self._sizes: list[tuple[dict[str, Any], int]] = []
        #: The objects that were added. It keeps the ids of temporary objects from being used again.
        self._seen: dict[int, object] = {}
        for root in roots:
            self._add_root(root)
        self._seen.clear()

    def is_unchanged(self) -> bool:
        """Return whether pickling would give the same bytes again, as far as this can be seen."""
        for ref, code, defaults, kwdefaults, name, qualname in self._functions:
            func = ref()
            if (
                func is None
                or func.__code__ is not code
                or func.__defaults__ is not defaults
                or func.__kwdefaults__ is not kwdefaults
                or func.__name__ is not name
                or func.__qualname__ is not qualname
            ):
                return False
        for get, name, value in self._items:
            if get(name, MISSING) is not value:
                return False
        for names, missing in self._missing:
            if not names.isdisjoint(missing):
                return False
        for cell, value in self._cells:
            if cell_contents(cell) is not value:
                return False
        return not self._strict or self._is_unchanged_strictly()

    def _is_unchanged_strictly(self) -> bool:
        for space, size in self._sizes:
            if len(space) != size:
                return False
        for ref, size, attributes in self._classes:
            cls = ref()
            if cls is None or len(cls.__dict__) != size:
                return False
            get = cls.__dict__.get
            for name, value in attributes:
                if get(name, MISSING) is not value:
                    return False
        return True

    def _add_root(self, root: Any) -> None:
        self._seen[id(root)] = root
        if type(root) is functools.partial:
            self._add_partial(root)
        elif type(root) is types.FunctionType:
            self._add_function(root)
        elif not isinstance(root, type):
            self._refuse()
        elif self._strict:
            self._add_class(root)

    def _add(self, value: Any) -> None:
        cls = type(value)
        if cls in _IMMUTABLE_TYPES or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if cls is types.FunctionType:
            if not is_importable(value):
                self._add_function(value)
        elif isinstance(value, type):
            if self._strict and value.__flags__ & MADE_IN_PYTHON and not is_importable(value):
                self._add_class(value)
        elif (cls is tuple or cls is frozenset) and len(value) <= _MAX_ITEMS:
            self._add_all(value)
        elif cls is functools.partial and not self._strict:
            self._add_partial(value)
        elif self._strict and cls in _FIXED_TYPES:
            pass
        elif self._strict and (cls is staticmethod or cls is classmethod):
            self._add(value.__func__)
        elif self._strict and cls is property:
            self._add_all((value.fget, value.fset, value.fdel))
        elif not (callable(value) and travels_as_name(value)):
            self._refuse()

    def _add_all(self, values: Iterable[Any]) -> None:
        # All of them: a function is watched even if something mutable comes before it.
        for value in values:
            self._add(value)

    def _add_partial(self, func: Any) -> None:
        get = func.keywords.get
        self._items += [(get, name, value) for name, value in func.keywords.items()]
        self._add_all([func.func, *func.args, *func.keywords.values()])

    def _add_function(self, func: Any) -> None:
        code = func.__code__
        if self._strict and _assigns_outside(code):
            self._refuse()
        defaults, kwdefaults = func.__defaults__, func.__kwdefaults__
        names = func.__name__, func.__qualname__
        self._functions.append((weakref.ref(func), code, defaults, kwdefaults, *names))
        space = func.__globals__
        if self._strict:
            self._sizes.append((func.__dict__, len(func.__dict__)))
            self._items += [(func.__dict__.get, *item) for item in func.__dict__.items()]
            self._add_all(func.__dict__.values())
        cells = [(cell, cell_contents(cell)) for cell in func.__closure__ or ()]
        if space.get("__name__") in _MODULES_OF_REPR:
            cells = [(cell, value) for cell, value in cells if type(value) is not set]
        get = space.get
        items = [(get, name, get(name, MISSING)) for name in global_names(code)]
        missing = frozenset([name for _, name, value in items if value is MISSING])
        items = [item for item in items if item[2] is not MISSING]
        if missing:
            self._missing.append((space.keys(), missing))
        self.shareable.update(map(id, func.__closure__ or ()), (id(func),))
        self._cells += cells
        self._items += items
        self._add_all([value for _, value in cells if value is not MISSING])
        self._add_all([value for _, _, value in items])
        self._add_all([*(func.__defaults__ or ()), *(func.__kwdefaults__ or {}).values()])

    def _add_class(self, cls: type) -> None:
        # Classes of other metaclasses (enums, abstract ones) have registries of their own.
        if type(cls) is not type:
            self._refuse()
        _set_slot_names(cls)
        attributes = [
            (name, value)
            for name, value in cls.__dict__.items()
            if type(value) not in _DESCRIPTORS_OF_C  # they keep the class alive
        ]
        self.shareable.add(id(cls))
        self._classes.append((weakref.ref(cls), len(cls.__dict__), attributes))
        self._add_all(cls.__bases__)
        self._add_all([value for name, value in attributes if name not in _FIXED_ATTRIBUTES])

    def _refuse(self) -> None:
        if self._strict:
            raise NotFrozen
        self.is_frozen = False


def _set_slot_names(cls: type) -> None:
    """Have `copyreg` set `__slotnames__` now, as it does when an instance is first pickled.

    It is an attribute of the class, so the pickle of the class would change with it.
    """
    set_names = getattr(copyreg, "_slotnames", None)
    if set_names is not None:
        set_names(cls)


@functools.lru_cache(maxsize=1024)
def _assigns_outside(code: types.CodeType) -> bool:
    """Return whether a function with this code may assign module or closure variables."""
    if any(not _ASSIGNING_NAMES.isdisjoint(inner.co_names) for inner in nested_codes(code)):
        return True
    outer = set(code.co_freevars)
    return any(
        step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        or (step.opname in ("STORE_DEREF", "DELETE_DEREF") and step.argval in outer)
        for inner in nested_codes(code)
        for step in dis.get_instructions(inner)
    )
