"""Users of clients: whose turns and tasks they have."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.scheduler.builders import graph
from weft.protocol.rotation import user_of
from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.info import describe_client


def keys(name: str, n: int) -> str:
    return " ".join(f"{name}{i}" for i in range(n))


def test_clients_of_one_user_share_what_it_has(board):
    peers = [board.client("a", user="ann"), board.client("b", user="ann"), board.client("c")]
    for peer, name in zip(peers, "xyz", strict=True):
        board.send(peer, graph(keys(name, 2)))
    ann = board.state.users["ann"]
    a, b, c = (board.state.clients[name] for name in "abc")
    assert a.user is b.user is ann
    assert c.user is not ann
    assert user_of(a.number) == user_of(b.number) != user_of(c.number)
    assert (ann.n_rows, ann.nbytes) == (4, 4 * len("args of x0"))
    assert (c.user.n_rows, c.user.nbytes) == (2, 2 * len("args of z0"))
    board.send(peers[0], m.ReleaseKeys(keys=["x0", "x1"]))
    assert (ann.n_rows, ann.nbytes) == (2, 2 * len("args of y0"))
    assert [describe_client(board.state, client)["user"] for client in (a, c)] == ["ann", ""]


def test_a_user_is_the_same_when_its_last_client_has_left(board):
    board.send(board.client("a", user="ann"), m.Bye(reason="done"))
    ann = board.state.users["ann"]
    board.client("b", user="bob")
    board.client("c", user="ann")
    assert board.state.clients["c"].user is ann
    assert [*board.state.users] == ["", "ann", "bob"]


def test_a_task_of_another_user_stays_that_of_its_first(board):
    ann, bob = board.client("a", user="ann"), board.client("b", user="bob")
    board.send(ann, graph("x", named=True))
    board.send(bob, graph("x", named=True))
    board.send(ann, m.ReleaseKeys(keys=["x"]))
    users = board.state.users
    assert (users["ann"].n_rows, users["bob"].n_rows) == (1, 0)
    board.send(bob, m.ReleaseKeys(keys=["x"]))
    assert users["ann"].n_rows == users["ann"].nbytes == 0


@pytest.mark.parametrize("user", ["bob", ""])
def test_a_client_of_another_user_is_not_taken_over(board, user):
    board.client("a", user="ann")
    thief = board.client("a", user=user)
    refused = board.out.of(thief, m.Refused)
    assert "its id is that of a client of another user" in refused[0].reason
    board.drop_rest()
    assert board.state.clients["a"].user.name == "ann"


def test_users_get_equal_shares_of_a_worker_however_many_clients_they_have(board):
    peers = [board.client(f"a{i}", user="ann") for i in range(4)]
    peers.append(board.client("b", user="bob"))
    for peer in peers:
        board.send(peer, graph(keys(f"of{peer}-", 400)))
    w = board.worker()
    order: list[str] = []
    while len(order) < 600:
        running = [*board.state.workers[w].processing.values()]
        order += [task.group.user.name for task in running]
        board.finish(w, *(task.key for task in running), us=1000)
    shares = Counter(order[100:600])
    assert abs(shares["ann"] - shares["bob"]) <= 60
    board.drop_rest()
