"""A recurring job makes a run at each of its times, by its policies, and none twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.protocol.wire import messages as m
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.insight.explaining import why
from weft.scheduler.core.journal.entries import (
    JobAdded,
    JobChanged,
    JobsRead,
    JournalRead,
    ReadJobs,
    WriteJournal,
)
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.recurring import feature
from weft.scheduler.core.recurring.feature import N_KEPT, recurring_of

from ...builders import Board, function_id, graph, sent_keys


def cron(expression: str = "* * * * * *", **changes: Any) -> dict[str, Any]:
    """Return the option `cron`; the clock of a board shows 1970."""
    plain = {"zone": "UTC", "since_ms": 0, "until_ms": 0, "overlap": "skip", "missed": "one"}
    return {"expression": expression, **plain, **changes}


def run(second: int) -> str:
    """Return the key of the run of this time."""
    return f"a@1970-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}+00:00"


def known(board: Board) -> list[str]:
    """Return the times of the runs of the job that are kept, in seconds."""
    (row,) = recurring_of(board.state).values()
    return [ms // 1000 for ms in row.runs.values()]


def test_a_run_is_made_at_each_time_and_the_job_never_runs(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", cron=cron()))
    board.tick(0.5)
    assert known(board) == []
    board.tick(0.7)
    assert board.states("a", run(1)) == ["waiting", "processing"]
    board.finish(worker, run(1))
    board.tick(1.0)
    assert board.states("a", run(1), run(2)) == ["waiting", "memory", "processing"]


def test_a_run_has_the_inputs_and_the_options_of_its_job(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("x -> a", cron=cron(), retries=3))
    board.send(client, m.ReleaseKeys(keys=["x"]))
    board.finish(worker, "x")
    board.tick(1.2)
    task = board.task(run(1))
    assert [d.key for d in task.dependencies] == ["x"]
    assert task.args == b"args of a"
    assert (task.group.options.retries, task.group.options.cron) == (3, {})


@pytest.mark.parametrize(
    ("overlap", "states"),
    [
        ("skip", ["processing", "-"]),
        ("queue", ["processing", "-"]),
        ("replace", []),
    ],
)
def test_a_run_meets_an_earlier_one(board, overlap, states):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", cron=cron(overlap=overlap)))
    board.tick(1.2)
    board.tick(1.0)
    if overlap == "replace":
        assert board.states(run(1)) == ["-"]
        assert known(board) == [2]
        return
    assert board.states(run(1), run(2)) == states
    board.finish(worker, run(1))
    assert board.states(run(2)) == ["processing" if overlap == "queue" else "-"]
    board.tick(1.0)
    assert board.states(run(3)) == ["-" if overlap == "queue" else "processing"]


def test_a_run_whose_key_is_known_is_passed_over(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", cron=cron(overlap="queue", until_ms=2_300)))
    board.tick(1.2)
    board.tick(1.0)
    board.tick(1.0)
    board.send(client, graph(run(2)))
    board.finish(worker, run(2))
    assert known(board) == [1]
    board.finish(worker, run(1))
    board.tick()
    assert board.states("a") == ["erred"]


def test_a_run_that_has_failed_is_over(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", cron=cron()))
    board.tick(1.2)
    board.raise_(worker, run(1))
    board.tick(1.0)
    assert board.states(run(1), run(2)) == ["erred", "processing"]


def test_the_latest_runs_are_kept(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", cron=cron()))
    board.tick(0.5)
    for second in range(1, N_KEPT + 4):
        board.tick(1.0)
        board.finish(worker, run(second))
    assert known(board) == [*range(4, N_KEPT + 4)]


@pytest.mark.parametrize("ends", [m.ReleaseKeys, m.CancelKeys])
def test_the_end_of_a_job_ends_its_runs(board, ends):
    client = board.client()
    board.worker()
    board.send(client, graph("a", cron=cron()))
    board.tick(1.2)
    board.send(
        client,
        ends(keys=["a"]) if ends is m.ReleaseKeys else ends(keys=["a"], force=True, reason=""),
    )
    assert board.states("a", run(1)) == ["-", "-"]
    board.tick(2.0)
    assert not recurring_of(board.state)
    assert not recurring_of(board.state).jobs


@pytest.mark.parametrize("ends", ["release", "cancel"])
def test_a_run_that_is_wanted_ends_with_its_job_only_if_that_is_cancelled(board, ends):
    client, other = board.client(), board.client("other")
    board.worker()
    board.send(client, graph("a", cron=cron()))
    board.tick(1.2)
    for one in (client, other):
        board.send(one, m.WantKeys(keys=[run(1)], attempts=[0]))
    if ends == "release":
        board.send(client, m.ReleaseKeys(keys=["a"]))
        assert board.states("a", run(1)) == ["-", "processing"]
    else:
        out = board.send(client, m.CancelKeys(keys=["a"], force=True, reason=""))
        assert board.states("a", run(1)) == ["-", "-"]
        assert sent_keys(out, other, m.KeysCancelled) == [run(1)]
    assert not recurring_of(board.state).jobs
    board.drop_rest()


def test_after_its_end_a_job_is_cancelled_when_the_last_run_has_ended(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", cron=cron(until_ms=2_300, overlap="queue")))
    board.tick(1.2)
    board.tick(1.0)
    board.tick(1.0)
    board.finish(worker, run(1))
    assert board.states("a", run(2)) == ["waiting", "processing"]
    board.finish(worker, run(2))
    board.tick()
    assert board.states("a") == ["erred"]
    assert known(board) == [1, 2]
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert board.states(run(1), run(2)) == ["-", "-"]
    assert not recurring_of(board.state)


def ended(board: Board, client: int) -> None:
    """Have a job end with its run of second 1."""
    worker = board.worker()
    board.send(client, graph("a", cron=cron(until_ms=1_300)))
    board.tick(0.5)
    board.tick(1.0)
    board.finish(worker, run(1))
    board.tick()
    assert board.states("a") == ["erred"]


def test_the_last_run_of_a_job_that_has_ended_is_there_until_the_job_is_released(board):
    client = board.client()
    ended(board, client)
    ask = m.Ask(request=4, name="runs", arguments={"key": "a", "after_ms": 0, "wait": True})
    (answer,) = board.send(client, ask).of(client, m.Answer)
    assert answer.info == {"runs": [[run(1), 1000]], "next_ms": 0, "is_there": True}
    out = board.send(client, m.WantKeys(keys=[run(1)], attempts=[0]))
    assert sent_keys(out, client, m.KeysInMemory) == [run(1)]
    for wait in (True, False):
        later = {"key": "a", "after_ms": 1000, "wait": wait}
        out = board.send(client, m.Ask(request=5, name="runs", arguments=later))
        (answer,) = out.of(client, m.Answer)
        assert answer.info == {"runs": [], "next_ms": 0, "is_there": False}
    assert "recurring" not in why(board.state, board.task("a")).text
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert board.states("a", run(1)) == ["-", "memory"]


def test_a_reader_of_the_last_run_is_answered_at_the_end_of_the_job(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", cron=cron(until_ms=1_300)))
    board.tick(1.2)
    arguments = {"key": "a", "after_ms": 1000, "wait": True}
    board.send(client, m.Ask(request=5, name="runs", arguments=arguments))
    board.finish(worker, run(1))
    (answer,) = board.tick().of(client, m.Answer)
    assert not answer.info.get("is_there")
    board.drop_rest()


def test_a_job_that_has_ended_and_is_retried_ends_again(board):
    client = board.client()
    ended(board, client)
    board.send(client, m.RetryKeys(request=3, keys=["a"]))
    assert board.states("a") == ["waiting"]
    board.tick()
    assert board.states("a") == ["erred"]
    board.drop_rest()


def test_a_job_whose_input_has_failed_goes_on_when_it_is_retried(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("x"), graph(":x -> a", cron=cron()))
    board.raise_(worker, "x")
    board.tick(5.2)
    assert board.states("a") == ["erred"]
    board.send(client, m.RetryKeys(request=3, keys=["a"]))
    board.finish(worker, "x")
    board.tick(0.5)
    assert known(board) == []
    board.tick(0.5)
    assert board.states("a", run(6)) == ["waiting", "processing"]
    board.drop_rest()


def test_a_run_has_the_turns_of_its_job(board):
    client = board.client()
    board.send(client, graph("a", cron=cron()))
    board.tick(1.2)
    job, made = board.task("a").group, board.task(run(1)).group
    assert (made.client, made.user) == (job.client, job.user)


def test_an_explanation_names_the_next_time_and_what_is_under_way(board):
    client = board.client()
    board.send(client, graph("a", cron=cron("* * * * *", overlap="queue")))
    board.tick(60.5)
    board.tick(60.0)
    text = why(board.state, board.task("a")).text
    assert "the next one is at 1970-01-01T00:03:00+00:00" in text
    assert f"{run(60)} is under way; 1 more wait for that" in text


def test_a_zone_that_is_not_known_ends_the_job(board):
    client = board.client()
    board.send(client, graph("a", cron=cron(zone="Europe/Bonn")))
    out = board.tick()
    assert sent_keys(out, client, m.KeysErred) == ["a"]


def test_a_question_waits_for_the_next_run(board):
    client = board.client()
    board.worker()
    board.send(client, graph("a", cron=cron()))
    board.tick(0.5)
    ask = m.Ask(request=4, name="runs", arguments={"key": "a", "after_ms": 0, "wait": True})
    assert board.send(client, ask) == {}
    out = board.tick(1.0)
    (answer,) = out.of(client, m.Answer)
    assert answer.info == {"runs": [[run(1), 1000]], "next_ms": 2000, "is_there": True}
    later = {**ask.arguments, "after_ms": 1000}
    board.send(client, m.Ask(request=5, name="runs", arguments=later))
    out = board.send(client, m.ReleaseKeys(keys=["a"]))
    assert [answer.info["runs"] for answer in out.of(client, m.Answer)] == [[]]
    board.drop_rest()


def test_of_too_many_questions_that_wait_for_a_run_the_latest_is_refused(board, monkeypatch):
    monkeypatch.setattr(feature, "MAX_ASKED", 2)
    alice, bob = board.client(), board.client("bob")
    board.send(alice, graph("a", cron=cron("@daily")))
    arguments = {"key": "a", "after_ms": 0, "wait": True}
    for client, number in ((alice, 1), (bob, 2)):
        assert board.send(client, m.Ask(request=number, name="runs", arguments=arguments)) == {}
    out = board.send(alice, m.Ask(request=3, name="runs", arguments=arguments))
    (failed,) = out[alice]
    assert isinstance(failed, m.AskFailed)
    assert "2 questions wait for the next run of 'a'" in failed.text
    board.close(bob)  # what it has asked waits no longer
    assert board.send(alice, m.Ask(request=4, name="runs", arguments=arguments)) == {}
    board.drop_rest()


# -- detached ones ---------------------------------------------------------------------------------
def recorded_job(since_ms: int = 0, **changes: Any) -> JobAdded:
    options = {"detached": True, "cron": cron("* * * * *", since_ms=since_ms, **changes)}
    return JobAdded("a", function_id("inc"), "inc", b"pickle", b"1", [], options, m.NO_HASH, "c")


def recorded_run(minute: int) -> JobAdded:
    options = {"detached": True, "run_of": "a"}
    key = run(60 * minute)
    return JobAdded(key, function_id("inc"), "inc", b"pickle", b"1", [], options, m.NO_HASH, "c")


def restarted(*jobs: JobAdded, at_s: float, made: Iterable[str] = ()) -> Board:
    """Return the board of a scheduler that is started at this time of the clock."""
    board = Board(epoch=round(at_s * 1e9))
    board.play(SchedulerTick(journal=[JournalRead([*jobs], made=dict.fromkeys(made))]))
    board.tick()
    return board


def test_a_run_and_how_far_its_job_is_are_recorded_together():
    board = restarted(at_s=0.0)
    client = board.client()
    board.send(client, graph("a", cron=cron("* * * * *"), detached=True))
    board.tick(0.5)
    board.actions.clear()
    board.tick(60.0)
    (write,) = [action for action in board.actions if isinstance(action, WriteJournal)]
    added, changed = write.entries
    assert isinstance(added, JobAdded)
    assert isinstance(changed, JobChanged)
    assert (added.key, changed.key) == (run(60), "a")
    assert 60_000 <= changed.options["cron"]["since_ms"] < 61_000


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
@pytest.mark.parametrize(
    ("missed", "expected"), [("one", [5]), ("none", []), ("all", [2, 3, 4, 5])]
)
def test_missed_runs_are_made_by_the_next_scheduler(missed, expected, overlap):
    board = restarted(recorded_job(61_000, missed=missed, overlap=overlap), at_s=340.0)
    worker = board.worker()
    made: list[int] = []
    while runs := [s // 60 for s in known(board) if s // 60 not in made]:
        made += runs
        board.finish(worker, run(60 * runs[0]))
    assert made == expected


@pytest.mark.parametrize("overlap", ["skip", "queue", "replace"])
def test_all_missed_runs_are_made_in_order_however_many_they_are(overlap, monkeypatch):
    """More than may wait, and more than are found in a look."""
    monkeypatch.setattr(feature, "MAX_QUEUED", 20)
    monkeypatch.setattr(feature, "MAX_DUE", 8)
    n = 50
    times = {"missed": "all", "overlap": overlap, "until_ms": n * 60_000}
    board = restarted(recorded_job(0, **times), at_s=100.0 * n)
    worker = board.worker()
    (row,) = recurring_of(board.state).values()
    n_made = 0
    while run(60 * (n_made + 1)) in row.runs:
        n_made += 1
        for _ in range(3):
            board.tick()
        board.finish(worker, run(60 * n_made))
    board.tick()
    assert n_made == n
    assert board.states("a") == ["erred"]
    board.drop_rest()


def test_a_job_that_is_retried_has_missed_no_run_while_it_had_ended():
    board = restarted(at_s=1000.0)
    client = board.client()
    ask = m.Ask(request=9, name="retry_job", arguments={"key": "a"})
    board.send(client, ask)
    (asked,) = [action for action in board.actions if isinstance(action, ReadJobs)]
    read = JournalRead([recorded_job(61_000, missed="all")])
    board.play(SchedulerTick(journal=[JobsRead(asked, read)]))
    (write,) = [action for action in board.actions if isinstance(action, WriteJournal)]
    added, changed = write.entries
    assert isinstance(added, JobAdded)
    assert isinstance(changed, JobChanged)
    assert 1_000_000 <= changed.options["cron"]["since_ms"] < 1_001_000
    board.tick()
    assert known(board) == []
    board.tick(30.0)
    assert known(board) == [1020]
    board.drop_rest()


def test_a_run_of_an_earlier_scheduler_counts_as_under_way():
    board = restarted(recorded_job(61_000, missed="none"), recorded_run(1), at_s=100.0)
    worker = board.worker()
    assert known(board) == [60]
    board.tick(21.0)
    assert known(board) == [60]
    board.finish(worker, run(60))
    board.tick(60.0)
    assert known(board) == [60, 180]


def test_a_run_whose_result_was_with_a_worker_of_an_earlier_scheduler_is_over():
    recorded = recorded_job(61_000, missed="none"), recorded_run(1)
    board = restarted(*recorded, at_s=100.0, made=[run(60)])
    assert known(board) == []
    board.worker()
    board.tick(21.0)
    assert known(board) == [120]


@pytest.mark.parametrize(
    ("overlap", "missed", "expected"),
    [("skip", "one", [60, 360]), ("replace", "one", [60, 360]), ("queue", "all", [60, 120])],
)
def test_times_are_looked_at_when_the_workers_are_back(overlap, missed, expected):
    """One has the result of the latest run: that is over, and its result stays."""
    board = Board(epoch=round(400e9), expected=Members(("id of w",), ()))
    job = recorded_job(61_000, missed=missed, overlap=overlap)
    board.play(SchedulerTick(journal=[JournalRead([job, recorded_run(1)])]))
    board.tick(1.0)
    assert known(board) == [60]
    board.come_back("w", last_epoch=1, kept={run(60): 5}, functions=["inc"])
    board.tick(3.0)
    board.tick()
    assert not board.state.awaits_peers
    assert board.states(run(60)) == ["memory"]
    assert known(board) == expected
    board.drop_rest()


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.5, 400.0), st.sampled_from(["finish", "restart", "wait"])),
        max_size=12,
    ),
    st.sampled_from(["one", "all", "none"]),
    st.sampled_from(["skip", "queue", "replace"]),
)
def test_each_time_is_run_once_and_in_order_whatever_happens(steps, missed, overlap):
    clock = 0.0
    job = recorded_job(missed=missed, overlap=overlap)
    under_way: dict[str, JobAdded] = {}
    made: list[str] = []
    board = restarted(job, at_s=clock)
    for seconds, what in [(0.0, "wait"), *steps]:
        clock += seconds
        if what == "restart":
            board.drop_rest()
            board = restarted(job, *under_way.values(), at_s=clock)
        else:
            board.tick(seconds)
        worker = board.worker()
        if what == "finish":
            for key in [key for key in under_way if board.states(key) == ["processing"]]:
                board.finish(worker, key)
        for write in (action for action in board.actions if isinstance(action, WriteJournal)):
            for entry in write.entries:
                if isinstance(entry, JobAdded):
                    made.append(entry.key)
                    under_way[entry.key] = entry
                elif isinstance(entry, JobChanged):
                    job.options = entry.options
                else:
                    under_way.pop(entry.key, None)
        board.actions.clear()
        board.close(worker)
    board.drop_rest()
    assert made == sorted(set(made))
