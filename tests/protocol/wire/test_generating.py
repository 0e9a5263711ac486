"""The generated functions do exactly what the loops of `reference` do, for every message class."""

from __future__ import annotations

import math
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.protocol.strategies import CLASSES, messages_of, schema_names
from weft.protocol.errors import RemoteProtocolError
from weft.protocol.wire.columns import CHECKS, MAX_ITEMS, MAX_KEY_CHARS, MAX_TEXT_CHARS
from weft.protocol.wire.generating import _FREQUENT
from weft.protocol.wire.message import Message, from_wire
from weft.protocol.wire.payload import Payload

from . import reference

BUFFERS = [bytearray(b"pickle"), bytearray(b"buffer 1"), bytearray(b"buffer 2")]

#: Values at which a check may decide wrongly: of another type, at a limit, or beyond it.
ODD: list[Any] = [
    None,
    True,
    False,
    -1,
    0,
    1,
    511,
    512,
    -513,
    2**63 - 1,
    2**63,
    1.0,
    math.nan,
    "",
    "x",
    "x" * MAX_KEY_CHARS,
    "x" * (MAX_KEY_CHARS + 1),
    b"",
    b"x",
    bytes(16),
    bytes(17),
    {},
    {"a": 1},
    {"a": "b"},
    {1: 2},
    [],
    [0, 1],
    [0, 3],
    [0, 4],
    [-1, 1],
    ["k"],
    ["kind", "key"],
]
ODD += [[value] for value in ODD] + [[value, value] for value in ODD]
ODD += ["x" * MAX_TEXT_CHARS, "x" * (MAX_TEXT_CHARS + 1), ["x" * (MAX_TEXT_CHARS + 1)]]
ODD += [[["k"]], [["k", ""]], [["k" * (MAX_KEY_CHARS + 1)]], [[[]]]]


def outcome(decode: Any, *arguments: Any) -> tuple[Any, ...]:
    """The message, or the text of the error."""
    try:
        message = decode(*arguments)
    except RemoteProtocolError as error:
        return (RemoteProtocolError, str(error))
    return (type(message), repr(message), message)


def assert_equal(cls: type[Message], wire: list[Any]) -> tuple[Any, ...]:
    expected = outcome(lambda w, b: reference.from_wire(cls, w, b), wire, BUFFERS)
    assert outcome(from_wire, wire, BUFFERS) == expected
    return expected


def on_wire(message: Message) -> list[Any]:
    """The message as it is received, with references for its payloads."""

    def default(value: object) -> Any:
        assert isinstance(value, Payload)
        return [0, 1]

    packed = msgpack.packb(reference.to_wire(message), default=default)
    wire: list[Any] = msgpack.unpackb(packed, strict_map_key=False)
    return wire


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=60)
@given(data=st.data())
def test_messages_are_encoded_and_decoded_as_by_the_reference(
    cls: type[Message], data: st.DataObject
) -> None:
    message = data.draw(messages_of(cls))
    assert message.to_wire() == reference.to_wire(message)
    assert message.short_wire() in (None, message.to_wire())
    wire = on_wire(message)
    assert assert_equal(cls, wire)[0] is cls
    names = schema_names(cls)
    # Too short, too long, and with other values in any field.
    for n in range(len(wire)):
        assert_equal(cls, wire[: n + 1])
    assert_equal(cls, [*wire, *data.draw(st.lists(st.sampled_from(ODD), max_size=3))])
    if names:
        mutated = list(wire)
        for _ in range(data.draw(st.integers(1, 3))):
            mutated[data.draw(st.integers(1, len(names)))] = data.draw(st.sampled_from(ODD))
        assert_equal(cls, mutated)
        # A column that is longer, shorter, or has another row.
        for i in range(1, len(wire)):
            if type(wire[i]) is list and wire[i]:
                for changed in (
                    wire[i][:-1],
                    wire[i] * 2,
                    [*wire[i][:-1], data.draw(st.sampled_from(ODD))],
                ):
                    assert_equal(cls, [*wire[:i], changed, *wire[i + 1 :]])


@pytest.mark.parametrize("kind", CHECKS)
def test_a_frequent_value_is_one_that_the_check_returns_unchanged(kind: str) -> None:
    test = _FREQUENT.get(kind, "False").format("value")
    n_frequent = 0
    for value in [*ODD, [0] * (MAX_ITEMS + 1)]:
        if eval(test, {"value": value}):
            n_frequent += 1
            assert CHECKS[kind](value, []) is value
    assert n_frequent or kind not in _FREQUENT


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_odd_value_in_every_field_has_the_same_outcome(cls: type[Message]) -> None:
    # Whether the other fields are valid as well does not matter: the first error counts.
    least = {"Number": 1, "Text": "", "Flag": True}
    maps: dict[str, Any] = {"Amounts": {}, "Facts": {}, "Info": {}}
    kinds = schema_names(cls)
    wire = [cls.code, *({**least, **maps}.get(kind, []) for kind in kinds.values())]
    assert assert_equal(cls, wire)[0] is cls
    for i in range(1, len(wire)):
        for value in ODD:
            assert_equal(cls, [*wire[:i], value, *wire[i + 1 :]])


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_a_short_message_has_few_rows_and_no_payload(cls: type[Message]) -> None:
    kinds = schema_names(cls)
    if not cls.columns:
        return
    long: dict[str, Any] = {
        "Keys": ["k"],
        "Texts": ["t"],
        "Ints": [0],
        "Sizes": [0],
        "Ids": [bytes(16)],
        "Blobs": [b""],
        "KeyLists": [[]],
        "Failures": [["kind", "key"]],
        "Options": [{}],
    }
    single = {"Number": 1, "Text": "", "Flag": True}
    maps: dict[str, Any] = {"Amounts": {}, "Facts": {}, "Info": {}}

    def make(n: int, **changes: Any) -> Message:
        fields = {name: long[kind] * n for name, kind in kinds.items() if kind in long}
        fields |= {n: {**single, **maps}[kind] for n, kind in kinds.items() if kind not in long}
        return cls(**{**fields, **changes})

    has_none = {"Failures", "Info"}.intersection(kinds.values())
    assert (make(1).short_wire() is None) == bool(has_none)
    assert make(100).short_wire() is None
    for name, kind in kinds.items():
        if kind == "Blobs":
            for blob in (bytes(1 << 16), Payload(b"", [])):
                assert make(1, **{name: [blob]}).short_wire() is None
        if kind == "KeyLists":
            assert make(1, **{name: [["k"] * 1000]}).short_wire() is None
