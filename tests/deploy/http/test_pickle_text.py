"""Arguments as text, read from their pickle without unpickling it."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from collections import OrderedDict
from dataclasses import dataclass

import pytest

from weft.deploy.http import pickle_text
from weft.deploy.http.pickle_text import MAX_CHARS, arguments_text
from weft.protocol.values.serialize import dumps_arguments


@dataclass
class Point:
    x: int
    y: int


def text(*args, inputs=(), **kwargs):
    blob, _ = dumps_arguments("f", args, kwargs)
    assert isinstance(blob, bytes)
    return arguments_text(blob, inputs)


@pytest.mark.parametrize(
    "args",
    [
        (),
        (1,),
        (-(10**30), 1.5, True, None, "a'b", b"x", 2**40),
        ([1, [2, (3,)]], {"a": {"b": ()}}, {1}, ((), [], {})),
    ],
)
def test_plain_values_are_written_as_python_writes_them(args):
    assert text(*args) == repr(args).replace(",)", ")") if len(args) == 1 else repr(args)


def test_named_arguments_have_their_names():
    assert text(1, "x", where="there", n=[2]) == "(1, 'x', where='there', n=[2])"


def test_objects_are_written_by_the_names_of_their_classes():
    assert text(len) == "(len)"
    assert text(OrderedDict(a=1)) == "(OrderedDict('a', 1))"
    assert text(dt.date(2020, 1, 2)).startswith("(date(b'")
    assert text(Point(1, 2)) == "(Point(…))"


def test_nothing_is_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return open, (str(tmp_path / "made"), "w")

    blob = pickle.dumps((Evil(), 1))
    assert arguments_text(blob, []) == f"(open('{tmp_path / 'made'}', 'w'), 1)"
    assert not (tmp_path / "made").exists()


def test_long_values_are_cut():
    assert text("a" * 1000) == f"('{'a' * 120}'…)"
    assert text(list(range(1000))).endswith("18, 19, …])")
    assert text(1 << 10_000) == "(<int of 10001 bits>)"
    assert len(text(*[["a" * 100] * 20] * 19)) <= MAX_CHARS
    deep = []
    for _ in range(50):
        deep = [deep]
    assert text(deep) == f"({'[' * 6}…{']' * 6})"


def test_values_that_are_in_themselves_or_in_others_many_times_are_written_in_bounded_time():
    many = ["x"]
    for _ in range(40):
        many = [many] * 20
    looped: list[object] = []
    looped.append(looped)
    assert len(text(many)) <= MAX_CHARS
    assert "…" in text(looped)


def test_inputs_are_named():
    assert arguments_text(pickle.dumps((1,)), ["a", "b"]) == "(1)\nreads a, b"
    many = [f"k{i}" for i in range(50)]
    assert arguments_text(pickle.dumps(()), many).endswith("k19 …")


@pytest.mark.parametrize("blob", [b"", b"x", b"\x80", b"\x80\x05.", b"(" * 1000, b"0" * 100])
def test_bytes_that_are_no_pickle_are_no_error(blob):
    assert arguments_text(blob, []).startswith("(")


def test_every_beginning_and_every_changed_pickle_is_read():
    whole = dumps_arguments("f", (1, "a", [2, {"b": Point(1, 2)}], {3}, 2**70), {"k": (None,)})[0]
    assert isinstance(whole, bytes)
    rng = random.Random(7)
    for end in range(len(whole)):
        assert len(arguments_text(whole[:end], [])) <= MAX_CHARS
    for _ in range(2000):
        changed = bytearray(whole)
        changed[rng.randrange(len(changed))] = rng.randrange(256)
        assert len(arguments_text(bytes(changed), [])) <= MAX_CHARS


def test_few_instructions_are_read(monkeypatch):
    monkeypatch.setattr(pickle_text, "MAX_STEPS", 5)
    assert arguments_text(pickle.dumps(tuple(range(100))), []).endswith("…)")
