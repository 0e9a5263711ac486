"""The `message` decorator: one slots dataclass per message, checked once at the boundary.

Owns the schema language of the wire. The *name* of a field's annotation is its schema: `keys: Keys`
is encoded without change and, on arrival, checked by `CHECKS["Keys"]`. So a class documents itself,
is constructed as fast as any slots dataclass (frozen ones take twice as long), and needs no type
checks after the boundary.

A column check is one pass at C speed (`set(map(type, column))`, about 30 ns per item); the whole
message is checked in `from_wire`, and not again later. A failed check is a `RemoteProtocolError`.

Messages grow at their end: a later release may add fields with defaults behind the last one. So
missing trailing fields get their defaults, and unknown trailing ones are skipped. A message with
a code that this release does not know becomes an `Unknown`, and its receiver answers it with
`Unsupported`.

The decorator has its own module because a compiled module must not define a `dataclass_transform`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from ..errors import RemoteProtocolError
from .payload import Blob, Payload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options: bool) -> Callable[[_F], _F]:
        """Stand in for the typing decorator, which has no effect at run time."""
        return lambda function: function


# -- schema names ---------------------------------------------------------------------------------
Keys = list[str]  #: task keys, each 1..MAX_KEY_CHARS characters
Texts = list[str]  #: short texts: addresses, names
Ints = list[int]  #: whole numbers, 0 <= n < 2**63
Ids = list[bytes]  #: content hashes, 16 bytes each
Blobs = list[Blob | None]  #: opaque pickles; None = not carried here
KeyLists = list[list[str]]  #: one list of keys per task
Failures = list[list[Any]]  #: see failure.py
Number = int  #: a whole number, 0 <= n < 2**63
Priority = int  #: a user's priority, -512..511, higher runs earlier
Text = str  #: at most MAX_TEXT_CHARS characters
Amounts = dict[str, float]  #: name -> amount, finite and >= 0
Facts = dict[str, Any]  #: small map for display (versions, host facts), see `_check_facts`
Info = dict[str, Any]  #: the answer to a question: a map with text keys, which may hold many facts
Flag = bool

MAX_ITEMS = 1 << 18  #: longest column of one message
#: Longer messages are sent in parts, so cores need not count rows. 2048 rows with the longest keys
#: and the longest blobs that are not moved out of band stay below the limit of a payload.
MAX_ROWS = 2048
#: Keys that one task may depend on: an assignment with the holders of all must fit a payload.
MAX_DEPENDENCIES = 1 << 16
MAX_KEY_CHARS = 1024
MAX_TEXT_CHARS = 1 << 16
MAX_FACTS = 4096
#: Facts of one peer are passed on in answers to others, whose decoders have limits of their own.
MAX_FACTS_DEPTH = 8
MAX_FACTS_NBYTES = 64 << 10

#: Codes whose meaning is decided, for messages that this release does not have.
RESERVED: Final[dict[int, str]] = {
    112: "Interrupt",
    113: "Put",
    114: "WishCopies",
    115: "HeldOperation",
    116: "HeldAnswer",
}
MAX_CODE: Final = 255

_T = TypeVar("_T")
_F = TypeVar("_F")
_REGISTRY: dict[int, type[Message]] = {}


class Message:
    """Base of all messages; use `@message(code)` on the subclass."""

    __slots__ = ()
    code: ClassVar[int]
    columns: ClassVar[tuple[str, ...]] = ()
    optional_columns: ClassVar[tuple[str, ...]] = ()
    _tables: ClassVar[tuple[tuple[str, ...], ...]] = ()
    _index: ClassVar[str] = ""
    _key_lists: ClassVar[tuple[str, ...]] = ()
    _first: ClassVar[str] = ""
    _names: ClassVar[tuple[str, ...]] = ()
    #: The number of fields up to the last one without a default; the later ones may be missing.
    _n_required: ClassVar[int]
    _defaults: ClassVar[dict[str, Callable[[], Any]]]
    _checks: ClassVar[tuple[Callable[[Any, list[Any]], Any], ...]]

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
        if cls._index and len(getattr(self, cls._tables[0][0])) > max_rows:
            # With the whole table each part would cost its reader as much as the uncut message.
            for part in parts:
                part._narrow()
        return parts

    def _narrow(self) -> None:
        """Keep only the rows of the first table that the index points to."""
        cls = type(self)
        places: dict[int, int] = {}
        index = [places.setdefault(i, len(places)) for i in getattr(self, cls._index)]
        setattr(self, cls._index, index)
        for name in cls._tables[0]:
            column = getattr(self, name)
            setattr(self, name, [column[i] for i in places])

    def n_listed_keys(self) -> int:
        """Return the number of keys in the field of key lists that has most."""
        if not self._key_lists:
            return 0
        columns = [getattr(self, name) for name in self._key_lists]
        return max([sum(map(len, column)) for column in columns], default=0)

    def to_wire(self) -> list[Any]:
        """Return `[code, field, ...]`; `Payload`s stay objects for the packer's `default` hook."""
        return [self.code, *[getattr(self, name) for name in self._names]]


class Unknown(Message):
    """A received message whose code this release does not know; it is never sent.

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

    def __repr__(self) -> str:
        return f"Unknown({self.unknown_code}, {self.request})"


@dataclass_transform(kw_only_default=True)
def message(
    code: int,
    *,
    columns: tuple[str, ...] = (),
    optional_columns: tuple[str, ...] = (),
    tables: tuple[tuple[str, ...], ...] = (),
    index: str = "",
) -> Callable[[type[_T]], type[_T]]:
    """Register a slots dataclass as the message `code` (1..255, never reused, not reserved).

    Args:
        code: the number on the wire.
        columns: columns that must have the same length, the number of rows.
        optional_columns: columns that are empty (no row has a value) or have that length too.
        tables: groups of lists; those of one group have the same length, but no relation to rows.
        index: the column whose numbers point into the first table.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        made: Any = dataclass(slots=True, kw_only=True)(cls)
        names = tuple(field.name for field in fields(made))
        defaults = {field.name: _default_of(field) for field in fields(made)}
        made.code = code
        made.columns = columns
        made.optional_columns = optional_columns
        made._tables = tables
        made._index = index
        made._names = names
        made._first = columns[0] if columns else "keys" if "keys" in names else ""
        made._key_lists = tuple(n for n in names if made.__annotations__[n] == "KeyLists")
        made._checks = tuple(CHECKS[made.__annotations__[name]] for name in names)
        made._defaults = {name: make for name, make in defaults.items() if make is not None}
        made._n_required = max([0, *(i for i, n in enumerate(names, 1) if defaults[n] is None)])
        if code in RESERVED:
            raise ValueError(f"message code {code} is reserved for {RESERVED[code]}")
        if code in _REGISTRY:
            raise ValueError(f"message code {code} is used by {_REGISTRY[code].__name__}")
        _REGISTRY[code] = made
        return cast("type[_T]", made)

    return decorate


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
    cls = _REGISTRY.get(wire[0])
    if cls is None:
        return _unknown(wire)
    names = cls._names
    n_sent = len(wire) - 1
    if n_sent < cls._n_required:
        raise RemoteProtocolError(
            f"{cls.__name__}: at least {cls._n_required} fields expected, {n_sent} came"
        )
    # A peer of an earlier release does not send the last fields; one of a later release sends more.
    values: dict[str, Any] = {name: cls._defaults[name]() for name in names[n_sent:]}
    for name, check, value in zip(names, cls._checks, wire[1:], strict=False):
        try:
            values[name] = check(value, buffers)
        except (ValueError, TypeError) as error:
            raise RemoteProtocolError(f"{cls.__name__}.{name}: {error}") from None
    if cls.columns:
        n = len(values[cls.columns[0]])
        for name in cls.columns:
            _check_length(cls, name, len(values[name]), n)
        for name in cls.optional_columns:
            if values[name]:
                _check_length(cls, name, len(values[name]), n)
    for table in cls._tables:
        n = len(values[table[0]])
        for name in table:
            _check_length(cls, name, len(values[name]), n)
    if cls._index:
        n = len(values[cls._tables[0][0]])
        if values[cls._index] and max(values[cls._index]) >= n:
            raise RemoteProtocolError(f"{cls.__name__}.{cls._index} points beyond its table")
    return cls(**values)


def _unknown(wire: list[Any]) -> Unknown:
    code = wire[0]
    if not 1 <= code <= MAX_CODE:
        raise RemoteProtocolError(f"message code {code} is not between 1 and {MAX_CODE}")
    first = wire[1] if len(wire) > 1 else 0
    is_request = type(first) is int and 0 <= first < 1 << 63
    return Unknown(code, first if is_request else 0)


def _check_length(cls: type[Message], name: str, length: int, expected: int) -> None:
    if length != expected:
        raise RemoteProtocolError(f"{cls.__name__}.{name}: {length} items for {expected} rows")


# -- checks: (value, buffers) -> value, or ValueError/TypeError -----------------------------------
def _column(value: Any) -> list[Any]:
    if type(value) is not list:
        raise TypeError(f"an array is expected, not {type(value).__name__}")
    if len(value) > MAX_ITEMS:
        raise ValueError(f"{len(value)} items are more than the limit of {MAX_ITEMS}")
    return value


def _check_keys(value: Any, _buffers: list[Any]) -> list[str]:
    column = _column(value)
    if column:
        if set(map(type, column)) != {str}:
            raise TypeError("keys must be strings")
        if len(max(column, key=len)) > MAX_KEY_CHARS or not all(column):
            raise ValueError(f"a key has 1 to {MAX_KEY_CHARS} characters")
    return column


def _check_texts(value: Any, _buffers: list[Any]) -> list[str]:
    column = _column(value)
    if column and (set(map(type, column)) != {str} or len(max(column, key=len)) > MAX_TEXT_CHARS):
        raise TypeError("short texts are expected")
    return column


def _check_ints(value: Any, _buffers: list[Any]) -> list[int]:
    column = _column(value)
    if column and (set(map(type, column)) != {int} or min(column) < 0 or max(column) >= 1 << 63):
        raise TypeError("whole numbers from 0 to 2**63 - 1 are expected")
    return column


def _check_ids(value: Any, _buffers: list[Any]) -> list[bytes]:
    column = _column(value)
    if column and (set(map(type, column)) != {bytes} or set(map(len, column)) != {16}):
        raise TypeError("16-byte ids are expected")
    return column


def _blob(value: Any, buffers: list[Any]) -> Blob | None:
    if type(value) is list:
        if len(value) != 2 or type(value[0]) is not int or type(value[1]) is not int:
            raise TypeError("a blob reference is [first buffer, number of buffers]")
        start, count = value
        if not (0 <= start < start + count <= len(buffers)):
            raise ValueError("a blob refers to buffers that the frame does not carry")
        return Payload(buffers[start], buffers[start + 1 : start + count])
    if value is not None and type(value) is not bytes:
        raise TypeError("a blob is bytes or a reference to buffers")
    return value


def _check_blobs(value: Any, buffers: list[Any]) -> list[Blob | None]:
    column = _column(value)
    if column and set(map(type, column)) != {bytes}:
        return [_blob(item, buffers) for item in column]
    return column


def _check_key_lists(value: Any, buffers: list[Any]) -> list[list[str]]:
    column = _column(value)
    if column and set(map(type, column)) != {list}:
        raise TypeError("a list of lists of keys is expected")
    flat: list[Any] = []
    for keys in column:
        if keys:
            flat += keys
    _check_keys(flat, buffers)
    return column


def _check_failures(value: Any, _buffers: list[Any]) -> list[list[Any]]:
    column = _column(value)
    for failure in column:
        if type(failure) is not list or not 2 <= len(failure) <= 12 or type(failure[0]) is not str:
            raise TypeError("a failure is [kind, ...]")
        if not set(map(type, failure)) <= {str, bytes, int, type(None)}:
            raise TypeError("a failure has plain fields")
    return column


def _check_number(value: Any, _buffers: list[Any]) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise TypeError("a whole number from 0 to 2**63 - 1 is expected")
    return value


def _check_priority(value: Any, _buffers: list[Any]) -> int:
    if type(value) is not int or not -512 <= value <= 511:
        raise TypeError("a priority is a whole number from -512 to 511")
    return value


def _check_text(value: Any, _buffers: list[Any]) -> str:
    if type(value) is not str or len(value) > MAX_TEXT_CHARS:
        raise TypeError("a short text is expected")
    return value


def _check_flag(value: Any, _buffers: list[Any]) -> bool:
    if type(value) is not bool:
        raise TypeError("true or false is expected")
    return value


def _check_amounts(value: Any, _buffers: list[Any]) -> dict[str, float]:
    if type(value) is not dict or len(value) > 64:
        raise TypeError("a small map of name to amount is expected")
    for name, amount in value.items():
        if (
            type(name) is not str
            or type(amount) not in (int, float)
            or not 0 <= amount < float("inf")
        ):
            raise TypeError("an amount is a finite number >= 0")
    return value


def _check_info(value: Any, _buffers: list[Any]) -> dict[str, Any]:
    if type(value) is not dict or len(value) > MAX_FACTS or not set(map(type, value)) <= {str}:
        raise TypeError(f"a map with text keys is expected, of at most {MAX_FACTS} entries")
    return value


def _check_facts(value: Any, buffers: list[Any]) -> dict[str, Any]:
    facts = _check_info(value, buffers)
    layer: list[Any] = [facts]
    depth = nbytes = 0
    while layer:
        depth += 1
        if depth > MAX_FACTS_DEPTH:
            raise ValueError(f"facts are nested in more than {MAX_FACTS_DEPTH} maps and lists")
        items: list[Any] = []
        for one in layer:
            items += one
            if type(one) is dict:
                items += one.values()
        nbytes += 8 * len(items) + sum(len(x) for x in items if type(x) in (str, bytes))
        if nbytes > MAX_FACTS_NBYTES:
            raise ValueError(f"facts take {nbytes} bytes or more, the limit is {MAX_FACTS_NBYTES}")
        layer = [x for x in items if type(x) in (dict, list)]
    return facts


CHECKS: dict[str, Callable[[Any, list[Any]], Any]] = {
    "Keys": _check_keys,
    "Texts": _check_texts,
    "Ints": _check_ints,
    "Ids": _check_ids,
    "Blobs": _check_blobs,
    "KeyLists": _check_key_lists,
    "Failures": _check_failures,
    "Number": _check_number,
    "Priority": _check_priority,
    "Text": _check_text,
    "Flag": _check_flag,
    "Amounts": _check_amounts,
    "Facts": _check_facts,
    "Info": _check_info,
}
