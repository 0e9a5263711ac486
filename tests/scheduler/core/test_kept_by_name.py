"""Datasets and metadata, by events of the scheduler's core."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import graph
from tests.scheduler.callers import Caller
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import held as h
from weft.scheduler.core.held import datasets, metadata


def publish(caller: Caller, dataset: str, *keys: str, **more):
    return caller.call(h.DATASET, "publish", dataset=dataset, values=[b"v"], keys=[*keys], **more)


def test_a_dataset_keeps_its_futures_until_it_is_withdrawn(board, alice, bob):
    board.send(alice.peer, graph("a"))
    assert publish(alice, "d", "a") == {}
    board.send(alice.peer, m.ReleaseKeys(keys=["a"]), m.Bye(reason=""))
    board.close(alice.peer)
    assert bob.call(h.DATASET, "list") == {"names": ["d"]}
    assert bob.call(h.DATASET, "get", dataset="d") == [b"v"]
    assert bob.call(h.DATASET, "delete", names=["d"]) == {}
    assert board.states("a") == ["no_worker"]  # kept for the answer to `get`
    bob.call(h.DATASET, "list", acknowledged=[2])
    assert board.states("a") == ["-"]
    assert not board.state.held.records


def test_a_dataset_is_replaced_only_on_request(board, alice):
    publish(alice, "d")
    assert publish(alice, "d") == h.EXISTS
    assert publish(alice, "d", override="yes") == h.BAD_CALL
    assert publish(alice, "d", override=True) == {}
    assert alice.call(h.DATASET, "delete", names=["d", "e"]) == h.UNKNOWN_NAME
    assert alice.call(h.DATASET, "get", dataset="e") == h.UNKNOWN_NAME
    assert alice.call(h.DATASET, "get", dataset=5) == h.BAD_CALL
    assert alice.call(h.DATASET, "list") == {"names": ["d"]}


def test_the_number_of_datasets_is_limited(board, alice, monkeypatch):
    monkeypatch.setattr(datasets, "MAX_DATASETS", 1)
    publish(alice, "d")
    assert publish(alice, "e") == h.TOO_LARGE
    assert publish(alice, "d", override=True) == {}


def put(caller: Caller, path: object, value: object):
    return caller.call(h.METADATA, "set", path=path, value=value)


def test_metadata_is_a_tree_and_its_answers_are_copies(board, alice, bob):
    assert put(alice, ["a", "b"], [1]) == {}
    found = bob.call(h.METADATA, "get", path=["a"])
    assert found == {"found": True, "value": {"b": [1]}}
    found["value"]["b"].append(2)
    put(bob, ["a", "c"], {"d": "text"})
    assert alice.call(h.METADATA, "get", path=[])["value"] == {"a": {"b": [1], "c": {"d": "text"}}}
    put(bob, ["a", "b", "x"], 1)  # a list is replaced by what is below it
    put(bob, ["a", "c"], None)
    assert alice.call(h.METADATA, "get", path=["a"])["value"] == {"b": {"x": 1}, "c": None}
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
    assert not board.state.held.records


def test_the_size_of_metadata_is_limited(board, alice, monkeypatch):
    assert put(alice, ["a"], "x" * 70_000) == h.TOO_LARGE
    monkeypatch.setattr(metadata, "MAX_NBYTES", 1000)
    assert put(alice, ["a"], "x" * 800) == {}
    assert put(alice, ["b"], "x" * 800) == h.TOO_LARGE
    assert put(alice, ["a"], "y" * 800) == {}
