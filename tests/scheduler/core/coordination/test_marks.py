"""What clients have set, and state again to a scheduler that was started again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.plain import unpack
from weft.scheduler.core.coordination import marks
from weft.scheduler.core.coordination.kinds import KINDS as ALL_KINDS
from weft.scheduler.core.coordination.marks import marks_of
from weft.scheduler.core.coordination.values import values_of
from weft.scheduler.core.records.presence import Members

KINDS = [h.VARIABLE, h.EVENT, h.DATASET, h.METADATA]
#: So that earlier schedulers have given numbers.
LATE_EPOCH = 10**18


@pytest.fixture
def board() -> Board:
    board = Board(epoch=LATE_EPOCH)
    assert board.state.first_attempt > 1000
    return board


def arguments(kind: str, content: str) -> dict[str, Any]:
    """Return the arguments with which something is set; an event has no content."""
    return {
        h.VARIABLE: {"values": [content.encode()]},
        h.EVENT: {},
        h.DATASET: {"dataset": "d", "override": True, "values": [content.encode()]},
        h.METADATA: {"path": ["a"], "value": content},
    }[kind]


def test_each_kind_whose_content_is_stated_again_is_here() -> None:
    stated = [
        kind.name
        for kind in ALL_KINDS.values()
        if "restate" in kind.operations and kind.blockers is None  # no leases
    ]
    assert sorted(stated) == sorted(KINDS)


def put(caller: Caller, kind: str, content: str = "1") -> int:
    """Set something; return the number."""
    (number,) = numbers_of_put(caller, kind, content)
    return number


def numbers_of_put(
    caller: Caller, kind: str, content: str = "1", *, request: int = -1
) -> list[int]:
    """Set something, perhaps again; return the number, if the answer has one."""
    operation = "publish" if kind == h.DATASET else "set"
    answer = caller.call(kind, operation, request=request, **arguments(kind, content))
    assert isinstance(answer, dict)
    return caller.numbers()


def state_again(caller: Caller, kind: str, number: int, content: str = "1") -> Any:
    return caller.call(kind, "restate", number=number, **arguments(kind, content))


def delete(caller: Caller, kind: str) -> Any:
    return {
        h.VARIABLE: lambda: caller.call(kind, "delete"),
        h.EVENT: lambda: caller.call(kind, "clear"),
        h.DATASET: lambda: caller.call(kind, "delete", names=["d"]),
        h.METADATA: lambda: caller.call(kind, "delete", path=["a"]),
    }[kind]()


def content(caller: Caller, kind: str) -> str | None:
    """Return what is set; None = nothing."""
    if kind == h.EVENT:
        return "1" if caller.call(kind, "is_set")["set"] else None
    if kind == h.METADATA:
        found = metadata(caller, "a")
        return None if found is KeyError else str(found)
    if kind == h.VARIABLE:
        answer = caller.call(kind, "get", timeout=0)
    else:
        answer = caller.call(kind, "get", dataset="d")
    return answer[0].decode() if isinstance(answer, list) else None


def metadata(caller: Caller, *path: str) -> Any:
    answer = caller.call(h.METADATA, "get", path=[*path])
    return unpack(answer[0]) if isinstance(answer, list) else KeyError


@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_has_a_number_and_a_later_one_has_a_larger_one(board, alice, bob, kind):
    first = put(alice, kind)
    assert first > board.state.first_attempt
    assert put(alice, kind) > first
    assert alice.superseded() == [first]  # in the same answer


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_is_sent_that_another_one_has_set_or_deleted_what_it_had_set(
    board, alice, bob, kind
):
    first = put(alice, kind)
    second = put(bob, kind)
    assert alice.superseded() == [first]
    assert bob.superseded() == []
    delete(alice, kind)
    assert bob.superseded() == [second]
    assert marks_of(board.state).set == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_is_back_is_sent_which_of_its_settings_do_not_hold_any_more(
    board, alice, bob, kind
):
    first, other = put(alice, kind), put(alice, h.EVENT if kind != h.EVENT else h.VARIABLE)
    board.close(alice.peer)
    put(bob, kind)
    alice = Caller(board, "alice")
    arguments = {"pending": [], "set": [first, other, "?"]}
    board.send(alice.peer, m.Operate(request=0, operation=h.RESUME, arguments=arguments))
    assert alice.superseded() == [first]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [put, delete])
def test_an_answer_that_is_sent_again_has_no_number_of_a_setting_that_does_not_hold_any_more(
    board, alice, bob, kind, change
):
    first = numbers_of_put(alice, kind, request=7)
    board.close(alice.peer)  # before the client has read the answer
    alice = Caller(board, "alice")
    assert numbers_of_put(alice, kind, request=7) == first
    board.close(alice.peer)
    change(bob, kind)
    alice = Caller(board, "alice")
    arguments = {"pending": [7]}  # it does not know the number
    board.send(alice.peer, m.Operate(request=0, operation=h.RESUME, arguments=arguments))
    assert numbers_of_put(alice, kind, request=7) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_setting_that_is_stated_again_is_there(board, alice, bob, kind):
    assert content(bob, kind) is None
    assert state_again(alice, kind, 5) == {}
    assert content(bob, kind) == "1"
    assert put(bob, kind)
    assert alice.superseded() == [5]


@pytest.mark.parametrize("kind", [h.VARIABLE, h.DATASET, h.METADATA])
@pytest.mark.parametrize("order", [(5, 6), (6, 5)])
def test_of_two_that_are_stated_again_the_later_one_counts(board, alice, bob, kind, order):
    callers = {5: alice, 6: bob}
    for number in order:
        state_again(callers[number], kind, number, f"{number}")
    assert content(alice, kind) == "6"
    assert list(marks_of(board.state).set) == [6]
    assert board.rest() == (["Operated"] if order == (5, 6) else [])


@pytest.mark.parametrize("kind", KINDS)
def test_the_one_that_counts_less_is_forgotten_by_its_client(board, alice, bob, kind):
    state_again(alice, kind, 5)
    state_again(bob, kind, 6)
    assert alice.superseded() == [5]
    state_again(alice, kind, 4)
    assert alice.superseded() == [4]


@pytest.mark.parametrize("kind", [h.VARIABLE, h.DATASET, h.METADATA])
def test_a_setting_at_the_new_scheduler_counts_before_those_that_are_stated_again(
    board, alice, bob, kind
):
    put(bob, kind, "new")
    state_again(alice, kind, 5, "old")
    assert content(alice, kind) == "new"


@pytest.mark.parametrize("kind", KINDS)
def test_things_that_were_deleted_at_the_new_scheduler_do_not_come_back(board, alice, bob, kind):
    put(bob, kind)
    delete(bob, kind)
    state_again(alice, kind, 5)
    assert alice.superseded() == [5]
    assert content(alice, kind) is None


def test_deleted_places_are_remembered_up_to_a_limit(board, alice, monkeypatch):
    monkeypatch.setattr(marks, "MAX_DELETED", 3)
    for i in range(10):
        alice.call(h.EVENT, "clear", f"{i}")
        alice.call(h.METADATA, "set", path=["a", f"{i}", "b"], value=1)
        alice.call(h.METADATA, "delete", path=["a", f"{i}"])
    assert len(marks_of(board.state).deleted) == 3
    alice.call(h.METADATA, "set", path=["a", "9", "c"], value=1)
    for i in range(10):
        alice.call(h.EVENT, "clear", f"{i}")
    assert [*marks_of(board.state).set.values()] == [(h.METADATA, "a", "9", "c")]


@pytest.mark.parametrize("number", [None, 0, -1, "5", True, 5.0, 1 << 62])
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_no_earlier_scheduler_has_given_is_refused(board, alice, kind, number):
    assert state_again(alice, kind, number) == h.BAD_CALL
    assert content(alice, kind) is None
    assert board.refused() == []


def test_a_number_that_stands_for_something_else_is_refused(board, alice, bob):
    assert state_again(alice, h.EVENT, 5) == {}
    assert state_again(bob, h.VARIABLE, 5) == h.BAD_CALL
    assert content(alice, h.VARIABLE) is None


# --- Metadata -------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(5, 6, 7), (7, 6, 5), (6, 5, 7), (7, 5, 6)])
def test_paths_of_metadata_are_as_they_were_in_whatever_order_they_are_stated(
    board, alice, bob, order
):
    settings = {
        5: (["a"], {"x": 1, "y": {"old": 0}}),
        6: (["a", "y"], {"z": 2}),
        7: (["a", "y", "w"], 3),
    }
    for number, caller in zip(order, (alice, bob, alice), strict=True):
        path, value = settings[number]
        caller.call(h.METADATA, "restate", number=number, path=path, value=value)
    assert metadata(alice) == {"a": {"x": 1, "y": {"z": 2, "w": 3}}}
    assert sorted(marks_of(board.state).set) == [5, 6, 7]


def test_a_setting_of_metadata_replaces_what_was_set_below_it_before(board, alice, bob):
    below = {n: put_at(alice, ["a", n]) for n in "xy"}
    other = put_at(bob, ["a", "x", "z"])
    assert alice.superseded() == []
    put_at(bob, ["a"])
    assert sorted(alice.superseded()) == sorted(below.values())
    assert bob.superseded() == [other]
    bob.call(h.METADATA, "restate", number=3, path=["a", "x"], value="old")
    assert bob.superseded() == [3]
    assert metadata(bob) == {"a": 1}


def put_at(caller: Caller, path: list[str]) -> int:
    caller.call(h.METADATA, "set", path=path, value=1)
    return caller.numbers()[0]


def test_deleted_metadata_stays_deleted_below_what_is_stated_again(board, alice, bob):
    put_at(bob, ["a", "x"])
    bob.call(h.METADATA, "delete", path=["a", "x"])
    alice.call(h.METADATA, "restate", number=5, path=["a"], value={"x": "old", "y": 2})
    assert metadata(alice) == {"a": {"y": 2}}
    bob.call(h.METADATA, "delete", path=[])
    assert alice.superseded() == [5]
    alice.call(h.METADATA, "restate", number=6, path=["b"], value=1)
    assert metadata(alice) == {}


# --- Recovery -------------------------------------------------------------------------------------


def test_those_that_read_wait_until_all_that_set_could_be_back():
    board = Board(epoch=LATE_EPOCH, expected=Members((), ("alice", "bob")))
    bob = Caller(board, "bob", last_epoch=1)
    for kind, operation, more in (
        (h.VARIABLE, "get", {"timeout": 0}),
        (h.EVENT, "is_set", {}),
        (h.EVENT, "wait", {"timeout": 0}),
        (h.DATASET, "get", {"dataset": "d"}),
        (h.DATASET, "list", {}),
        (h.METADATA, "get", {"path": ["a"]}),
        (h.METADATA, "delete", {"path": ["a"]}),
        (h.DATASET, "publish", {"dataset": "d", "values": [b"2"]}),
        (h.DATASET, "delete", {"names": ["d"]}),
    ):
        assert bob.call(kind, operation, **more) is None
    board.send(bob.peer, m.Resubmitted())
    alice = Caller(board, "alice", last_epoch=1)
    for number, kind in enumerate(KINDS, 1):
        assert state_again(alice, kind, number) is None
    board.send(alice.peer, m.Resubmitted())
    board.tick(10)
    assert not board.state.awaits_peers
    assert list(alice.answers().values()) == [{}] * len(KINDS)
    got = bob.answers()
    (names,) = got.pop(5)
    assert unpack(names) == ["d"]
    (found,) = got.pop(6)
    assert unpack(found) == "1"
    assert list(got.values()) == [
        [b"1"],
        {"set": True},
        {"set": True},
        [b"1"],
        {"found": True},
        h.EXISTS,
        {},
    ]
    assert board.rest() == ["Recovered", "Recovered"]


def recovering_with_a_dataset() -> tuple[Board, Caller]:
    """Return a board on which a dataset is stated whose future no client has."""
    board = Board(epoch=LATE_EPOCH, expected=Members(("id of w",), ("alice",)))
    alice = Caller(board, "alice", last_epoch=1)
    arguments = {"number": 5, "dataset": "d", "values": [b"future"], "keys": ["a"]}
    assert alice.call(h.DATASET, "restate", **arguments) is None
    board.send(alice.peer, m.Resubmitted())
    return board, alice


def test_a_dataset_is_there_again_with_the_result_that_only_a_worker_has_kept():
    board, alice = recovering_with_a_dataset()
    board.come_back("w", last_epoch=1, kept={"a": 3})
    board.tick(10)
    assert not board.state.awaits_peers
    assert alice.answers() == {1: {}}
    assert [task.key for task in values_of(board.state).keeper.wants] == ["a"]
    assert board.states("a") == ["memory"]
    assert board.rest() == ["Recovered"]


def test_a_dataset_is_lost_if_nobody_is_back_with_its_future():
    board, alice = recovering_with_a_dataset()
    board.tick(100)
    assert not board.state.awaits_peers
    assert alice.answers() == {1: h.KEY_LOST}
    assert board.states("a") == ["-"]
    assert alice.call(h.DATASET, "get", dataset="d") == h.UNKNOWN_NAME
    assert board.rest() == ["Recovered"]


def test_a_setting_whose_future_nobody_knows_after_the_recovery_is_refused(board, alice):
    board.send(alice.peer, graph("a"))
    answer = alice.call(h.VARIABLE, "restate", number=5, values=[b"future"], keys=["b"])
    assert answer == h.KEY_LOST
    assert content(alice, h.VARIABLE) is None
