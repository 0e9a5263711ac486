"""The functions that encode and decode a message class, made from the names of its fields.

Checking and building a message by loops over its fields takes longer than all else that is done
with a message of one row. So each class gets functions of its own, without loops or look-ups, when
its first message is encoded or decoded: most processes use a third of the classes, and each costs
about a millisecond. For `WantKeys`, for example, this text is made and executed:

    def to_wire(self):
        return [17, self.keys, self.spec_hashes]

    def short_wire(self):
        if len(self.keys) > 8 or len(self.spec_hashes) > 8: return None
        return [17, self.keys, self.spec_hashes]

    def decode(wire, buffers):
        if len(wire) != 3: wire = completed(wire)
        _, keys, spec_hashes = wire
        if not (type(keys) is list and (not keys or len(keys) == 1
                and (type(x := keys[0]) is str and 0 < len(x) <= 1024))):
            keys = check_keys(keys, buffers)
        if not (type(spec_hashes) is list and (not spec_hashes or len(spec_hashes) == 1
                and (type(x := spec_hashes[0]) is bytes and len(x) == 16))):
            spec_hashes = check_spec_hashes(spec_hashes, buffers)
        n = len(keys)
        if spec_hashes and len(spec_hashes) != n: wrong_length("spec_hashes", spec_hashes, n)
        message = new(cls)
        message.keys = keys
        message.spec_hashes = spec_hashes
        return message

The tests of `_FREQUENT` let the frequent values pass: empty columns and those of one row. Any other
value goes to its check in `columns`, which returns it or raises; so both ways accept the same
values. The names in the text come from our own classes, never from a peer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ..errors import RemoteProtocolError
from .columns import CHECKS, MAX_KEY_CHARS, MAX_NUMBER, MAX_SIZE, MAX_TEXT_CHARS

if TYPE_CHECKING:
    from .message import Message

#: Lists of up to this many items are short.
FEW: Final = 8
#: Blobs below this size are short.
SHORT_BYTES: Final = 4 << 10


def _rows(test: str) -> str:
    """Return the test that a field is an empty list, or has one item `x` that passes `test`."""
    row = f"len({{0}}) == 1 and (type(x := {{0}}[0]) {test})"
    return f"type({{0}}) is list and (not {{0}} or {row})"


#: {type of a field: a test that its frequent values pass}; `{0}` stands for the field's value.
_FREQUENT: Final[dict[str, str]] = {
    "Keys": _rows(f"is str and 0 < len(x) <= {MAX_KEY_CHARS}"),
    "Texts": _rows(f"is str and len(x) <= {MAX_TEXT_CHARS}"),
    "Ints": _rows(f"is int and 0 <= x <= {MAX_NUMBER}"),
    "Sizes": _rows(f"is int and 0 <= x <= {MAX_SIZE}"),
    "Ids": _rows("is bytes and len(x) == 16"),
    "Blobs": _rows("is bytes or x is None"),
    "KeyLists": _rows(
        f"is list and (not x or len(x) == 1 and type(y := x[0]) is str"
        f" and 0 < len(y) <= {MAX_KEY_CHARS})"
    ),
    "Options": _rows("is dict and not x"),
    "Number": f"type({{0}}) is int and 0 <= {{0}} <= {MAX_NUMBER}",
    "Text": f"type({{0}}) is str and len({{0}}) <= {MAX_TEXT_CHARS}",
    "Flag": "{0} is True or {0} is False",
    "Facts": "type({0}) is dict and not {0}",
    "Amounts": "type({0}) is dict and not {0}",
}

#: {type of a field: a test that its value may be long}.
_LONG: Final[dict[str, str]] = {
    "Blobs": (
        "{0} and (any_long({0}) if len({0}) != 1 else (x := {0}[0]) is not None"
        " and (type(x) is not bytes or len(x) >= SHORT_BYTES))"
    ),
    "KeyLists": "{0} and (len({0}) > FEW or max(map(len, {0})) > FEW)",
    "Failures": "{0}",
    "Info": "{0}",
    **dict.fromkeys(("Keys", "Texts", "Ints", "Sizes", "Ids", "Options"), "len({0}) > FEW"),
}


def _run(text: str, names: dict[str, Any]) -> None:
    # Not `exec` of a text, which would make Python forget that a Ctrl-C ends the program: messages
    # are sent after it, when clients are closed.
    exec(compile(text, "<generated>", "exec"), names)


def encoders_of(cls: type[Message]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Make `to_wire` and `short_wire` of a message class, see `Message`."""
    names: dict[str, Any] = {"FEW": FEW, "SHORT_BYTES": SHORT_BYTES, "any_long": _any_long}
    _run("\n".join(_encoders(cls, _kinds(cls))), names)
    return names["to_wire"], names["short_wire"]


def decoder_of(cls: type[Message]) -> Callable[[list[Any], list[Any]], Message]:
    """Make the function that checks the wire form of a message of this class, and builds it.

    It takes the wire form, which begins with the code of the class, and the frame's buffers, and
    raises `RemoteProtocolError`.
    """
    kinds = _kinds(cls)
    names: dict[str, Any] = {
        "cls": cls,
        "new": object.__new__,
        "completed": _completer(cls),
        "wrong_length": _length_error(cls),
        "beyond": _index_error(cls),
    }
    for field, kind in kinds.items():
        names[f"check_{field}"] = _with_place(cls, field, CHECKS[kind])
    _run("\n".join(_decoder(cls, kinds)), names)
    decode: Callable[[list[Any], list[Any]], Message] = names["decode"]
    return decode


def _kinds(cls: type[Message]) -> dict[str, str]:
    """Return {name of a field: its type}, in the order on the wire."""
    return {name: cls.__annotations__[name] for name in cls._names}


def _encoders(cls: type[Message], kinds: dict[str, str]) -> list[str]:
    wire = ", ".join([str(cls.code), *(f"self.{name}" for name in kinds)])
    # The columns have one length, and so have the lists of a table: the first ones are enough,
    # except where single items may be long.
    same = {name for group in (cls.columns, *cls._tables) for name in group[1:]}
    tests = [
        _LONG[kind].format(f"self.{name}")
        for name, kind in kinds.items()
        if kind in _LONG and (name not in same or kind in ("Blobs", "KeyLists", "Failures"))
    ]
    return [
        "def to_wire(self):",
        f"    return [{wire}]",
        "def short_wire(self):",
        *([f"    if {' or '.join(tests)}: return None"] if tests else []),
        f"    return [{wire}]",
    ]


def _decoder(cls: type[Message], kinds: dict[str, str]) -> list[str]:
    lines = [
        "def decode(wire, buffers):",
        f"    if len(wire) != {1 + len(kinds)}: wire = completed(wire)",
        f"    {', '.join(['_', *kinds])}, = wire",
    ]
    for name, kind in kinds.items():
        check = f"{name} = check_{name}({name}, buffers)"
        test = _FREQUENT.get(kind)
        lines.append(f"    if not ({test.format(name)}): {check}" if test else f"    {check}")
    for group in (cls.columns, *cls._tables):
        tests = {name: f"len({name}) != n" for name in group[1:]}
        if group is cls.columns:
            tests |= {name: f"{name} and len({name}) != n" for name in cls.optional_columns}
        if tests:
            lines.append(f"    n = len({group[0]})")
        for name, test in tests.items():
            lines.append(f'    if {test}: wrong_length("{name}", {name}, n)')
    for index, table in cls._indexes:
        test = f"{index} and max({index}) >= len({table[0]})"
        lines.append(f'    if {test}: beyond("{index}")')
    lines.append("    message = new(cls)")
    lines += [f"    message.{name} = {name}" for name in kinds]
    lines.append("    return message")
    return lines


# -- what the functions call ----------------------------------------------------------------------
def _any_long(blobs: list[Any]) -> bool:
    if len(blobs) > FEW:
        return True
    for blob in blobs:
        if blob is not None and (type(blob) is not bytes or len(blob) >= SHORT_BYTES):
            return True
    return False


def _with_place(
    cls: type[Message], field: str, check: Callable[[Any, list[Any]], Any]
) -> Callable[[Any, list[Any]], Any]:
    """Return the check of a field, whose errors name the message and the field."""

    def checked(value: Any, buffers: list[Any]) -> Any:
        try:
            return check(value, buffers)
        except (ValueError, TypeError) as error:
            raise RemoteProtocolError(f"{cls.__name__}.{field}: {error}") from None

    return checked


def _completer(cls: type[Message]) -> Callable[[list[Any]], list[Any]]:
    """Return the function that brings a message of an earlier or a later release to its length."""
    n_fields, n_required = len(cls._names), cls._n_required
    defaults = [cls._defaults.get(name) for name in cls._names]

    def completed(wire: list[Any]) -> list[Any]:
        n_sent = len(wire) - 1
        if n_sent < n_required:
            raise RemoteProtocolError(
                f"{cls.__name__}: at least {n_required} fields expected, {n_sent} came"
            )
        return [*wire[: n_fields + 1], *(make() for make in defaults[n_sent:] if make is not None)]

    return completed


def _length_error(cls: type[Message]) -> Callable[[str, list[Any], int], None]:
    def wrong_length(field: str, column: list[Any], n_rows: int) -> None:
        raise RemoteProtocolError(f"{cls.__name__}.{field}: {len(column)} items for {n_rows} rows")

    return wrong_length


def _index_error(cls: type[Message]) -> Callable[[str], None]:
    def beyond(field: str) -> None:
        raise RemoteProtocolError(f"{cls.__name__}.{field} points beyond its table")

    return beyond
