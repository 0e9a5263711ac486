"""history.py: numbers of the last hour, taken when something comes anyway, and read on."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.scheduler.builders import Board, graph
from tests.scheduler.core.insight.test_metrics import numbers, status
from weft.protocol.reported import METRICS_URL
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight.history import N_SAMPLES, history_of


class Reader(Board):
    """A board with a viewer that reads the history on."""

    def __init__(self, **options):
        super().__init__(**options)
        self.cursor = ""
        self.viewer = self.connect(Role.VIEWER, Level.VIEW)

    def ask(self, page="", **arguments):
        arguments = {"after": self.cursor, **arguments}
        message = m.Ask(request=1, name="history", arguments=arguments, page=page)
        return self.send(self.viewer, message)[self.viewer][-1]

    def read(self):
        """Read all pages; return a map of each new sample."""
        found, page, self.is_new = [], "", False
        while True:
            answer = self.ask(page)
            columns = answer.info["columns"]
            found += [
                dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
            ]
            self.is_new |= answer.info["is_new"]
            page = answer.next_page
            if not page:
                self.cursor = answer.info["cursor"]
                return found


def test_a_sample_has_the_counters_and_the_sums_over_workers():
    board = Reader()
    alice, w = board.client("alice"), board.worker("w", nthreads=2, memory_limit=1000)
    board.read()
    board.send(alice, graph("a b c d e f"))
    board.finish(w, "a")
    board.raise_(w, "b")
    mine = numbers(cpu_seconds=7_000_000, transfer_bytes=20, spilled_bytes=5, spill_bytes=90)
    board.tick(2.0)
    board.send(w, status(mine, managed=100, resident=400))
    board.tick(2.0)
    last = board.read()[-1]
    assert last["at_ms"] == int(board.state.now * 1000)
    del last["at_ms"]
    n_processing = last.pop("processing")
    assert n_processing + last.pop("queued") == 4
    assert last == {
        "completed": 1,
        "failed": 1,
        "cpu_us": 7_000_000,
        "received": 20,
        "sent": 20,
        "spill_written": 90,
        "spill_read": 90,
        "spilled": 5,
        "managed": 100,
        "unmanaged": 300,
        "limit": 1000,
        "workers": 1,
        "threads": 2,
        "busy": min(n_processing, 2),
        "waiting": 0,
    }


def test_workers_with_a_metrics_page_of_their_own_count_here_all_the_same():
    board = Reader()
    w = board.worker("w", facts={METRICS_URL: "http://w/metrics"})
    board.tick(2.0)
    board.send(w, status(numbers(transfer_bytes=20)))
    board.tick(2.0)
    assert board.read()[-1]["received"] == 20
    board.close(w)
    board.tick(100.0)
    last = board.read()[-1]
    assert (last["received"], last["workers"]) == (20, 0)


def test_samples_are_some_seconds_apart_however_often_something_comes():
    board = Reader()
    w = board.worker("w")
    board.read()
    for _ in range(20):
        board.now += 0.5
        board.send(w, status([]))
    times = [one["at_ms"] for one in board.read()]
    assert len(times) >= 5
    assert all(b - a >= 1500 for a, b in pairwise(times))


def test_a_reader_goes_on_where_it_was_and_gets_all_of_another_scheduler():
    board = Reader()
    for _ in range(N_SAMPLES + 5):
        board.tick(2.0)
    assert len(board.read()) == N_SAMPLES + 6
    assert board.is_new
    assert board.read() == []
    board.tick(2.0)
    assert len(board.read()) == 1
    assert not board.is_new
    board.cursor = "12345.600"
    assert len(board.read()) == N_SAMPLES + 7
    assert board.is_new


@pytest.mark.parametrize("after", [7, "{epoch}.x"])
def test_a_cursor_that_no_answer_had_is_refused(after):
    board = Reader()
    after = after.format(epoch=board.state.epoch) if isinstance(after, str) else after
    answer = board.ask(after=after)
    assert isinstance(answer, m.AskFailed)
    assert history_of(board.state).samples.end <= 1
