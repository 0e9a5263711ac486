"""The text of `coders.py`: the functions that encode and decode each message class.

Checking and building a message by loops over its fields takes longer than all else that is done
with a message of one row. So each class has functions of its own, without loops or look-ups, made
from the names of its fields. For `WantKeys`, for example:

    def to_wire_17(self):
        return [17, self.keys, self.spec_hashes]

    def short_wire_17(self):
        if len(self.keys) > FEW or len(self.spec_hashes) > FEW:
            return None
        return [17, self.keys, self.spec_hashes]

    def decode_17(wire, buffers):
        if len(wire) != 3:
            wire = completed(WantKeys, wire)
        _, keys, spec_hashes = wire
        try:
            if not (type(keys) is list and (not keys or len(keys) == 1
                    and (type(x := keys[0]) is str and 0 < len(x) <= 1024))):
                keys = check_Keys(keys, buffers)
            if not (type(spec_hashes) is list and (not spec_hashes or len(spec_hashes) == 1
                    and (type(x := spec_hashes[0]) is bytes and len(x) == 16))):
                spec_hashes = check_Ids(spec_hashes, buffers)
        except (TypeError, ValueError):
            raise misplaced(WantKeys, wire, buffers) from None
        n = len(keys)
        if spec_hashes and len(spec_hashes) != n:
            raise wrong_length(WantKeys, "spec_hashes", spec_hashes, n)
        message = new(WantKeys)
        message.keys = keys
        message.spec_hashes = spec_hashes
        return message

The tests of `_FREQUENT` let the frequent values pass: empty columns and those of one row. Any other
value goes to its check in `columns`, which returns it or raises; so both ways accept the same
values. The names in the text come from our own classes, never from a peer.

A build writes the file, and `protocol/coders_file.py` where it is missing or not up to date: each
class compares the checksum of its text with its first message (`message.coders_of`), so functions
of other declarations are never used. Few processes need more than a third of the classes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from .columns import CHECKS, MAX_KEY_CHARS, MAX_NUMBER, MAX_SIZE, MAX_TEXT_CHARS

if TYPE_CHECKING:
    from .message import Message

_HEAD: Final = '''"""Encoders and decoders of messages, made by `generating.py`: not for editing."""

from __future__ import annotations

from typing import Any, Final

from .coding import FEW, SHORT_BYTES, any_long, beyond, completed, misplaced, wrong_length
from .columns import CHECKS
from .messages import (
'''


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


def module_of(classes: Iterable[type[Message]]) -> str:
    """Return the text of the module for these classes."""
    known = sorted(classes, key=lambda cls: cls.code)
    rows = [f"    {cls.code}: {_row(cls)},\n" for cls in known]
    return "".join(
        [
            _HEAD,
            *sorted(f"    {cls.__name__},\n" for cls in known),
            ")\n\nnew: Any = object.__new__\n",
            *[f'check_{kind} = CHECKS["{kind}"]\n' for kind in CHECKS],
            *["\n\n" + text_of(cls) for cls in known],
            "\n\n#: {code: (checksum of the text of the functions, to_wire, short_wire, decode)}\n",
            "CODERS: Final[dict[int, tuple[int, Any, Any, Any]]] = {\n",
            *rows,
            "}\n",
        ]
    )


def _row(cls: type[Message]) -> str:
    n = cls.code
    return f"({checksum_of(cls)}, to_wire_{n}, short_wire_{n}, decode_{n})"


def checksum_of(cls: type[Message]) -> int:
    """Return a number that changes with the functions of a class, and with what they use."""
    return zlib.crc32((_HEAD + text_of(cls)).encode())


def text_of(cls: type[Message]) -> str:
    """Return the text of the functions of one class."""
    kinds = {name: cls.__annotations__[name] for name in cls._names}
    return "\n".join([*_encoders(cls, kinds), *_decoder(cls, kinds), ""])


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
        f"def to_wire_{cls.code}(self: Any) -> list[Any]:",
        f"    return [{wire}]",
        "",
        "",
        f"def short_wire_{cls.code}(self: Any) -> list[Any] | None:",
        *([f"    if {' or '.join(tests)}:", "        return None"] if tests else []),
        f"    return [{wire}]",
        "",
        "",
    ]


def _decoder(cls: type[Message], kinds: dict[str, str]) -> list[str]:
    name = cls.__name__
    lines = [
        f"def decode_{cls.code}(wire: Any, buffers: Any) -> {name}:",
        f"    if len(wire) != {1 + len(kinds)}:",
        f"        wire = completed({name}, wire)",
    ]
    if kinds:
        lines += [f"    {', '.join(['_', *kinds])} = wire", "    try:"]
    for field, kind in kinds.items():
        test = _FREQUENT.get(kind)
        check = f"{field} = check_{kind}({field}, buffers)"
        if test:
            lines += [f"        if not ({test.format(field)}):", f"            {check}"]
        else:
            lines.append(f"        {check}")
    if kinds:
        lines += [
            "    except (TypeError, ValueError):",
            f"        raise misplaced({name}, wire, buffers) from None",
        ]
    for group in (cls.columns, *cls._tables):
        optional = [field for field in group if field in cls._optional_lists]
        tests = {field: f"len({field}) != n" for field in group[1:] if field not in optional}
        if group is cls.columns:
            optional += cls.optional_columns
        tests |= {field: f"{field} and len({field}) != n" for field in optional}
        if tests:
            lines.append(f"    n = len({group[0]})")
        for field, test in tests.items():
            lines += [
                f"    if {test}:",
                f'        raise wrong_length({name}, "{field}", {field}, n)',
            ]
    for index, table in cls._indexes:
        lines += [
            f"    if {index} and max({index}) >= len({table[0]}):",
            f'        raise beyond({name}, "{index}")',
        ]
    lines.append(f"    message: {name} = new({name})")
    lines += [f"    message.{field} = {field}" for field in kinds]
    lines.append("    return message")
    return lines
