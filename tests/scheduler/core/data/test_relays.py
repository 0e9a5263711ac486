"""relays.py: data through the scheduler, for clients that do not reach the workers."""

from __future__ import annotations

from weft.protocol.wire import messages as m
from weft.scheduler.core.data import relays

from ...builders import Board, graph


def fetch_from_two(board: Board) -> tuple[int, int, int]:
    """Let a client fetch "a" of worker one (request 1) and "b" of two (2); return the peers."""
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a b"))
    board.finish(one, "a", blob=None)
    board.finish(two, "b", blob=None)
    out = board.send(client, m.FetchKeys(request=9, keys=["a", "b"]))
    assert out[one] == [m.FetchKeys(request=1, keys=["a"])]
    assert out[two] == [m.FetchKeys(request=2, keys=["b"])]
    return client, one, two


def data(request: int, key: str) -> m.KeysData:
    return m.KeysData(request=request, keys=[key], results=[b"x"], missing=[])


def test_a_client_s_fetch_is_relayed_and_answered_once_all_parts_are_in(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a b"))
    board.finish(one, "a", blob=None)
    board.finish(two, "b", blob=None)
    out = board.send(client, m.FetchKeys(request=9, keys=["a", "b", "c"]))
    assert out == {
        one: [m.FetchKeys(request=1, keys=["a"])],
        two: [m.FetchKeys(request=2, keys=["b"])],
    }
    assert board.send(one, m.KeysData(request=1, keys=["a"], results=[b"A"], missing=[])) == {}
    out = board.close(two)
    data = [x for x in out[client] if isinstance(x, m.KeysData)]
    assert data == [m.KeysData(request=9, keys=["a"], results=[b"A"], missing=["c", "b"])]
    assert board.rest() == ["AssignTasks"]


def test_data_that_is_too_large_is_not_relayed(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a", blob=None, nbytes=relays.MAX_RELAYED_BYTES + 1)
    out = board.send(client, m.FetchKeys(request=9, keys=["a"]))
    assert out == {client: [m.KeysData(request=9, keys=[], results=[], missing=["a"])]}


def test_an_answer_without_a_request_is_stale(board):
    worker = board.worker()
    out = board.send(worker, m.KeysData(request=5, keys=["a"], results=[b"x"], missing=[]))
    assert out == {}
    assert board.state.counters.reports_stale == 1


def test_all_that_one_fetch_relays_is_within_the_limit(board):
    client, worker = board.client(), board.worker(nthreads=3)
    board.send(client, graph("a", "b", "c"))
    board.finish(worker, "a", blob=None, nbytes=relays.MAX_RELAYED_BYTES - 10)
    board.finish(worker, "b", blob=None, nbytes=11)
    board.finish(worker, "c", blob=None, nbytes=10)
    out = board.send(client, m.FetchKeys(request=9, keys=["a", "b", "c"]))
    assert out == {worker: [m.FetchKeys(request=1, keys=["a", "c"])]}
    answer = m.KeysData(request=1, keys=["a", "c"], results=[b"A", b"C"], missing=[])
    (message,) = board.send(worker, answer)[client]
    assert message.missing == ["b"]


def test_another_worker_cannot_answer_a_fetch(board):
    client, one, two = fetch_from_two(board)
    assert board.send(two, data(1, "a")) == {}
    assert board.state.counters.reports_stale == 1
    assert board.send(two, m.Unsupported(unknown_code=20, request=1)) == {}
    assert board.send(one, data(1, "a")) == {}
    (message,) = board.send(two, data(2, "b"))[client]
    assert message == m.KeysData(request=9, keys=["a", "b"], results=[b"x"] * 2, missing=[])
