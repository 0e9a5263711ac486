"""The task stream: recorded while somebody reads it, by positions that count what was missed."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, graph
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight import task_stream
from weft.scheduler.core.insight.task_stream import (
    LEAST_KEEP_S,
    MAX_KEEP_S,
    MAX_LOOK_S,
    stream_of,
)


def times(*attempts, ended_us=None, **columns):
    n = len(attempts)
    return m.AttemptTimes(
        attempts=list(attempts),
        ended_us=ended_us or [1_000_000 * (i + 1) for i in range(n)],
        durations_us=[1000] * n,
        threads=[0] * n,
        nbytes=[8] * n,
        types=["int"] * n,
        **columns,
    )


class Stream(Board):
    """A board with a client that reads, and a worker that reports."""

    def __init__(self, **options):
        super().__init__(**options)
        self.alice = self.client("alice")
        self.w = self.worker("w", nthreads=100)
        self.cursor = ""
        self._n = 0

    def read(self, keep_s=30.0, peer=None, page="", name="task_stream", **more):
        """Ask for one page; return what is not a question of the scheduler's own."""
        self._n += 1
        arguments = {"keep_s": keep_s, "after": self.cursor, **more}
        peer = peer or self.alice
        out = self.send(peer, m.Ask(request=self._n, name=name, arguments=arguments, page=page))
        return out[peer][-1]

    def rows(self, **arguments):
        """Read all pages; return (key, seconds since 1970) of each row."""
        found, page, self.n_missed = [], "", 0
        while True:
            answer = self.read(page=page, **arguments)
            info = answer.info
            self.n_missed += info["n_missed"]
            for report in info["reports"]:
                offset = info["to_unix_s"] + report["offset_s"]
                ends = [offset + us / 1e6 for us in report["ended_us"]]
                found += zip(report["keys"], ends, strict=True)
            page = answer.next_page
            if not page:
                self.cursor = info["cursor"]
                return found

    def run(self, *keys, timed=True):
        """Let tasks be submitted, run and finish."""
        self.send(self.alice, graph(" ".join(keys)))
        attempts = [self.attempt(key) for key in keys]
        if timed:
            self.send(self.w, times(*attempts))
        self.finish(self.w, *keys)


def test_workers_report_times_from_the_first_question_until_nobody_has_asked_for_long_enough():
    board = Stream()
    other = board.worker("other")
    board.read(keep_s=10.0)
    on, off = m.RecordTimes(on=True, running=True), m.RecordTimes(on=False)
    assert [board.out[peer] for peer in (board.w, other)] == [[on], [on]]
    assert isinstance(board.read(keep_s=10.0), m.Answer)
    assert board.w not in board.out
    late = board.worker("late")
    assert on in board.out[late]
    board.tick(6.0)
    board.read(keep_s=10.0)
    assert board.tick(9.0) == {}
    assert {peer: out for peer, out in board.tick(2.0).items() if off in out}.keys() == {
        board.w,
        other,
        late,
    }
    assert m.RecordTimes(on=True, running=True) not in board.out.get(board.worker("last"), [])


def running_of(board):
    """Return (key, seconds since 1970) of what runs, as a viewer sees it."""
    info = board.read(name="task_times", keep_s=10.0).info
    return [(row[4], row[6] - info["to_unix_s"]) for row in info["running"]]


def test_attempts_that_run_are_known_until_they_have_ended():
    board = Stream()
    board.read(keep_s=10.0)
    board.send(board.alice, graph("a b"))
    attempts = [board.attempt("a"), board.attempt("b")]
    report = m.AttemptsRunning(attempts=attempts, threads=[0, 1], ages_us=[4_000_000, 1_000_000])
    board.send(board.w, report)
    assert running_of(board) == [("a", board.now - 4.0), ("b", board.now - 1.0)]
    board.finish(board.w, "a")
    assert [key for key, _ in running_of(board)] == ["b"]
    board.close(board.w)
    board.tick(100.0)
    assert running_of(board) == []


def test_spilled_values_come_with_the_next_attempts_of_their_worker():
    board = Stream()
    board.read(name="task_times", keep_s=10.0)
    board.send(board.alice, graph("a b"))
    columns = {"durations_us": [500_000], "nbytes": [100]}
    board.send(board.w, m.DiskTimes(ages_us=[2_000_000], reads=[1], **columns))
    start = board.now - 2.0
    board.send(board.w, times(board.attempt("a")), times(board.attempt("b")))
    info = board.read(name="task_times", keep_s=10.0).info
    first, second = info["reports"]
    [[began, ended, *more]] = first["disk"]
    assert (began + first["offset_s"], ended - began) == pytest.approx((start, 0.5))
    assert more == [100, 1]
    assert second["disk"] == []


def test_spilled_values_are_known_before_an_attempt_of_their_worker_ends():
    board = Stream()

    def on_disk():
        info = board.read(name="task_times", keep_s=10.0).info
        return [(row[1], row[3] - info["to_unix_s"], *row[5:]) for row in info["disk"]]

    assert on_disk() == []
    board.send(board.alice, graph("a"))
    spilled = m.DiskTimes(ages_us=[2_000_000], durations_us=[500_000], nbytes=[100], reads=[0])
    board.send(board.w, spilled)
    assert on_disk() == [("w", pytest.approx(board.now - 2.0), 100, 0)]
    board.send(board.w, times(board.attempt("a")))
    assert on_disk() == []  # the report of the attempt has it


def test_spilled_values_are_dropped_with_their_worker_and_while_nobody_looks():
    board = Stream()
    spilled = m.DiskTimes(ages_us=[0], durations_us=[1], nbytes=[1], reads=[0])
    board.send(board.w, spilled)
    assert not stream_of(board.state).disk
    board.read(keep_s=10.0)
    board.send(board.w, spilled)
    assert len(stream_of(board.state).disk) == 1
    board.close(board.w)
    board.tick(100.0)
    assert not stream_of(board.state).disk


def test_a_report_of_running_attempts_is_dropped_while_nobody_looks():
    board = Stream()
    board.send(board.alice, graph("a"))
    row = {"threads": [0], "ages_us": [4_000_000]}
    board.send(board.w, m.AttemptsRunning(attempts=[board.attempt("a")], **row))
    assert running_of(board) == []


def test_a_question_that_keeps_nothing_records_nothing():
    board = Stream()
    assert board.rows(keep_s=0) == []
    assert board.w not in board.out
    board.run("a")
    assert board.rows(keep_s=0) == []


def test_a_reader_gets_each_attempt_once_with_what_the_worker_does_not_know():
    board = Stream()
    board.rows()
    board.send(board.alice, graph("a b", function="load", span=["nightly", "step 1"]))
    board.send(board.w, times(board.attempt("a"), board.attempt("b")))
    board.finish(board.w, "a", "b")
    (report,) = board.read().info["reports"]
    assert report["keys"] == ["a", "b"]
    assert report["kinds"] == [["load", ["nightly", "step 1"]]]
    assert report["kind_of"] == [0, 0]
    assert (report["worker"], report["address"]) == ("w", "tcp://w")
    assert [key for key, _ in board.rows()] == ["a", "b"]
    assert board.rows() == []
    board.run("c")
    assert [key for key, _ in board.rows()] == ["c"]


def test_times_are_those_of_the_scheduler_s_clock_whatever_the_worker_s_clock_is():
    board = Stream()
    board.rows()
    board.send(board.alice, graph("a b c"))
    first, second, third = (board.attempt(key) for key in "abc")
    # The clock of the worker is 5 000 s ahead. The second report is the fastest one.
    board.now = 200.0
    board.send(board.w, times(first, ended_us=[5_199_400_000]))
    board.now = 201.0
    board.send(board.w, times(second, ended_us=[5_200_900_000]))
    board.now = 202.0
    board.send(board.w, times(third, ended_us=[5_201_500_000]))
    started = board.state.epoch / 1e9 - board.state.started
    ends = {key: round(when - started, 3) for key, when in board.rows()}
    assert ends == {"a": 200.0, "b": 201.0, "c": 201.6}
    board.now = 210.0
    assert round(board.read().info["now_unix_s"] - started, 3) == 210.0


def test_a_slow_reader_is_told_how_many_attempts_it_has_missed(monkeypatch):
    monkeypatch.setattr(task_stream, "MAX_ROWS", 5)
    board = Stream()
    board.rows()
    for i in range(4):
        board.run(f"a{i}", f"b{i}")
    assert [key for key, _ in board.rows()] == ["a2", "b2", "a3", "b3"]
    assert board.n_missed == 4
    assert board.rows() == []
    assert board.n_missed == 0


def test_types_that_a_worker_makes_up_are_bounded_in_their_length(monkeypatch):
    monkeypatch.setattr(task_stream, "MAX_CHARS", 100_000)
    board = Stream()
    board.rows()
    board.send(board.alice, graph("a b"))
    for key in ("a", "b"):
        report = times(board.attempt(key))
        report.types[:] = ["x" * 60_000]
        board.send(board.w, report)
    assert [key for key, _ in board.rows()] == ["b"]
    assert board.n_missed == 1


def test_keys_are_bounded_in_their_length_too(monkeypatch):
    monkeypatch.setattr(task_stream, "MAX_CHARS", 309)
    board = Stream()
    board.rows()
    for i in range(4):
        board.run(f"{i}" * 100)
    assert len(board.rows()) == 3
    assert board.n_missed == 1


def test_attempts_that_ended_while_nobody_read_count_as_missed():
    board = Stream()
    board.rows(keep_s=5.0)
    board.run("a")
    board.tick(6.0)
    board.run("b", "c", timed=False)
    assert board.rows() == []
    assert board.n_missed == 3
    board.run("d")
    assert [key for key, _ in board.rows()] == ["d"]
    assert board.n_missed == 0


def test_attempts_that_ended_after_recording_count_as_missed_by_a_question_that_keeps_nothing():
    board = Stream()
    board.rows(keep_s=5.0)
    board.tick(6.0)
    board.run("a", "b", timed=False)
    board.send(board.alice, graph("c d"))
    board.raise_(board.w, "c", "d")
    assert board.rows(keep_s=0) == []
    assert board.n_missed == 4
    assert board.rows(keep_s=0) == []
    assert board.n_missed == 0
    board.send(board.alice, graph("e"))
    board.raise_(board.w, "e")
    assert board.rows() == []
    assert board.n_missed == 1


def test_a_new_reader_begins_with_what_is_there_and_misses_nothing():
    board = Stream()
    board.run("before", timed=False)
    board.rows()
    board.run("a")
    board.cursor = ""
    assert [key for key, _ in board.rows()] == ["a"]
    assert board.n_missed == 0
    # That of another scheduler.
    board.cursor = "1.99"
    assert [key for key, _ in board.rows()] == ["a"]
    board.cursor = f"{board.state.epoch}.999999"
    assert board.rows() == []


def test_long_answers_come_in_pages_that_end_where_the_stream_did(monkeypatch):
    monkeypatch.setattr(task_stream, "N_ROWS", 3)
    monkeypatch.setattr(task_stream, "N_REPORTS", 2)
    board = Stream()
    board.rows()
    for i in range(7):
        board.run(f"a{i}", f"b{i}")
    answer = board.read()
    assert [report["keys"] for report in answer.info["reports"]] == [["a0", "b0"], ["a1", "b1"]]
    board.run("later")
    assert [key for key, _ in board.rows()][-1] == "later"
    board.cursor = ""
    n_pages, page = 0, answer.next_page
    keys = []
    while page:
        answer = board.read(page=page)
        keys += [key for report in answer.info["reports"] for key in report["keys"]]
        page = answer.next_page
        n_pages += 1
    assert keys == [f"{x}{i}" for i in range(2, 7) for x in "ab"]
    assert n_pages == 3


def test_attempts_that_are_not_current_have_no_key():
    board = Stream()
    board.rows()
    board.send(board.alice, graph("a"))
    board.send(board.w, times(board.attempt("a"), 999_999))
    assert [key for key, _ in board.rows()] == ["a", ""]


def test_reports_of_times_that_nobody_wants_are_not_kept():
    board = Stream()
    board.run("a")
    assert stream_of(board.state).reports.n_rows == 0


def test_reading_takes_the_token_of_a_client_and_valid_arguments():
    board = Stream()
    viewer = board.connect(Role.VIEWER, Level.VIEW)
    assert isinstance(board.read(peer=viewer), m.Denied)
    for wrong in (-1, MAX_KEEP_S * 2, "10", None, float("nan"), True):
        answer = board.read(keep_s=wrong)
        assert isinstance(answer, m.AskFailed), wrong
        assert "keep_s=" in answer.text
    for arguments in ({"after": 7}, {"after": f"{board.state.epoch}.x"}):
        assert isinstance(board.read(**arguments), m.AskFailed)
    assert isinstance(board.read(page="nonsense"), m.Answer)
    assert isinstance(board.read(page=f"{board.state.epoch}.-4.5"), m.AskFailed)
    assert not stream_of(board.state).is_on or stream_of(board.state).due.is_pending


def test_a_worker_that_is_back_is_asked_for_times_again():
    board = Stream(away_s=60.0)
    board.read()
    board.close(board.w)
    assert board.tick(1.0) == {}
    back = board.worker("w", last_epoch=board.state.epoch)
    assert m.RecordTimes(on=True, running=True) in board.out[back]


def test_a_viewer_reads_what_a_picture_shows_and_neither_options_nor_results():
    board = Stream()
    viewer = board.connect(Role.VIEWER, Level.VIEW)
    asked = {"peer": viewer, "name": "task_times", "keep_s": MAX_LOOK_S}
    board.read(**asked)
    assert board.out[board.w] == [m.RecordTimes(on=True, running=True)]
    board.send(board.alice, graph("a b c", function="load", span=["nightly"], meta={"run": 7}))
    attempts = [board.attempt(key) for key in "abc"]
    columns = {"waited_us": [0, 5, 0], "arrived_us": [1, 2, 3], "fetched_us": [4, 5, 6]}
    board.send(board.w, times(*attempts, failed=[0, 1, 0], **columns))
    (report,) = board.read(**asked).info["reports"]
    assert report.pop("offset_s") == board.read().info["reports"][0]["offset_s"]
    assert report == {
        "worker": "w",
        "address": "tcp://w",
        "host": "here",
        "keys": ["a", "b", "c"],
        "functions": ["load"],
        "function_of": [],
        "ended_us": [1_000_000, 2_000_000, 3_000_000],
        "durations_us": [1000] * 3,
        "threads": [],
        "raised": [[1, "int"]],
        "disk": [],
        **columns,
    }
    assert board.read().info["reports"][0]["kind_of"] == [0, 0, 0]
    # Of some rows that were read before, the rest.
    board.cursor = f"{board.state.epoch}.1"
    (rest,) = board.read(**asked).info["reports"]
    assert (rest["keys"], rest["raised"], rest["fetched_us"]) == (["b", "c"], [[0, "int"]], [5, 6])


def test_a_viewer_has_times_recorded_for_seconds_only():
    board = Stream()
    viewer = board.connect(Role.VIEWER, Level.VIEW)
    answer = board.read(peer=viewer, name="task_times", keep_s=MAX_LOOK_S + 1)
    assert isinstance(answer, m.AskFailed)
    board.read(peer=viewer, name="task_times", keep_s=MAX_LOOK_S)
    assert m.RecordTimes(on=False) in board.tick(MAX_LOOK_S + 1)[board.w]


def test_viewers_that_ask_for_moments_do_not_have_all_workers_told_each_time():
    board = Stream()
    viewer = board.connect(Role.VIEWER, Level.VIEW)
    told = []
    for _ in range(5):
        board.read(peer=viewer, name="task_times", keep_s=1e-6)
        told += board.out.get(board.w, [])
        told += board.tick(0.1).get(board.w, [])
    assert told == [m.RecordTimes(on=True, running=True)]
    assert m.RecordTimes(on=False) in board.tick(LEAST_KEEP_S)[board.w]


def test_attempts_of_several_functions_and_threads_are_told_apart():
    board = Stream()
    board.read(name="task_times", keep_s=MAX_LOOK_S)
    board.send(board.alice, graph("a c", function="load"), graph("b", function="sum"))
    report = times(*map(board.attempt, "abc"), 999_999)
    report.threads = [0, 1, 0, 0]
    board.send(board.w, report)
    (drawn,) = board.read(name="task_times", keep_s=MAX_LOOK_S).info["reports"]
    assert (drawn["keys"], drawn["functions"]) == (["a", "b", "c", ""], ["load", "sum"])
    assert (drawn["function_of"], drawn["threads"]) == ([0, 1, 0, 0], [0, 1, 0, 0])
