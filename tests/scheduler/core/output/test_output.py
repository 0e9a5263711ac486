"""The lines that tasks print and log, on their way through the scheduler."""

from __future__ import annotations

from tests.scheduler.builders import Board, graph
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.output.output import (
    MAX_CHARS,
    MAX_LINES,
    MAX_SHOWN,
    PERIOD_S,
    SHOWN_S,
    flow_of,
)
from weft.scheduler.core.output.wishes import wishes_of


def numbers(board):
    return {client.name: client.number for client in board.state.clients.values()}


def work(board, *peers):
    """Let each client have a task at the worker."""
    for number, client in {c.number: c for c in board.state.clients.values()}.items():
        if client.peer in peers:
            board.send(client.peer, graph(f"of-{number}"))
            assert board.where(f"of-{number}") is not None


def lines(*clients):
    n = len(clients)
    return m.TaskOutput(
        clients=list(clients),
        keys=[f"of-{client}" for client in clients],
        levels=[1] * n,
        names=[""] * n,
        texts=[f"text {i}" for i in range(n)],
    )


def test_workers_are_sent_who_wants_output_and_from_which_level_on(board):
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


def test_each_client_gets_the_lines_of_its_own_tasks_with_the_name_of_the_worker(board):
    worker = board.worker("w", nthreads=8)
    alice, bob, carol = (board.client(name) for name in ("alice", "bob", "carol"))
    for client in (alice, bob):
        board.send(client, m.WantOutput(clients=[], level=10))
    work(board, alice, bob, carol)
    of = numbers(board)
    sent = lines(of["alice"], of["bob"], of["alice"], of["carol"], 999)
    out = board.send(worker, sent)
    assert carol not in out
    (mine,), (other,) = out[alice], out[bob]
    assert (mine.texts, mine.keys, mine.worker) == (
        ["text 0", "text 2"],
        [f"of-{of['alice']}"] * 2,
        "w",
    )
    assert (other.texts, other.worker) == (["text 1"], "w")


def test_a_client_that_is_away_gets_nothing_and_its_return_begins_anew():
    board = Board(client_lease_s=60.0)
    worker = board.worker("w")
    alice = board.client("alice")
    board.send(alice, m.WantOutput(clients=[], level=10))
    number = numbers(board)["alice"]
    work(board, alice)
    board.close(alice)
    assert board.send(worker, lines(number)) == {}
    alice = board.client("alice", last_epoch=7)
    assert board.send(worker, lines(number)) == {}
    assert worker in board.send(alice, m.WantOutput(clients=[], level=10))
    assert alice in board.send(worker, lines(number))


def test_wanting_output_takes_the_token_of_a_client(board):
    peer = board.connect(Role.CLIENT, Level.CLIENT)
    assert board.state.levels[peer] == Level.CLIENT
    worker = board.worker("w")
    board.send(worker, m.WantOutput(clients=[], level=10))
    assert wishes_of(board.state).announced.level == 0


# --- The limit of all workers together ------------------------------------------------------------


def cluster(*names):
    """Return a board with a worker, and clients that want output; and each one's number."""
    board = Board()
    worker = board.worker("w", nthreads=8)
    peers = [board.client(name) for name in names]
    for peer in peers:
        board.send(peer, m.WantOutput(clients=[], level=10))
    work(board, *peers)
    return board, worker, peers, [numbers(board)[name] for name in names]


def many(number, n, level=m.STDOUT, text="x"):
    return m.TaskOutput(
        clients=[number] * n,
        keys=[f"of-{number}"] * n,
        levels=[level] * n,
        names=[""] * n,
        texts=[text] * n,
    )


def sent_to(out, peer):
    """Return the texts and the number of lines left out that a client was sent."""
    found = [message for message in out.get(peer, ()) if isinstance(message, m.TaskOutput)]
    rows = [row for one in found for row in zip(one.levels, one.texts, strict=True)]
    n_dropped = sum(int(text) for level, text in rows if level == m.DROPPED_LINES)
    return len([level for level, _ in rows if level != m.DROPPED_LINES]), n_dropped


def test_of_a_flood_the_limit_is_passed_on_and_the_rest_counted_once_per_period():
    board, worker, (alice,), (number,) = cluster("alice")
    assert sent_to(board.send(worker, many(number, MAX_LINES - 1)), alice) == (MAX_LINES - 1, 0)
    assert sent_to(board.send(worker, many(number, 5)), alice) == (1, 0)
    assert board.send(worker, many(number, 7)) == {}
    assert board.send(worker, many(number, 9)) == {}
    out = board.tick(PERIOD_S)
    assert sent_to(out, alice) == (0, 4 + 7 + 9)
    assert out[alice][0].worker == ""
    assert sent_to(board.send(worker, many(number, 3)), alice) == (3, 0)
    assert sent_to(board.tick(PERIOD_S), alice) == (0, 0)


def test_prints_do_not_take_the_place_of_warnings():
    board, worker, (alice,), (number,) = cluster("alice")
    board.send(worker, many(number, 2 * MAX_LINES))
    assert sent_to(board.send(worker, many(number, 10, level=30)), alice) == (10, 0)
    assert sent_to(board.send(worker, many(number, 10, level=m.STDERR)), alice) == (10, 0)


def test_long_lines_count_by_their_characters():
    board, worker, (alice,), (number,) = cluster("alice")
    long = "x" * (MAX_CHARS // 4)
    assert sent_to(board.send(worker, many(number, 4, text=long)), alice) == (3, 0)
    assert sent_to(board.send(worker, many(number, 1, text=2 * long)), alice) == (0, 0)
    assert sent_to(board.tick(PERIOD_S), alice) == (0, 2)


def test_a_client_with_a_flood_leaves_the_others_their_part():
    board, worker, (alice, bob), (a, b) = cluster("alice", "bob")
    both = many(a, 10)
    both.clients[5:] = [b] * 5
    both.keys[5:] = [f"of-{b}"] * 5
    board.send(worker, both)
    board.tick(PERIOD_S)
    out = board.send(worker, many(a, 2 * MAX_LINES))
    assert sent_to(out, alice) == (MAX_LINES // 2, 0)
    assert sent_to(board.send(worker, many(b, 100)), bob) == (100, 0)
    board.tick(PERIOD_S)
    board.send(worker, many(a, 1))
    board.tick(PERIOD_S)  # only one had output, so it gets all again
    assert sent_to(board.send(worker, many(a, 2 * MAX_LINES)), alice) == (MAX_LINES, 0)


def test_clients_that_had_output_long_ago_take_no_part():
    board, worker, (alice, _), (a, b) = cluster("alice", "bob")
    both = many(a, 2)
    both.clients[1:] = [b]
    both.keys[1:] = [f"of-{b}"]
    board.send(worker, both)
    board.tick(2 * PERIOD_S)
    assert sent_to(board.send(worker, many(a, MAX_LINES)), alice) == (MAX_LINES, 0)


def test_lines_that_workers_left_out_are_added_to_those_that_the_scheduler_leaves_out():
    board, worker, (alice,), (number,) = cluster("alice")
    out = board.send(worker, many(number, 1, level=m.DROPPED_LINES, text="30"))
    assert sent_to(out, alice) == (0, 30)
    assert out[alice][0].worker == "w"
    board.send(worker, many(number, MAX_LINES))
    for text in ("40", "lies", "9" * 1000, "-5", ""):
        board.send(worker, many(number, 1, level=m.DROPPED_LINES, text=text))
    assert sent_to(board.tick(PERIOD_S), alice) == (0, 1 + 40 + 4)


def test_a_client_that_goes_away_gets_no_notice_when_it_is_back():
    board, worker, (alice,), (number,) = cluster("alice")
    board.send(worker, many(number, MAX_LINES + 1))
    board.close(alice)
    alice = board.client("alice", last_epoch=7)
    assert sent_to(board.tick(PERIOD_S), alice) == (0, 0)
    board.send(alice, m.WantOutput(clients=[], level=10))
    assert sent_to(board.tick(PERIOD_S), alice) == (0, 0)


def test_lines_for_everyone_go_to_each_connected_client_whatever_it_wants(board):
    worker = board.worker("w")
    alice, bob, gone = (board.client(name) for name in ("alice", "bob", "gone"))
    board.send(alice, m.WantOutput(clients=[], level=10))
    of = numbers(board)
    work(board, alice)
    board.close(gone)
    sent = lines(m.EVERYONE, of["alice"], m.EVERYONE)
    sent.keys = [f"of-{of['alice']}"] * 3
    out = board.send(worker, sent)
    assert [text for x in out[alice] for text in x.texts] == ["text 0", "text 2", "text 1"]
    assert [text for x in out[bob] for text in x.texts] == ["text 0", "text 2"]
    assert gone not in out
    board.send(worker, *[lines(*[m.EVERYONE] * 100) for _ in range(MAX_LINES // 100 + 2)])
    out = board.tick(PERIOD_S + 0.1)
    assert [x.levels for x in out[bob] if type(x) is m.TaskOutput] == [[m.DROPPED_LINES]]
    assert board.rest() == ["TaskOutput"]


# --- Lines that a worker cannot have --------------------------------------------------------------


def shown(out, peer):
    return [text for one in out.get(peer, ()) if type(one) is m.TaskOutput for text in one.texts]


def test_a_worker_shows_a_client_nothing_without_a_task_of_it():
    board, worker, (alice, _), (a, b) = cluster("alice", "bob")
    rogue = board.worker("rogue")
    for number in (a, m.EVERYONE):
        for key in ("", "unknown", f"of-{a}", f"of-{b}"):
            sent = many(number, 2)
            sent.keys = [key] * 2
            assert board.send(rogue, sent) == {}
    assert flow_of(board.state).n_refused == 16
    assert shown(board.send(worker, many(a, 1)), alice) == ["x"]
    sent = many(a, 1)
    sent.keys = [f"of-{b}"]
    assert shown(board.send(worker, sent), alice) == ["x"], "it has one of hers, too"
    assert sent_to(board.tick(PERIOD_S), alice) == (0, 0)


def test_the_task_of_another_client_is_none_of_this_one():
    board, worker, (alice, _), (a, b) = cluster("alice", "bob")
    sent = many(a, 1)
    sent.keys = [f"of-{b}"]
    assert shown(board.send(worker, sent), alice) == []


def test_everyone_is_shown_lines_of_any_task():
    board, worker, (alice, bob), (_, b) = cluster("alice", "bob")
    sent = many(m.EVERYONE, 1)
    sent.keys = [f"of-{b}"]
    out = board.send(worker, sent)
    assert (shown(out, alice), shown(out, bob)) == (["x"], ["x"])


def test_a_worker_with_the_result_shows_lines_as_an_actor_does():
    board, worker, (alice,), (a,) = cluster("alice")
    board.finish(worker, f"of-{a}")
    assert shown(board.send(worker, many(a, 1)), alice) == ["x"]


def test_a_cancelled_task_shows_lines_until_it_has_ended_and_for_a_while():
    board, worker, (alice,), (a,) = cluster("alice")
    attempt = board.attempt(f"of-{a}")
    board.send(alice, m.ReleaseKeys(keys=[f"of-{a}"]))
    assert board.states(f"of-{a}") == ["-"]
    for _ in range(int(SHOWN_S) // 5 + 1):
        board.tick(5.0)
        board.send(worker, m.Heartbeat())
        board.send(alice, m.Heartbeat())
    assert shown(board.send(worker, many(a, 1)), alice) == ["x"]
    assert shown(board.send(worker, many(m.EVERYONE, 1)), alice) == ["x"]
    board.send(worker, m.AttemptsEnded(attempts=[attempt]))
    assert shown(board.send(worker, many(a, 1)), alice) == []
    assert flow_of(board.state).n_refused == 1


def test_of_many_clients_the_latest_are_remembered():
    board, worker, (alice,), (a,) = cluster("alice")
    board.finish(worker, f"of-{a}")
    board.send(worker, many(a, 1))
    (handle,) = board.state.workers.values()
    for number in range(1000, 1000 + 2 * MAX_SHOWN):
        flow_of(board.state).note_shown(handle, number, board.now)
    assert len(flow_of(board.state).shown_to[handle]) == MAX_SHOWN
    assert shown(board.send(worker, many(a, 1)), alice) == ["x"]
