"""The question which groups of workers may leave together, and why others may not."""

from __future__ import annotations

from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role

from ...builders import Board, graph


def ask(board: Board, peer: int, **arguments: Any) -> Any:
    question = m.Ask(request=1, name="leaving_losses", arguments=arguments)
    (answer,) = board.send(peer, question)[peer]
    return answer


def may_leave(board: Board, client: int, n: int, *groups: list[str]) -> tuple[list[int], list[Any]]:
    info = ask(board, client, groups=[*groups], n=n).info
    assert not any(ws.is_leaving for ws in board.state.workers.values())
    return info["leaving"], info["kept"]


def holding(**limits: int) -> tuple[Board, int]:
    """Make workers a, b, ..., each with a needed result of 1000 bytes, and with a memory limit."""
    board = Board()
    client = board.client()
    for name, limit in limits.items():
        worker = board.worker(name, memory_limit=limit)
        key = f"of-{name}"
        board.send(client, graph(key, workers=[name]), m.WantKeys(keys=[key]))
        board.finish(worker, key, blob=None, nbytes=1000)
    return board, client


def test_all_but_one_leave_if_that_has_room_and_all_is_kept_if_none_stays():
    board, client = holding(a=0, b=0, c=0)
    leaving, kept = may_leave(board, client, 3, ["a"], ["b"], ["c"])
    assert leaving == [0, 1]
    ((i, reason),) = kept
    assert i == 2
    assert "no other worker stays" in reason
    assert may_leave(board, client, 1, ["c"], ["a"]) == ([0], [])


def test_workers_of_a_group_leave_together_or_not_at_all():
    board, client = holding(a=0, b=0, c=0)
    leaving, kept = may_leave(board, client, 2, ["a", "b", "c"], ["b", "a"])
    assert leaving == [1]
    assert [i for i, _ in kept] == [0]
    assert "they have the only copies of 3 results" in kept[0][1]


def test_the_room_is_shared_by_all_that_leave():
    board, client = holding(a=10_000, b=10_000, c=3500)
    # 80 % of 3500 bytes, of which 1000 are in use
    leaving, kept = may_leave(board, client, 2, ["a"], ["b"])
    assert leaving == [0]
    assert "have no room" in kept[0][1]
    board.send(client, m.ReleaseKeys(keys=["of-a"]))
    assert may_leave(board, client, 2, ["a"], ["b"]) == ([0, 1], [])


def test_a_copy_at_another_worker_of_the_same_order_does_not_count():
    board, client = holding(a=0, b=0)
    attempt = board.attempt("of-a")
    two = next(ws.peer for ws in board.state.workers.values() if ws.name == "b")
    board.send(two, m.ReplicasAdded(attempts=[attempt], keys=["of-a"]))
    board.send(client, m.ReleaseKeys(keys=["of-b"]))
    leaving, kept = may_leave(board, client, 2, ["a"], ["b"])
    assert leaving == [0]
    assert "only copy of 1 result" in kept[0][1]


def test_groups_of_workers_that_are_not_there_leave():
    board, client = holding(a=0)
    assert may_leave(board, client, 3, ["gone"], []) == ([0, 1], [])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"groups": "a", "n": 1}, "groups= is a list"),
        ({"groups": [["a"]], "n": -1}, "n= is a whole number"),
        ({"groups": ["a"], "n": 1}, "a group is a list"),
        ({"groups": [[1]], "n": 1}, "a group is a list"),
        ({"groups": [[]] * 1001, "n": 1}, "at most 1000 lists"),
        ({"groups": [["a"] * 600, ["a"] * 600], "n": 2}, "at most 1000 names"),
    ],
)
def test_a_wrong_question_fails(arguments, text):
    board, client = holding(a=0, b=0)
    answer = ask(board, client, **arguments)
    assert isinstance(answer, m.AskFailed)
    assert text in answer.text


def test_a_viewer_may_not_ask():
    board, _ = holding(a=0)
    viewer = board.connect(Role.VIEWER)
    assert isinstance(ask(board, viewer, groups=[], n=0), m.Denied)
    shell = board.connect(Role.VIEWER, Level.CLIENT)
    assert isinstance(ask(board, shell, groups=[], n=0), m.Answer)
