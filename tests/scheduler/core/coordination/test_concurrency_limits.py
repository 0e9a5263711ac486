"""Limits: so many at a time, and so many per second, whatever happens."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.callers import Caller
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.scheduler.core.coordination.records import objects_of
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from ..insight.test_explaining import explained
from .objects_kit import GRANTED, LATE


def take(who: Caller, lease: str, limit: int = 2, per_s: float = 0.0, **more: Any) -> Any:
    return who.call(
        h.LIMIT, "acquire", "api", lease=lease, owner=lease, limit=limit, per_s=per_s, **more
    )


def let_go(who: Caller, lease: str) -> Any:
    return who.call(h.LIMIT, "release", "api", lease=lease)


def test_a_limit_has_so_many_holders_in_the_order_of_their_calls(alice):
    assert take(alice, "a") == take(alice, "b") == GRANTED
    assert take(alice, "c") is None
    assert take(alice, "d", timeout=0) == LATE
    waiting = alice.request - 1
    let_go(alice, "a")
    assert alice.answers()[waiting] == GRANTED


def test_a_rate_lets_the_next_one_begin_when_its_time_has_come(board, alice):
    assert take(alice, "a", 10, 0.5) == GRANTED
    assert take(alice, "b", 10, 0.5) is None
    request = alice.request
    board.tick(1.9)
    assert request not in alice.answers()
    board.tick(0.2)
    assert alice.answers()[request] == GRANTED
    assert take(alice, "c", 10, 0.5, timeout=1.0) is None
    board.tick(1.5)
    assert list(alice.answers().values()) == [LATE]
    board.tick(1.0)  # the turn of none
    assert take(alice, "d", 10, 0.5) == GRANTED


@pytest.mark.parametrize("rate", [0.3, 1.0, 1.5, 2.5, 3.0, 7.9])
def test_no_second_has_more_than_the_rate_wherever_it_begins(board, alice, rate):
    """The window is longer if less than one per second may begin."""
    window, most = max(1.0, 1.0 / rate), max(1, int(rate))
    begun = []
    for n in range(5 * most):
        take(alice, f"l{n}", 1000, rate)
    begun += [board.state.awake_s] * most
    for _ in range(10_000):
        due = board.state.next_deadline
        n_held = len(objects_of(board.state).records[h.LIMIT, "api"].holders)
        board.tick(max(due - board.now, 0.0))
        n_new = len(objects_of(board.state).records[h.LIMIT, "api"].holders) - n_held
        begun += [board.state.awake_s] * n_new
        if len(begun) >= 5 * most:
            break
    assert len(begun) == 5 * most
    assert all(
        later - earlier >= window for earlier, later in zip(begun, begun[most:], strict=False)
    )
    assert begun[-1] <= 4 * window + 0.01


def test_a_rate_holds_also_while_all_places_are_taken(board, alice):
    assert take(alice, "a", 1, 1) == GRANTED
    assert take(alice, "b", 1, 1) is None
    request = alice.request
    board.tick(0.5)
    let_go(alice, "a")
    assert request not in alice.answers()
    board.tick(0.6)
    assert alice.answers()[request] == GRANTED
    board.tick(10.0)
    assert take(alice, "c", 1, 1) is None
    let_go(alice, "b")
    assert list(alice.answers().values())[-1] == GRANTED


def test_calls_that_wait_for_the_rate_may_be_withdrawn_and_their_client_may_go(board, alice):
    bob = Caller(board, "bob")
    take(alice, "a", 9, 1)
    take(bob, "b", 9, 1)
    take(alice, "c", 9, 1)
    bob.withdraw(bob.request)
    board.tick(1.1)
    assert list(alice.answers().values()) == [GRANTED]
    take(alice, "d", 9, 1)
    take(bob, "e", 9, 1)
    request = bob.request
    board.send(alice.peer, m.Bye(reason=""))
    board.tick(1.1)
    assert bob.answers()[request] == GRANTED
    board.send(bob.peer, m.Bye(reason=""))
    board.tick(5.0)
    assert not objects_of(board.state).records


@pytest.mark.parametrize("seed", range(8))
def test_no_window_has_more_than_the_rate_permits(seed):
    rng = random.Random(seed)
    board = Board(client_lease_s=60.0)
    alice = Caller(board, "alice")
    limit, per_s = rng.choice([1, 3, 50]), rng.choice([0.3, 1.0, 2.5, 7.0])
    held: list[str] = []
    leases: dict[int, str] = {}
    times: list[float] = []

    def note() -> None:
        n_before = len(held)
        for request, answer in alice.answers().items():
            if answer == GRANTED and request in leases:
                held.append(leases.pop(request))
        if len(held) > n_before:
            record: Any = objects_of(board.state).records[h.LIMIT, "api"]
            times.extend(list(record.grants)[n_before - len(held) :])

    for i in range(60):
        take(alice, f"l{i}", limit, per_s)
        leases[alice.request] = f"l{i}"
        note()
        assert len(held) <= limit
        if held and rng.random() < 0.7:
            let_go(alice, held.pop(rng.randrange(len(held))))
            note()
        for _ in range(rng.randint(0, 3)):
            board.tick(rng.random() / per_s)
            note()
    n = max(1, int(per_s))
    assert all(b - a >= max(1.0, 1.0 / per_s) for a, b in zip(times, times[n:], strict=False))
    assert len(times) > 10


def test_other_numbers_are_refused(alice):
    assert take(alice, "a", 2, 1.0) == GRANTED
    for other in ((3, 1.0), (2, 0.5), (2, 0)):
        assert take(alice, "b", *other) == h.OTHER_LIMIT


@pytest.mark.parametrize("per_s", [-1, "1", None, float("nan"), float("inf"), 1e9, 1e-9, True])
def test_rates_that_are_none_are_refused(alice, per_s):
    assert take(alice, "a", 2, per_s) == h.BAD_CALL


def test_a_task_that_waits_for_a_limit_is_explained(board, alice):
    worker = board.worker("w", 2)
    board.send(alice.peer, graph("f g"))
    first, second = (h.owner_of_attempt(board.attempt(key)) for key in ("f", "g"))
    for owner in (first, second):
        alice.call(h.LIMIT, "acquire", "api", lease=owner, owner=owner, limit=1, per_s=2.0)
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("g")]))
    found = explained(board, "g")
    assert found["steps"][0][2] == (
        "it has begun on worker w, and waits for limit 'api', held by task 'f'"
    )
    assert found["details"][-1] == "1 use it; the limit is 1 at once, 2 per second"


def test_a_task_that_waits_for_a_limit_holds_back_no_other_of_its_user(board):
    """The worker keeps the thread of `g`, which it does not report."""
    user_limits_of(board.state).max_running = 1
    alice = Caller(board, "alice")
    worker = board.worker("w", 8)
    board.send(alice.peer, graph("f"))
    first = h.owner_of_attempt(board.attempt("f"))
    assert alice.call(h.LIMIT, "acquire", "x", lease="f", owner=first, limit=1) == GRANTED
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("f")], keys=[["child"]]))
    board.send(alice.peer, graph("g"), graph("child child2"))
    assert board.states("g", "child") == ["processing", "no_worker"]
    second = h.owner_of_attempt(board.attempt("g"))
    options = {"lease": "g", "owner": second, "limit": 1, "blocks": True}
    assert alice.call(h.LIMIT, "acquire", "x", **options) is None
    assert board.states("child", "child2") == ["processing", "no_worker"]
    alice.call(h.LIMIT, "release", "x", lease="f")
    board.finish(worker, "child")
    assert board.states("g", "child2") == ["processing", "no_worker"]
    board.finish(worker, "g")
    assert board.states("child2") == ["processing"]
    board.drop_rest()
