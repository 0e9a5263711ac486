"""Wishes of clients about the output of workers, and records of loggers that they follow."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board
from weft.protocol.errors import InvalidState
from weft.protocol.wire import messages as m
from weft.scheduler.core.invariants.validate import validate
from weft.scheduler.core.output import wishes as output_wishes
from weft.scheduler.core.output.output import MAX_LINES
from weft.scheduler.core.output.wishes import MAX_CHANGES, PERIOD_S, OutputWish, wishes_of


def follow(board, peer, level=0, **loggers):
    """Let a client follow loggers; `root` stands for the root."""
    wanted = {("" if name == "root" else name.replace("_", ".")): n for name, n in loggers.items()}
    return board.send(peer, m.WantOutput(clients=[], level=level, loggers=wanted))


def records(*rows, worker=""):
    """Return records: (logger, level), or (logger, level, how many were left out)."""
    return m.LogRecords(
        names=[row[0] for row in rows],
        levels=[row[1] for row in rows],
        dropped=[row[2] if len(row) > 2 else 0 for row in rows],
        records=[None if len(row) > 2 else b"packed" for row in rows],
        worker=worker,
    )


def wanted(**loggers):
    return m.WantOutput(clients=[], level=0, loggers=loggers)


def test_workers_are_sent_the_lowest_level_of_each_followed_logger(board):
    early = board.worker("early")
    alice, bob = board.client("alice"), board.client("bob")
    assert follow(board, alice, lib=30) == {early: [wanted(lib=30)]}
    assert follow(board, bob, lib=10, app=20) == {early: [wanted(app=20, lib=10)]}
    late = board.worker("late")
    assert wanted(app=20, lib=10) in board.out[late]
    out = board.close(bob)
    assert out[early] == [wanted(lib=30)]
    assert follow(board, alice)[early] == [wanted()]
    last = board.worker("last")
    assert not [x for x in board.out.get(last, []) if type(x) is m.WantOutput]
    assert board.rest() == ["WantOutput", "WantOutput"]


def test_records_go_to_each_client_that_follows_their_logger_or_one_above_it(board):
    worker = board.worker("w")
    alice, bob, carol = (board.client(name) for name in ("alice", "bob", "carol"))
    follow(board, alice, lib=20)
    follow(board, bob, root=40, lib_sub=10)
    out = board.send(
        worker,
        records(("lib", 20), ("lib.sub", 10), ("library", 40), ("root", 50), ("lib.sub.x", 30)),
    )
    assert out[alice] == [records(("lib", 20), ("lib.sub.x", 30), worker="w")]
    assert out[bob] == [
        records(("lib.sub", 10), ("library", 40), ("root", 50), ("lib.sub.x", 30), worker="w")
    ]
    assert carol not in out


def test_a_record_that_two_wishes_of_a_client_cover_is_sent_once(board):
    worker = board.worker("w")
    alice = board.client("alice")
    follow(board, alice, root=10, lib=10)
    assert board.send(worker, records(("lib", 20)))[alice] == [records(("lib", 20), worker="w")]


def test_numbers_of_records_that_a_worker_left_out_go_to_those_that_would_have_got_some(board):
    worker = board.worker("w")
    alice, bob = board.client("alice"), board.client("bob")
    follow(board, alice, lib=30)
    follow(board, bob, lib=10)
    out = board.send(worker, records(("lib", 20, 7)))
    assert out == {bob: [records(("lib", 20, 7), worker="w")]}


def test_of_a_flood_of_records_the_limit_is_passed_on_and_warnings_are_not_displaced(board):
    worker = board.worker("w")
    alice = board.client("alice")
    follow(board, alice, lib=10)
    out = board.send(worker, records(*[("lib", 10)] * (MAX_LINES + 5)))
    assert sum(len(x.names) for x in out[alice]) == MAX_LINES
    out = board.send(worker, records(("lib", 30), ("lib", 10, 4), ("lib", 20)))
    assert out[alice] == [records(("lib", 30), worker="w")]
    out = board.tick(1.0)
    assert out[alice] == [records(("", 0, 5 + 4 + 1))]
    assert alice in board.send(worker, records(("lib", 10)))


def test_records_of_nobody_go_nowhere_and_a_client_that_is_away_gets_none():
    board = Board(client_lease_s=60.0)
    worker = board.worker("w")
    alice = board.client("alice")
    follow(board, alice, root=10)
    board.send(worker, records(*[("lib", 10)] * (MAX_LINES + 5)))
    board.close(alice)
    assert board.send(worker, records(("lib", 50))) == {}
    alice = board.client("alice", last_epoch=7)
    assert board.send(worker, records(("lib", 50))) == {}
    out = board.tick(1.0)
    assert not [x for x in out.get(alice, []) if type(x) is m.LogRecords]


def test_a_client_that_changes_its_wish_all_the_time_is_heeded_now_and_then(board):
    worker = board.worker("w")
    alice, bob = board.client("alice"), board.client("bob")
    sent = []
    for n in range(100):
        sent += follow(board, alice, lib=10 + n % 2).get(worker, [])
    assert len(sent) == MAX_CHANGES
    follow(board, alice, lib=50)
    assert worker in follow(board, bob, app=10)  # the others are not affected
    out = board.tick(PERIOD_S)
    assert out[worker] == [wanted(app=10, lib=50)]
    assert worker in follow(board, alice, lib=20)
    for n in range(100):
        follow(board, alice, lib=10 + n % 2)
    board.close(alice)  # and with that what was put off
    assert not wishes_of(board.state).postponed


def test_a_wish_that_is_repeated_changes_nothing(board):
    worker = board.worker("w")
    alice = board.client("alice")
    follow(board, alice, lib=10)
    for _ in range(2 * MAX_CHANGES):
        assert follow(board, alice, lib=10) == {}
    assert worker in follow(board, alice, lib=20)


def test_too_many_loggers_are_followed_by_way_of_the_root(monkeypatch):
    monkeypatch.setattr(output_wishes, "MAX_FOLLOWED", 3)
    board = Board()
    worker = board.worker("w")
    alice = board.client("alice")
    out = follow(board, alice, a=40, b=30, c=20, d=25)
    assert out[worker] == [m.WantOutput(clients=[], level=0, loggers={"": 25, "b": 30, "c": 20})]
    # Each record still goes by the client's own wishes.
    out = board.send(worker, records(("d", 20), ("d", 25), ("x", 50), ("a", 40), ("a", 30)))
    assert out[alice] == [records(("d", 25), ("a", 40), worker="w")]


def test_more_loggers_than_a_client_may_follow_are_cut(board):
    board.worker("w")
    alice = board.client("alice")
    n = 2 * m.MAX_LOGGERS
    loggers = {f"{i:03}{'x' * 500}": 0 for i in range(n)}
    board.send(alice, m.WantOutput(clients=[], level=0, loggers=loggers))
    announced = wishes_of(board.state).announced
    assert len(announced.loggers) == m.MAX_LOGGERS
    assert {len(name) for name in announced.loggers} == {m.MAX_LOGGER_CHARS}
    assert {*announced.loggers.values()} == {1}


@pytest.mark.parametrize("level", ["10", 1.5, None, True, []])
def test_levels_that_are_no_numbers_end_the_connection(board, level):
    alice = board.client("alice")
    board.send(alice, m.WantOutput(clients=[], level=0, loggers={"a": level}))
    assert board.refused() == ["WantOutput.loggers: levels are whole numbers"]


BREAKAGES = {
    "followers are the connected clients that follow a logger": lambda s, c: wishes_of(
        s
    ).followers.clear(),
    "a client that is away wants no output": lambda s, c: setattr(c, "peer", None),
    "changes of wishes are those of connected clients": lambda s, c: setattr(c, "peer", None),
    "a wish that is postponed is due": lambda s, c: (
        wishes_of(s).postponed[c][1].__setattr__("action", None)
    ),
    "wanting files the connected clients that want output by number": lambda s, c: wishes_of(
        s
    ).heeded.update({c: OutputWish(10, wishes_of(s).heeded[c].loggers)}),
}


def test_each_invariant_of_wishes_is_broken_once():
    assert BREAKAGES.keys() == output_wishes.OUTPUT_WISH_INVARIANTS.keys()


@pytest.mark.parametrize("name", BREAKAGES)
def test_each_broken_invariant_is_named(board, name):
    alice = board.client("alice")
    for n in range(MAX_CHANGES + 1):
        follow(board, alice, lib=10 + n % 2)
    (client,) = board.state.clients.values()
    BREAKAGES[name](board.state, client)
    with pytest.raises(InvalidState) as error:
        validate(board.state)
    assert name in str(error.value)
