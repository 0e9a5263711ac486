"""Datasets and metadata, by events of the scheduler's core."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import graph
from tests.scheduler.callers import Caller
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.plain import unpack
from weft.scheduler.core.coordination import datasets, metadata
from weft.scheduler.core.coordination.records import objects_of


def publish(caller: Caller, dataset: str, *keys: str, **more):
    return caller.call(h.DATASET, "publish", dataset=dataset, values=[b"v"], keys=[*keys], **more)


def names(caller: Caller) -> list[str]:
    (blob,) = caller.call(h.DATASET, "list")
    found: list[str] = unpack(blob)
    return found


def test_a_dataset_keeps_its_futures_until_it_is_withdrawn(board, alice, bob):
    board.send(alice.peer, graph("a"))
    assert publish(alice, "d", "a") == {}
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]), m.Bye(reason=""))
    board.close(alice.peer)
    assert names(bob) == ["d"]
    assert bob.call(h.DATASET, "get", dataset="d") == [b"v"]
    assert bob.call(h.DATASET, "delete", names=["d"]) == {}
    assert board.states("a") == ["no_worker"]  # kept for the answer to `get`
    bob.call(h.DATASET, "list", acknowledged=[2])
    assert board.states("a") == ["-"]
    assert not objects_of(board.state).records


def test_a_dataset_is_replaced_only_on_request(board, alice):
    publish(alice, "d")
    assert publish(alice, "d") == h.EXISTS
    assert publish(alice, "d", override="yes") == h.BAD_CALL
    assert publish(alice, "d", override=True) == {}
    assert alice.call(h.DATASET, "delete", names=["d", "e"]) == h.UNKNOWN_NAME
    assert alice.call(h.DATASET, "get", dataset="e") == h.UNKNOWN_NAME
    assert alice.call(h.DATASET, "get", dataset=5) == h.BAD_CALL
    assert names(alice) == ["d"]


def test_the_number_of_datasets_is_limited(board, alice, monkeypatch):
    monkeypatch.setattr(datasets, "MAX_DATASETS", 1)
    publish(alice, "d")
    assert publish(alice, "e") == h.TOO_LARGE
    assert publish(alice, "d", override=True) == {}


def put(caller: Caller, path: object, value: object):
    return caller.call(h.METADATA, "set", path=path, value=value)


def look(caller: Caller, *path: str):
    (blob,) = caller.call(h.METADATA, "get", path=[*path])
    return unpack(blob)


def delete(caller: Caller, *path: str):
    return caller.call(h.METADATA, "delete", path=[*path])


def test_metadata_is_a_tree(board, alice, bob):
    assert put(alice, ["a", "b"], [1]) == {}
    assert look(bob, "a") == {"b": [1]}
    put(bob, ["a", "c"], {"d": "text"})
    assert look(alice) == {"a": {"b": [1], "c": {"d": "text"}}}
    put(bob, ["a", "b", "x"], 1)  # a list is replaced by what is below it
    put(bob, ["a", "c"], None)
    assert look(alice, "a") == {"b": {"x": 1}, "c": None}
    assert alice.call(h.METADATA, "get", path=["a", "b", "y"]) == {"found": False}
    assert alice.call(h.METADATA, "get", path=["a", "b", "x", "y"]) == {"found": False}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ([], 1),
        ("a", 1),
        ([1], 1),
        (["a"] * 40, 1),
        (["a" * 2000], 1),
        (["a"], {1: 2}),
        (["a"], [[[[[[]]]]]] * 2 + [eval("[" * 40 + "]" * 40)]),
    ],
)
def test_wrong_metadata_is_refused(board, alice, path, value):
    assert put(alice, path, value) == h.BAD_CALL
    assert not objects_of(board.state).records


def test_the_size_of_metadata_is_limited(board, alice, monkeypatch):
    assert put(alice, ["a"], "x" * 70_000) == h.TOO_LARGE
    monkeypatch.setattr(metadata, "MAX_NBYTES", 1000)
    assert put(alice, ["a"], "x" * 800) == {}
    assert put(alice, ["b"], "x" * 800) == h.TOO_LARGE
    assert put(alice, ["a"], "y" * 800) == {}


def test_deleted_metadata_makes_room(board, alice, monkeypatch):
    monkeypatch.setattr(metadata, "MAX_NBYTES", 1000)
    put(alice, ["a", "b"], "x" * 400)
    put(alice, ["a", "c"], "x" * 300)
    assert put(alice, ["d"], "x" * 200) == h.TOO_LARGE
    assert delete(alice, "a", "b") == {"found": True}
    assert put(alice, ["d"], "x" * 200) == {}
    assert look(alice) == {"a": {"c": "x" * 300}, "d": "x" * 200}
    for path in (["a", "b"], ["x"], ["d", "y"], ["a", "c", "z"]):
        assert delete(alice, *path) == {"found": False}
    assert delete(alice, "a") == {"found": True}
    assert delete(alice, *["a"] * 40) == h.BAD_CALL
    assert look(alice) == {"d": "x" * 200}
    assert delete(alice) == {"found": True}
    assert not objects_of(board.state).records
    assert delete(alice) == {"found": True}


def test_an_answer_that_is_kept_does_not_keep_the_metadata_once_more(board, alice):
    put(alice, ["a"], 1)
    (calls,) = objects_of(board.state).calls.values()
    ((call, _reply),) = calls.answered.values()
    assert not call.arguments
