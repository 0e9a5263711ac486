"""The lines that tasks print and log, on their way through the scheduler."""

from __future__ import annotations

from tests.scheduler.builders import Board
from weft.protocol.wire import messages as m
from weft.protocol.wire.handshake import Role
from weft.protocol.wire.levels import Level


def numbers(board):
    return {client.name: client.number for client in board.state.clients.values()}


def lines(*clients):
    n = len(clients)
    return m.TaskOutput(
        clients=list(clients),
        keys=[f"k{i}" for i in range(n)],
        levels=[1] * n,
        names=[""] * n,
        texts=[f"text {i}" for i in range(n)],
    )


def test_workers_are_sent_who_wants_output_and_from_which_level_on():
    board = Board()
    early = board.worker("early")
    alice, bob = board.client("alice"), board.client("bob")
    of = numbers(board)
    out = board.send(alice, m.WantOutput(clients=[], level=30))
    assert out == {early: [m.WantOutput(clients=[of["alice"]], level=30)]}
    out = board.send(bob, m.WantOutput(clients=[], level=10))
    both = m.WantOutput(clients=sorted(of.values()), level=10)
    assert out == {early: [both]}
    assert board.send(bob, m.WantOutput(clients=[], level=10)) == {}
    late = board.worker("late")
    assert both in board.out[late]
    out = board.send(bob, m.WantOutput(clients=[], level=0))
    rest = m.WantOutput(clients=[of["alice"]], level=30)
    assert out == {early: [rest], late: [rest]}
    out = board.close(alice)
    assert out == {peer: [m.WantOutput(clients=[], level=0)] for peer in (early, late)}
    assert not [x for x in board.out.get(board.worker("last"), []) if type(x) is m.WantOutput]


def test_each_client_gets_the_lines_of_its_own_tasks_with_the_name_of_the_worker():
    board = Board()
    worker = board.worker("w")
    alice, bob, carol = (board.client(name) for name in ("alice", "bob", "carol"))
    for client in (alice, bob):
        board.send(client, m.WantOutput(clients=[], level=10))
    of = numbers(board)
    sent = lines(of["alice"], of["bob"], of["alice"], of["carol"], 999)
    out = board.send(worker, sent)
    assert carol not in out
    (mine,), (other,) = out[alice], out[bob]
    assert (mine.texts, mine.keys, mine.worker) == (["text 0", "text 2"], ["k0", "k2"], "w")
    assert (other.texts, other.worker) == (["text 1"], "w")


def test_a_client_that_is_away_gets_nothing_and_its_return_begins_anew():
    board = Board(client_lease_s=60.0)
    worker = board.worker("w")
    alice = board.client("alice")
    board.send(alice, m.WantOutput(clients=[], level=10))
    number = numbers(board)["alice"]
    board.close(alice)
    assert board.send(worker, lines(number)) == {}
    alice = board.client("alice", last_epoch=7)
    assert board.send(worker, lines(number)) == {}
    assert worker in board.send(alice, m.WantOutput(clients=[], level=10))
    assert alice in board.send(worker, lines(number))


def test_wanting_output_takes_the_token_of_a_client():
    board = Board()
    peer = board.connect(Role.CLIENT, Level.CLIENT)
    assert board.state.levels[peer] == Level.CLIENT
    worker = board.worker("w")
    board.send(worker, m.WantOutput(clients=[], level=10))
    assert board.state.output_wanted.level == 0
