"""deadlines.py: what is due when time has passed."""

from __future__ import annotations

import random

import pytest

from weft.scheduler.core.records.deadlines import Deadlines

from ...builders import Board

STEP_S = 2.0


class Clock:
    """Deadlines, the time, and what was done when."""

    def __init__(self) -> None:
        self.deadlines = Deadlines(STEP_S)
        self.now = 100.0
        self.done: list[tuple[str, float]] = []
        self.deadlines.run(self.now)

    def add(self, delay_s: float, name: str):
        return self.deadlines.add(self.now, delay_s, self._do, name)

    def _do(self, name: str) -> None:
        self.done.append((name, self.now))

    def tick(self, seconds: float) -> list[str]:
        """Let a tick come after a pause; return what it does."""
        n_before = len(self.done)
        self.now += seconds
        self.deadlines.run(self.now)
        return [name for name, _ in self.done[n_before:]]

    def sleep(self, seconds: float) -> None:
        """Let time pass as a shell does that sleeps until the next tick."""
        end = self.now + seconds
        while (due := self.deadlines.next_tick()) <= end:
            self.tick(max(due - self.now, 0.0))
        self.tick(end - self.now)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_deadlines_are_done_in_order_of_time_and_those_of_one_time_as_they_were_added(clock):
    for delay_s, name in ((1.5, "c"), (0.5, "a"), (0.5, "b"), (3.5, "d")):
        clock.add(delay_s, name)
    clock.sleep(4)
    assert clock.done == [("a", 100.5), ("b", 100.5), ("c", 101.5), ("d", 103.5)]


def test_the_shell_sleeps_until_the_first_deadline_and_at_most_for_the_longest_step(clock):
    assert clock.deadlines.next_tick() == 100 + STEP_S
    soon = clock.add(0.5, "soon")
    clock.add(1.5, "later")
    assert clock.deadlines.next_tick() == 100.5
    clock.deadlines.cancel(soon)
    assert clock.deadlines.next_tick() == 101.5
    clock.tick(1.6)
    assert clock.deadlines.next_tick() == 101.6 + STEP_S


def test_a_deadline_that_is_cancelled_is_not_done_even_by_one_of_the_same_tick(clock):
    first = clock.deadlines.add(clock.now, 1.0, lambda: clock.deadlines.cancel(second))
    second = clock.add(1.0, "second")
    third = clock.add(1.0, "third")
    clock.deadlines.cancel(third)
    assert clock.tick(1.0) == []
    assert not any(deadline.is_pending for deadline in (first, second, third))
    assert clock.deadlines.n_pending == clock.deadlines.count() == 0
    for deadline in (first, None):  # no effect
        clock.deadlines.cancel(deadline)
    assert clock.deadlines.n_pending == 0


def test_a_deadline_that_another_one_adds_waits_for_the_next_tick(clock):
    clock.deadlines.add(clock.now, 0.0, lambda: clock.add(0.0, "again"))
    assert clock.tick(1.0) == []
    assert clock.deadlines.next_tick() == clock.now
    assert clock.tick(0.0) == ["again"]


def test_a_step_that_is_longer_than_the_longest_counts_as_that(clock):
    clock.add(STEP_S + 1.0, "lease")
    assert clock.tick(1000.0) == []
    clock.sleep(0.9)
    assert clock.done == []
    clock.sleep(0.2)
    assert clock.done == [("lease", pytest.approx(1101.0))]


def test_a_deadline_that_is_added_in_a_long_step_is_due_after_its_delay(clock):
    clock.now += 1000.0
    clock.add(1.0, "late")
    clock.tick(0.0)
    clock.sleep(0.9)
    assert clock.done == []
    clock.sleep(0.2)
    assert clock.done == [("late", pytest.approx(1101.0))]


def test_many_cancelled_deadlines_take_no_memory(clock):
    kept = [clock.add(1.0, f"kept-{i}") for i in range(10)]
    for _ in range(10_000):
        clock.deadlines.cancel(clock.add(1.0, "x"))
    assert len(clock.deadlines._heap) < 200
    assert clock.deadlines.n_pending == len(kept)
    assert clock.tick(1.0) == [f"kept-{i}" for i in range(10)]


@pytest.mark.parametrize("seed", range(20))
def test_random_deadlines_are_done_at_their_time_by_a_shell_that_sleeps(clock, seed):
    rng = random.Random(seed)
    expected = []
    for i in range(100):
        delay_s = rng.choice([0.0, 0.1, rng.random() * 10])
        deadline = clock.add(delay_s, str(i))
        if rng.random() < 0.3:
            clock.deadlines.cancel(deadline)
        else:
            expected.append((str(i), pytest.approx(clock.now + delay_s, abs=1e-5)))
        if rng.random() < 0.3:
            clock.sleep(rng.random())
        assert clock.deadlines.n_pending == clock.deadlines.count()
    clock.sleep(20)
    assert sorted(clock.done) == sorted(expected, key=lambda item: item[0])
    assert [when for _, when in clock.done] == sorted(when for _, when in clock.done)


def test_a_scheduler_without_peers_ticks_once_per_heartbeat():
    board = Board(heartbeat_s=2.0)
    n_ticks = 0
    end = board.now + 60
    board.tick()
    while board.state.next_deadline < end:
        board.tick(board.state.next_deadline - board.now)
        n_ticks += 1
    assert n_ticks == 29


def test_a_lease_does_not_end_while_the_scheduler_is_suspended():
    board = Board(client_lease_s=10.0)
    board.close(board.client())
    board.hold_up(1000.0)
    assert board.state.clients
    board.tick(10.0)
    assert not board.state.clients
