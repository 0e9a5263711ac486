"""Hypothesis strategies that build any message from the schema names of its fields."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from weft.protocol.wire import message as schema
from weft.protocol.wire import messages as _every_message  # noqa: F401 - registers them
from weft.protocol.wire.message import Message
from weft.protocol.wire.payload import Payload

CLASSES: list[type[Message]] = list(schema._REGISTRY.values())

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_keys = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
_numbers = st.integers(0, 2**63 - 1)
_bytes = st.binary(max_size=40)
_payloads = st.builds(
    Payload, _bytes, st.lists(st.one_of(_bytes, _bytes.map(bytearray)), max_size=3)
)
_plain = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, st.floats(allow_nan=False), _texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_texts, inner, max_size=3)
    ),
    max_leaves=6,
)

#: One row of a column.
_rows: dict[str, st.SearchStrategy[Any]] = {
    "Keys": _keys,
    "Texts": _texts,
    "Ints": _numbers,
    "Sizes": st.integers(0, 2**48),
    "Ids": st.binary(min_size=16, max_size=16),
    "Blobs": st.one_of(st.none(), _bytes, _payloads),
    "KeyLists": st.lists(_keys, max_size=3),
    "Failures": st.builds(
        lambda kind, key, rest: [kind, key, *rest],
        _texts,
        _keys,
        st.lists(st.one_of(st.none(), _texts, _bytes, _numbers), max_size=4),
    ),
    "Options": st.fixed_dictionaries(
        {},
        optional={
            "priority": st.integers(-9999, 9999),
            "retries": _numbers,
            "workers": st.lists(_texts, max_size=2),
            "allow_other_workers": st.booleans(),
            "resources": st.dictionaries(_texts, st.floats(0, 1e300), max_size=2),
            "delivered": st.booleans(),
            "span": st.lists(st.text(min_size=1, max_size=100), max_size=3),
        },
    ),
}
#: A whole field that is no column.
_values: dict[str, st.SearchStrategy[Any]] = {
    "Number": _numbers,
    "Text": _texts,
    "Flag": st.booleans(),
    "Amounts": st.dictionaries(_texts, st.floats(0, 1e300), max_size=3),
    "Facts": st.dictionaries(_texts, _plain, max_size=3),
    "Info": st.dictionaries(_texts, _plain, max_size=3),
}


def schema_names(cls: type[Message]) -> dict[str, str]:
    """Field name -> schema name."""
    return {name: cls.__annotations__[name] for name in cls._names}


@st.composite
def messages_of(draw: st.DrawFn, cls: type[Message]) -> Message:
    """Any message of this class."""
    sizes = {name: draw(st.integers(0, 4)) for name in schema_names(cls)}
    for table in cls._tables:
        sizes |= dict.fromkeys(table, draw(st.integers(0, 4)))
    # Rows that point into an empty table cannot be.
    most = 4 if all(sizes[table[0]] for _, table in cls._indexes) else 0
    n_rows = draw(st.integers(0, most))
    sizes |= dict.fromkeys(cls.columns, n_rows)
    sizes |= {name: draw(st.sampled_from([0, n_rows])) for name in cls.optional_columns}
    fields = {}
    for name, kind in schema_names(cls).items():
        if kind in _values:
            fields[name] = draw(_values[kind])
            continue
        row = _rows[kind]
        for index, table in cls._indexes:
            if name == index and n_rows:
                row = st.integers(0, sizes[table[0]] - 1)
        fields[name] = draw(st.lists(row, min_size=sizes[name], max_size=sizes[name]))
    return cls(**fields)


any_message = st.sampled_from(CLASSES).flatmap(messages_of)
