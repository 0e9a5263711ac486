"""Parts of values: what is split and put together again is what it was, wherever it lies."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.errors import RemoteProtocolError
from weft.protocol.values.frame_parts import FrameParts, join_frames, split_frame
from weft.protocol.values.parts import (
    TO_THE_END,
    Taken,
    fetch_parts_here,
    index_of_parts,
    read_parts,
    take_parts,
)
from weft.protocol.values.serialize import loads
from weft.protocol.wire.part_index import PartIndex, as_value, read_index

PART = "_partitions"


def column(kind: str, numbers: np.ndarray) -> Any:
    if kind == "text":
        return pd.array([f"v{i}" if i % 5 else None for i in numbers], dtype="str")
    if kind == "category":
        return pd.Categorical([f"c{i % 3}" for i in numbers], categories=["c0", "c1", "c2"])
    if kind == "nullable":
        return pd.array([int(i) if i % 4 else None for i in numbers], dtype="Int64")
    if kind == "time":
        return pd.Timestamp("2020-01-01") + pd.to_timedelta(numbers, unit="s")
    if kind == "zone":
        return (pd.Timestamp("2020-01-01") + pd.to_timedelta(numbers, unit="s")).tz_localize("UTC")
    if kind == "object":
        return np.array([(int(i),) for i in numbers] + [None], dtype=object)[:-1]
    return numbers.astype(kind)


KINDS = ["int64", "float32", "bool", "text", "category", "nullable", "time", "zone", "object"]


@st.composite
def several_frames(draw: st.DrawFn) -> tuple[list[pd.DataFrame], int]:
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=4))
    n_parts = draw(st.integers(1, 6))
    index = draw(st.sampled_from(["range", "int64", "text", "time"]))
    frames = []
    for _ in range(draw(st.integers(1, 5))):
        numbers = draw(st.lists(st.integers(0, 50), max_size=12))
        array = np.array(numbers, dtype=np.int64)
        data = {f"{i} {kind}": column(kind, array) for i, kind in enumerate(kinds)}
        frame = pd.DataFrame({**data, PART: array % n_parts})
        if index != "range":
            frame.index = pd.Index(column(index, array), name="i")
        frames.append(frame)
    return frames, n_parts


@given(case=several_frames(), data=st.data())
def test_parts_of_frames_are_their_rows_in_order(
    case: tuple[list[pd.DataFrame], int], data: st.DataObject
) -> None:
    frames, n_parts = case
    values = [split_frame(frame, PART, n_parts, False) for frame in frames]
    # Each value lies at one of some holders, which join what they have and send it.
    holders: dict[int, list[int]] = {}
    for place in range(len(values)):
        holders.setdefault(data.draw(st.integers(0, 2)), []).append(place)
    for part in range(n_parts):
        taken = []
        for places in holders.values():
            joined = take_parts([values[place] for place in places], [part], 0)
            taken.append(Taken(places, pickle.loads(pickle.dumps(joined))))
        found = join_frames(taken, frames[0].iloc[:0], False)
        expected = pd.concat([frame[frame[PART] == part] for frame in frames])
        pd.testing.assert_frame_equal(found, expected)


def test_columns_whose_types_differ_are_joined_as_pandas_does() -> None:
    first = pd.DataFrame({"x": [1, 2], "c": pd.Categorical(["a", "b"]), PART: [0, 0]})
    second = pd.DataFrame({"x": [0.5], "c": pd.Categorical(["z"]), PART: [0]})
    values = [split_frame(frame, PART, 1, True) for frame in (first, second)]
    found = join_frames(read_parts(index_of_parts(values), [0]), first.iloc[:0], True)
    assert list(found["x"]) == [1.0, 2.0, 0.5]
    assert list(found["c"]) == ["a", "b", "z"]


def test_numbers_of_parts_are_taken_modulo() -> None:
    frame = pd.DataFrame({"x": range(6), PART: [0, 1, 2, 3, 4, 5]})
    value = split_frame(frame, PART, 2, True)
    assert len(value) == 2
    found = join_frames(read_parts([value], [1]), frame.iloc[:0], True)
    assert list(found["x"]) == [1, 3, 5]


def test_a_value_knows_its_size_without_being_pickled() -> None:
    frame = pd.DataFrame({"x": np.zeros(1000), PART: np.zeros(1000, np.int64)})
    assert 16_000 <= split_frame(frame, PART, 2, True).__sizeof__() < 20_000


@given(
    shape=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    bounds=st.tuples(*[st.integers(0, 5)] * 4),
)
def test_a_part_of_an_array_is_a_box(
    shape: tuple[int, int], bounds: tuple[int, int, int, int]
) -> None:
    array = np.arange(shape[0] * shape[1]).reshape(shape)
    a, b, c, d = bounds
    if not (a <= b <= shape[0] and c <= d <= shape[1]):
        with pytest.raises(IndexError, match="has no box"):
            read_parts([array, None], bounds, places=[0], n_numbers=4)
        return
    (one,) = read_parts([array, None], bounds, places=[0], n_numbers=4)
    assert one.places == [0]
    np.testing.assert_array_equal(one.parts[0], array[a:b, c:d])
    (all_,) = read_parts([array], [0, TO_THE_END, 0, TO_THE_END], n_numbers=4)
    np.testing.assert_array_equal(all_.parts[0], array)


def test_a_part_of_a_list_or_dict_is_an_item() -> None:
    (taken,) = read_parts([["a", "b"], {1: "c"}], [1])
    assert taken.parts == ["b", "c"]


def test_an_index_is_read_by_what_the_thread_has_for_that() -> None:
    index = PartIndex(["x", "y"], [3, 4], [[0], [0, 1]], ["tcp://a", "tcp://b"])
    value = loads(as_value(index))
    asked = []

    def fetch(*args: Any) -> list[Taken]:
        asked.append(args)
        return [Taken([0, 1], "parts")]

    with pytest.raises(RuntimeError, match="only in tasks"):
        read_parts(value, [7])
    fetch_parts_here(fetch)
    try:
        assert read_parts(value, [7]) == [Taken([0, 1], "parts")]
        read_parts(value, [7, 8], places=[1], n_numbers=2)
    finally:
        fetch_parts_here(None)
    (found, places, numbers, n_numbers), second = asked
    assert [list(column) for column in found] == [list(column) for column in index]
    assert (list(places), numbers, n_numbers) == ([0, 1], [7], 0)
    assert (second[1], second[2], second[3]) == ([1], [7, 8], 2)


@pytest.mark.parametrize("n", [0, 1, 3000])
def test_an_index_of_any_size_comes_as_it_was(n: int) -> None:
    index = PartIndex([f"key {i}" for i in range(n)], list(range(n)), [[0]] * n, ["tcp://a"])
    found = read_index(loads(as_value(index)))
    assert found is not None
    assert [list(column) for column in found] == [list(column) for column in index]


def test_other_values_are_no_index_and_a_broken_one_is_an_error() -> None:
    assert read_index(b"bytes") is None
    assert read_index([1, 2]) is None
    data = loads(as_value(PartIndex(["x"], [], [], [])))
    with pytest.raises(RemoteProtocolError, match="different lengths"):
        read_index(data)
    with pytest.raises(RemoteProtocolError, match="broken"):
        read_index(data[:-1])


def test_other_classes_than_frames_join_their_own_parts() -> None:
    class Several(FrameParts):
        @classmethod
        def __weft_parts__(cls, values: Any, part: int) -> Any:
            return [(value.offsets, part) for value in values]

    assert take_parts([Several([], 1), Several([], 2)], [5], 0) == [(1, 5), (2, 5)]


def test_a_reader_asks_the_holder_that_has_failed_the_longest_time_ago():
    index = PartIndex(["a"], [1], [[1, 0]], ["x", "y"])
    assert index.holder_of(0, {}) == "y"
    assert index.holder_of(0, {"z": 1.0}) == "y"
    assert index.holder_of(0, {"y": 1.0}) == "x"
    assert index.holder_of(0, {"y": 1.0, "x": 2.0}) == "y"
