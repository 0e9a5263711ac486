"""Tasks that are assigned while other workers run what they read."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, assignment, dropped, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.promises.feature import ENOUGH_NS, LONGEST_NS, PATIENCE_S, Promised


class Join:
    """c reads a and b, which run on two workers; d reads c. All are known to be short."""

    def __init__(self, us: int = 100, nbytes: int = 8, **options) -> None:
        self.board = Board()
        self.client = self.board.client()
        self.one = self.board.worker("one")
        self.board.send(self.client, graph("known"))
        self.board.finish(self.one, "known", us=us, nbytes=nbytes)
        self.board.send(self.client, m.ReleaseKeys(keys=["known"]))
        self.two = self.board.worker("two")
        self.board.drop_rest()
        self.board.send(self.client, graph("a", workers=["one"]), graph("b", workers=["two"]))
        self.out = self.board.send(self.client, graph(":a :b -> c", "c -> d", **options))

    @property
    def reader(self) -> int:
        where = self.board.where("c")
        assert where is not None
        return where

    @property
    def promised(self) -> tuple[str, int]:
        """The input that is promised, and the worker that runs it."""
        return ("b", self.two) if self.reader == self.one else ("a", self.one)

    def broken(self) -> m.KeysMissing:
        """Return the report that the promised input has not come."""
        key, _ = self.promised
        address = self.board.state.workers[self.reader].address
        return m.KeysMissing(keys=[key], holder=address, attempts=[self.board.attempt(key)])


def test_a_task_goes_to_a_worker_of_one_input_and_the_other_is_promised():
    join = Join()
    key, holder = join.promised
    message = assignment(join.out, join.reader)
    assert message.keys == ["c", "d"]
    assert message.promised_keys == [key]
    assert message.promised_attempts == [join.board.attempt(key)]
    assert message.promised_holders == [join.board.state.workers[holder].address]
    assert message.located_keys == []


@pytest.mark.parametrize(
    "options",
    [{"us": LONGEST_NS // 1000 + 1000}, {"nbytes": 1 << 20}, {"resources": {"GPU": 1}}],
    ids=["long tasks", "large results", "resources"],
)
def test_only_short_tasks_with_small_results_are_promised(options):
    assert Join(**options).board.states("c") == ["waiting"]


def test_a_worker_that_has_enough_to_do_is_promised_nothing():
    join = Join()
    board, n = join.board, ENOUGH_NS // 100_000 + 1
    keys = " ".join(f"more-{i}" for i in range(n))
    for name in ("one", "two"):
        board.send(join.client, graph(keys.replace("more", name), workers=[name]))
    board.send(join.client, graph(":a :b -> later"))
    assert board.states("c", "later") == ["processing", "waiting"]
    board.drop_rest()


def test_an_input_that_ends_before_its_promise_is_reported_as_broken_is_located():
    join = Join()
    (key, holder), broken, board = join.promised, join.broken(), join.board
    board.finish(holder, key)
    (located,) = board.send(join.reader, broken).of(join.reader, m.LocatedKeys)
    assert located.keys == [key]
    assert board.states(key, "c") == ["memory", "processing"]
    board.drop_rest()


def test_a_reader_that_misses_what_was_promised_waits_again():
    join = Join()
    board, reader, attempt = join.board, join.reader, join.board.attempt("c")
    out = board.send(reader, join.broken())
    assert attempt in dropped(out, reader)
    assert board.states("c", "d") == ["waiting", "waiting"]
    board.drop_rest()
    board.finish(join.one, "a")
    board.finish(join.two, "b")
    assert board.states("c", "d") == ["processing", "processing"]
    board.drop_rest()


def test_a_failed_input_fails_the_reader():
    join = Join()
    key, holder = join.promised
    attempts = [join.board.attempt("c"), join.board.attempt("d")]
    reader = join.reader
    out = join.board.raise_(holder, key)
    assert dropped(out, reader) == attempts
    assert join.board.states("c", "d") == ["erred", "erred"]
    join.board.drop_rest()


def test_a_task_does_not_only_wait_at_a_worker_for_long():
    join = Join()
    key, holder = join.promised
    other = "a" if key == "b" else "b"
    reader = join.reader
    join.board.finish(reader, other)
    attempt = join.board.attempt("c")
    out = join.board.tick(3 * PATIENCE_S)
    assert out.of(reader, m.ReturnAttempts)
    attempts = [attempt, join.board.attempt("d")]
    join.board.send(reader, m.AttemptsReturned(attempts=attempts))
    assert join.board.states("c", "d") == ["waiting", "waiting"]
    join.board.finish(holder, key)
    assert join.board.states("c", "d") == ["processing", "processing"]
    join.board.drop_rest()


def test_nothing_is_noted_of_tasks_that_have_ended():
    join = Join()
    join.board.finish(join.one, "a")
    join.board.finish(join.two, "b")
    join.board.finish(join.reader, "c")
    assert join.board.state.record(Promised)
    join.board.tick(2 * PATIENCE_S)
    assert not join.board.state.record(Promised)
    join.board.drop_rest()
