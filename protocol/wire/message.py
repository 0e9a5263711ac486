"""The `message` decorator: one slots dataclass per message, checked once at the boundary.

The *name* of a field's annotation is its schema (`columns`): `keys: Keys` is encoded without change
and, on arrival, checked as keys. So a class documents itself, is constructed as fast as any slots
dataclass (frozen ones take twice as long), and needs no type checks after the boundary: the whole
message is checked in `from_wire`, by a function that `generating` has made for its class. A failed
check is a `RemoteProtocolError`.

Messages grow at their end: a later version may add fields with defaults behind the last one. So
missing trailing fields get their defaults, and unknown trailing ones are skipped. A message with
a code that this version does not know becomes an `Unknown`, and its receiver answers it with
`Unsupported`.

A message also names the roles of its senders and receivers, and so the level of token that it takes
to send it: `sent_by` and `sent_to` are what the tables of handlers are made from, or compared with.

The decorator has its own module because a compiled module must not define a `dataclass_transform`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from ..errors import InternalError, RemoteProtocolError
from .columns import (
    MAX_DEPENDENCIES,
    MAX_FACTS,
    MAX_ITEMS,
    MAX_KEY_CHARS,
    MAX_NUMBER,
    MAX_ROWS,
    MAX_TEXT_CHARS,
    Amounts,
    Blobs,
    Facts,
    Failures,
    Flag,
    Ids,
    Info,
    Ints,
    KeyLists,
    Keys,
    Number,
    Sizes,
    Text,
    Texts,
)
from .generating import checksum_of
from .levels import Level
from .options import Options
from .roles import ROLE_LEVELS, Role

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: bool) -> Callable[[_F], _F]:
        """Stand in for the typing decorator, which has no effect at run time."""
        return lambda function: function


__all__ = [
    "MAX_CODE",
    "MAX_DEPENDENCIES",
    "MAX_FACTS",
    "MAX_ITEMS",
    "MAX_KEY_CHARS",
    "MAX_NUMBER",
    "MAX_ROWS",
    "MAX_TEXT_CHARS",
    "Amounts",
    "Blobs",
    "Facts",
    "Failures",
    "Flag",
    "Ids",
    "Info",
    "Ints",
    "KeyLists",
    "Keys",
    "Message",
    "Number",
    "Options",
    "Sizes",
    "Text",
    "Texts",
    "Unknown",
    "coders_of",
    "declared",
    "from_wire",
    "load_coders",
    "message",
    "sent_by",
    "sent_to",
]

MAX_CODE: Final = 255

_T = TypeVar("_T")
_F = TypeVar("_F")
#: Values that have others in them.
_NESTED: Final = frozenset({dict, list})
_REGISTRY: dict[int, type[Message]] = {}
#: {code: the function that checks the wire form of that message and builds it}
_DECODERS: dict[int, Callable[[list[Any], list[Any]], Message]] = {}


class Message:
    """Base of all messages; use `@message(code)` on the subclass."""

    __slots__ = ()
    code: ClassVar[int]
    #: The roles of those that send it to the scheduler or to a data port, and of those to which one
    #: of these sends it.
    senders: ClassVar[tuple[Role, ...]] = ()
    receivers: ClassVar[tuple[Role, ...]] = ()
    #: It is the first message of its senders, which registers them.
    opens: ClassVar[bool] = False
    #: The least level of the token with which a registered peer may send it to the scheduler.
    least_level: ClassVar[Level] = Level.VIEW
    columns: ClassVar[tuple[str, ...]] = ()
    optional_columns: ClassVar[tuple[str, ...]] = ()
    _tables: ClassVar[tuple[tuple[str, ...], ...]] = ()
    #: lists of tables that are empty or as long as the others
    _optional_lists: ClassVar[set[str]] = set()
    #: (column, the table that its numbers point into)
    _indexes: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    _key_lists: ClassVar[tuple[str, ...]] = ()
    #: fields that are maps, which may have maps in them
    _maps: ClassVar[tuple[str, ...]] = ()
    _first: ClassVar[str] = ""
    _names: ClassVar[tuple[str, ...]] = ()
    #: The number of fields up to the last one without a default; the later ones may be missing.
    _n_required: ClassVar[int]
    _defaults: ClassVar[dict[str, Callable[[], Any]]]

    def parts(self, max_rows: int) -> list[Message]:
        """Cut a message of columns into several of at most `max_rows` each with the same meaning.

        Requests and answers are not cut: the sender of a request waits for exactly one answer.
        """
        cls = type(self)
        if not cls.columns or "request" in cls._names:
            return [self]
        n = len(getattr(self, cls.columns[0]))
        if n <= max_rows:
            return [self]
        cut = cls.columns + cls.optional_columns
        whole = {name: getattr(self, name) for name in cls._names if name not in cut}
        parts = [
            cls(**whole, **{name: getattr(self, name)[i : i + max_rows] for name in cut})
            for i in range(0, n, max_rows)
        ]
        for index, table in cls._indexes:
            if len(getattr(self, table[0])) > max_rows and getattr(self, index):
                # With the whole table each part would cost its reader as much as the whole message.
                for part in parts:
                    part._narrow(index, table)
        return parts

    def _narrow(self, index: str, table: tuple[str, ...]) -> None:
        """Keep only the rows of a table that the index points to."""
        places: dict[int, int] = {}
        setattr(self, index, [places.setdefault(i, len(places)) for i in getattr(self, index)])
        for name in table:
            column = getattr(self, name)
            if column:
                setattr(self, name, [column[i] for i in places])

    def n_listed_keys(self) -> int:
        """Return the number of keys in the field of key lists that has most."""
        most = 0
        for name in self._key_lists:
            column = getattr(self, name)
            if column:
                most = max(most, sum(map(len, column)))
        return most

    def largest_map(self) -> int:
        """Return the number of entries of the largest map in its fields."""
        most = 0
        layer = [getattr(self, name) for name in self._maps]
        while layer:
            inner: list[Any] = []
            for one in layer:
                items = one
                if type(one) is dict:
                    most = max(most, len(one))
                    items = one.values()
                # Columns of numbers and texts, which may be long, are passed over at C speed.
                if not _NESTED.isdisjoint(map(type, items)):
                    inner += [item for item in items if type(item) in _NESTED]
            layer = inner
        return most

    def to_wire(self) -> list[Any]:
        """Return `[code, field, ...]`; `Payload`s stay objects for the packer's `default` hook."""
        _take_encoders(type(self))
        return self.to_wire()

    def short_wire(self) -> list[Any] | None:
        """Return `to_wire()` if the message is certainly short and has no buffers, else None."""
        _take_encoders(type(self))
        return self.short_wire()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._names)

    __hash__ = None  # type: ignore[assignment]  # its lists are mutable

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._names)
        return f"{type(self).__name__}({fields})"


def _take_encoders(cls: Any) -> None:
    """Give a class functions of its own in the place of these, which only call this."""
    cls.to_wire, cls.short_wire, _ = coders_of(cls)


def coders_of(cls: type[Message]) -> tuple[Any, Any, Any]:
    """Return `to_wire` and `short_wire` of a class, and the function that decodes its wire form.

    The latter takes the wire form, which begins with the code of the class, and the frame's
    buffers, and raises `RemoteProtocolError`.

    Raises:
        InternalError: the class is not declared in `messages`.
    """
    checksum = checksum_of(cls)
    found = _made_coders().get(cls.code)
    if found is None or found[0] != checksum:
        from ..coders_file import renew

        found = renew().CODERS.get(cls.code)
        if found is None or found[0] != checksum:
            raise InternalError(
                f"{cls.__module__}.{cls.__name__} is declared outside of `messages`"
            )
    return found[1:]


def load_coders() -> None:
    """Import the functions that encode and decode, which the first message would need."""
    _made_coders()


def _made_coders() -> dict[int, tuple[int, Any, Any, Any]]:
    """Return what `coders.py` has; {} if it is missing, or does not fit the other modules."""
    try:
        # A type checker sees no file in a checkout that has never run.
        from . import coders  # type: ignore[attr-defined, unused-ignore]
    except (ImportError, KeyError, SyntaxError):
        return {}
    return coders.CODERS  # type: ignore[no-any-return, unused-ignore]


class Unknown(Message):
    """A received message whose code this version does not know; it is never sent.

    Attributes:
        unknown_code: its code.
        request: its first field if that is a whole number, by which the sender knows the message
            if it is a request; else 0.
    """

    __slots__ = ("request", "unknown_code")
    _names: ClassVar[tuple[str, ...]] = ("unknown_code", "request")

    def __init__(self, unknown_code: int, request: int) -> None:
        self.unknown_code = unknown_code
        self.request = request


@dataclass_transform(kw_only_default=True)
def message(
    code: int,
    *,
    by: tuple[Role, ...] = (),
    to: tuple[Role, ...] = (),
    opens: bool = False,
    level: Level | None = None,
    columns: tuple[str, ...] = (),
    optional_columns: tuple[str, ...] = (),
    tables: tuple[tuple[str, ...], ...] = (),
    indexes: tuple[str, ...] = (),
) -> Callable[[type[_T]], type[_T]]:
    """Register a slots dataclass as the message `code` (1..255, never reused).

    Args:
        code: the number on the wire.
        by: the roles of those that send it.
        to: the roles of those that it is sent to.
        opens: it registers its senders, and comes first.
        level: the least level of token to send it; None = the lowest of the senders' roles.
        columns: columns that must have the same length, the number of rows.
        optional_columns: columns that are empty (no row has a value) or have that length too.
        tables: groups of lists; those of one group have the same length, but no relation to rows.
            One with a default may be empty instead, if the first has none.
        indexes: columns whose numbers point into the first table, the second and so on.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        # `Message` compares and shows them all: two functions less for each class at import.
        made: Any = dataclass(slots=True, kw_only=True, eq=False, repr=False)(cls)
        names = tuple(field.name for field in fields(made))
        defaults = {field.name: _default_of(field) for field in fields(made)}
        made.code = code
        made.senders, made.receivers, made.opens = by, to, opens
        made.least_level = level or _least_level(() if opens else by)
        made.columns = columns
        made.optional_columns = optional_columns
        made._tables = tables
        made._optional_lists = {
            n for table in tables for n in table if defaults[n] and not defaults[table[0]]
        }
        made._indexes = tuple(zip(indexes, tables, strict=False))
        made._names = names
        made._first = columns[0] if columns else "keys" if "keys" in names else ""
        made._key_lists = tuple(n for n in names if made.__annotations__[n] == "KeyLists")
        made._maps = tuple(n for n in names if made.__annotations__[n] in ("Info", "Facts"))
        made._defaults = {name: make for name, make in defaults.items() if make is not None}
        made._n_required = max([0, *(i for i, n in enumerate(names, 1) if defaults[n] is None)])
        if code in _REGISTRY:
            raise ValueError(f"message code {code} is used by {_REGISTRY[code].__name__}")
        _REGISTRY[code] = made
        _DECODERS[code] = partial(_decode_first, made)
        return cast("type[_T]", made)

    return decorate


def _least_level(senders: tuple[Role, ...]) -> Level:
    # Clients in tasks have the token of a worker only, and rights of their own.
    judged = {*senders} - {Role.PEER, Role.TASK_CLIENT}
    return min([ROLE_LEVELS[role] for role in judged], default=Level.VIEW)


def declared() -> list[type[Message]]:
    """Return all message classes."""
    return list(_REGISTRY.values())


def sent_by(role: Role) -> list[type[Message]]:
    """Return the messages that a peer of this role may send when it is registered."""
    return [cls for cls in _REGISTRY.values() if role in cls.senders and not cls.opens]


def sent_to(role: Role) -> list[type[Message]]:
    """Return the messages that a process which connects in this role is sent."""
    return [cls for cls in _REGISTRY.values() if role in cls.receivers]


def _default_of(field: Field[Any]) -> Callable[[], Any] | None:
    """Return a function that makes the default of a field, None if it has none."""
    if field.default_factory is not MISSING:
        return field.default_factory
    default = field.default
    return None if default is MISSING else lambda: default


def from_wire(wire: Any, buffers: list[Any]) -> Message:
    """Check one decoded message against its schema and build it; an unknown code is `Unknown`.

    Args:
        wire: the message as decoded by msgpack.
        buffers: the frame's out-of-band buffers, which `Blobs` refer to by position.

    Raises:
        RemoteProtocolError: no code, too few fields, a field of the wrong shape. Nothing has been
        changed then.
    """
    if type(wire) is not list or not wire or type(wire[0]) is not int:
        raise RemoteProtocolError("a message must be an array that starts with its code")
    decode = _DECODERS.get(wire[0])
    return _unknown(wire) if decode is None else decode(wire, buffers)


def _decode_first(cls: type[Message], wire: list[Any], buffers: list[Any]) -> Message:
    """Decode the first message of a class: take the function that decodes all others."""
    decode = _DECODERS[cls.code] = coders_of(cls)[2]
    return decode(wire, buffers)  # type: ignore[no-any-return]


def _unknown(wire: list[Any]) -> Unknown:
    code = wire[0]
    if not 1 <= code <= MAX_CODE:
        raise RemoteProtocolError(f"message code {code} is not between 1 and {MAX_CODE}")
    first = wire[1] if len(wire) > 1 else 0
    is_request = type(first) is int and 0 <= first < 1 << 63
    return Unknown(code, first if is_request else 0)
