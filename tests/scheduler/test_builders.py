"""The kit for the tests of the scheduler's core notices what a test has not looked at."""

from __future__ import annotations

from tests.scheduler.builders import Board, assigned, dropped, graph


def test_the_rest_is_what_went_out_beside_the_messages_that_were_looked_at() -> None:
    board = Board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    out = board.finish(worker, "a")
    assert board.rest() == []  # nothing was looked at
    assert dropped(out, worker) == []
    assert board.rest() == ["ResultsReady"]
    assert board.rest() == []


def test_messages_are_looked_at_by_peer_by_kind_or_all_together() -> None:
    board = Board()
    client, worker = board.client(), board.worker()
    out = board.send(client, graph("a"))
    assert list(assigned(out, worker)) == ["a"]
    assert len(board.finish(worker, "a")[client]) == 1
    board.send(client, graph("b"))
    out = board.raise_(worker, "b")
    assert {type(x).__name__ for messages in out.values() for x in messages} == {"KeysErred"}
    assert board.rest() == []
