"""Workers that others fail to fetch from again and again: the line about it, and the pauses."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.builders import Board, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.reports.unreached import RECENT_S


class Apart(Board):
    """Task b may run on "reader" only and needs a, which only "holder" has."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.alice = self.client()
        self.holder, self.reader = self.worker("holder"), self.worker("reader")
        self.send(self.alice, graph("a", workers=["holder"]))
        self.finish(self.holder, "a", blob=None)
        self.send(self.alice, graph(":a -> b", blob=None, workers=["reader"]))

    def fail(self, reader: int | None = None) -> None:
        """Let a worker report that it did not reach the holder."""
        message = m.KeysMissing(keys=["a"], holder="tcp://holder", unreachable=True)
        self.send(self.reader if reader is None else reader, message)

    def fail_all(self) -> int:
        """Let the reader fail as often as it is asked; return how often."""
        for n in range(100):
            if self.states("b") != ["processing"]:
                return n
            attempt = self.attempt("b")
            self.fail()
            self.send(self.reader, m.AttemptsEnded(attempts=[attempt]))
        raise AssertionError("it is tried for ever")

    def lines(self) -> list[str]:
        return [x["text"] for x in overview(self.state)["health"] if x["code"] == "unreached"]


@pytest.fixture
def apart() -> Apart:
    return Apart()


def test_the_pauses_between_fetches_that_fail_grow(apart):
    n, start = 0, apart.now
    while apart.states("b") != ["erred"]:
        n += apart.fail_all()
        for peer in (apart.holder, apart.reader):
            apart.send(peer, m.Heartbeat())
        apart.tick(0.5)
        assert apart.now - start < 100
    assert apart.now - start > 32
    assert n < 30


def test_one_failed_fetch_is_no_line_and_several_name_reader_holder_address_and_number(apart):
    apart.fail()
    assert apart.lines() == []
    apart.tick(5.0)
    apart.fail()
    apart.tick(2.0)
    (line,) = apart.lines()
    assert line.startswith(
        "worker reader cannot reach the data port of holder at tcp://holder: 2 fetches failed "
        "within 5 s, the last one 2 s ago."
    )


def test_several_readers_of_one_holder_are_one_line(apart):
    others = [apart.worker(f"w{i}") for i in range(5)]
    for reader in (apart.reader, *others):
        apart.fail(reader)
        apart.fail(reader)
    (line,) = apart.lines()
    assert line.startswith("workers reader, w0, w1 and 3 more cannot reach the data port of holder")
    assert "12 fetches failed" in line


def test_the_line_goes_when_no_fetch_has_failed_for_a_while_and_then_counts_anew(apart):
    apart.fail()
    apart.fail()
    assert apart.lines()
    apart.hold_up(RECENT_S + 1)
    assert apart.lines() == []
    apart.fail()
    assert apart.lines() == []


def test_the_line_goes_when_the_reader_gets_a_copy_from_the_holder(apart):
    apart.fail()
    apart.fail()
    assert apart.lines()
    attempt = apart.task("a").attempt
    apart.send(apart.reader, m.ReplicasAdded(keys=["a"], attempts=[attempt]))
    assert apart.lines() == []
    assert not apart.state.workers[apart.reader].unreachable


def test_a_copy_that_may_have_come_from_elsewhere_proves_nothing(apart):
    other = apart.worker("other")
    attempt = apart.task("a").attempt
    apart.send(other, m.ReplicasAdded(keys=["a"], attempts=[attempt]))
    apart.fail()
    apart.fail()
    apart.send(apart.reader, m.ReplicasAdded(keys=["a"], attempts=[attempt]))
    assert apart.lines()


def test_a_copy_of_an_earlier_result_proves_nothing(apart):
    apart.fail()
    apart.fail()
    apart.send(apart.reader, m.ReplicasAdded(keys=["a"], attempts=[apart.attempt("a") + 1]))
    assert apart.lines()


def test_the_line_is_about_the_time_since_the_first_fetch_of_any_reader_failed(apart):
    other = apart.worker("other")
    apart.fail()
    apart.tick(4.0)
    for reader in (other, other, apart.reader):
        apart.fail(reader)
    (line,) = apart.lines()
    assert "4 fetches failed within 4 s" in line


def test_a_holder_that_is_away_is_no_line():
    apart = Apart(away_s=5.0)
    apart.fail()
    apart.fail()
    assert apart.lines()
    apart.close(apart.holder)
    assert apart.lines() == []


@pytest.mark.parametrize("who", ["holder", "reader"])
def test_the_line_goes_with_either_worker(apart, who):
    apart.fail()
    apart.fail()
    apart.close(getattr(apart, who))
    assert apart.lines() == []
