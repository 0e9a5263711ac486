"""Jobs keep their users: they have their turns and limits, also in the next scheduler."""

from __future__ import annotations

import pytest

from weft.protocol.rotation import USER_SHIFT
from weft.protocol.wire import messages as m
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal import resubmission
from weft.scheduler.core.journal.entries import (
    JobAdded,
    JobEnded,
    JobsRead,
    JournalRead,
    JournalWritten,
    ReadJobs,
    WriteJournal,
)
from weft.scheduler.core.journal.jobs import journal_of
from weft.scheduler.core.upkeep.running_limits import running_limits_of
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from ...builders import Board, function_id, graph, sent_keys


def open_board(*jobs: JobAdded, max_running: int = 0, max_rows: int = 0, **read: object) -> Board:
    board = Board()
    limits = user_limits_of(board.state)
    limits.max_running, limits.max_rows = max_running, max_rows
    board.play(SchedulerTick(journal=[JournalRead([*jobs], **read)]))
    return board


def job(key: str, *dependencies: str, user: str = "", **options: object) -> JobAdded:
    options = {"detached": True, **options}
    return JobAdded(
        key, function_id("inc"), "inc", b"pickle", b"args", [*dependencies], options,
        m.NO_HASH, "c", user,
    )  # fmt: skip


def users_recorded(board: Board) -> dict[str, str]:
    """Return the users of the jobs whose beginnings the last event has recorded."""
    writes = [action for action in board.actions if isinstance(action, WriteJournal)]
    entries = [entry for write in writes for entry in write.entries]
    return {entry.key: entry.user for entry in entries if isinstance(entry, JobAdded)}


def users_of(board: Board, *keys: str) -> list[str]:
    return [board.task(key).group.user.name for key in keys]


def test_a_job_is_recorded_with_the_user_of_its_client():
    board = open_board()
    board.send(board.client("a", user="ann"), graph("a", detached=True))
    assert users_recorded(board) == {"a": "ann"}
    board.send(board.client("b"), graph("b", detached=True))
    assert users_recorded(board) == {"b": ""}


def test_a_job_of_a_task_has_the_user_of_the_task():
    board = open_board()
    board.worker(nthreads=2)
    board.send(board.client("a", user="ann"), graph("parent"))
    in_task = board.client("t", worker_id="id of w")
    board.send(in_task, graph("child", attempt=board.attempt("parent"), detached=True))
    assert users_recorded(board) == {"child": "ann"}


def test_a_job_that_another_has_submitted_as_a_task_has_the_user_of_its_client():
    board = open_board()
    board.send(board.client("b", user="bob"), graph("a"))
    board.send(board.client("a", user="ann"), graph("a", detached=True))
    assert users_recorded(board) == {"a": "ann"}
    assert users_of(board, "a") == ["bob"]


def test_a_run_of_a_recurring_job_has_the_user_of_the_job():
    cron = {
        "expression": "* * * * * *", "zone": "UTC", "since_ms": 0, "until_ms": 0,
        "overlap": "skip", "missed": "one",
    }  # fmt: skip
    board = open_board(job("a", user="ann", cron=cron))
    board.tick(1.2)
    assert users_recorded(board) == {"a@1970-01-01T00:00:01+00:00": "ann"}


def test_the_next_scheduler_limits_what_runs_of_a_user():
    jobs = [job("a0", user="ann"), job("a1", user="ann"), job("b", user="bob"), job("c"), job("d")]
    board = open_board(*jobs, max_running=1)
    worker = board.worker(nthreads=8)
    assert board.states("a0", "a1", "b") == ["processing", "no_worker", "processing"]
    # Those without a user have had clients of their own.
    assert board.states("c", "d") == ["processing", "processing"]
    board.send(board.client("x", user="ann"), graph("a2"))
    assert board.states("a2") == ["no_worker"]
    board.finish(worker, "a0", blob=b"r")
    assert board.states("a1", "a2") == ["processing", "no_worker"]
    board.finish(worker, "a1", blob=b"r")
    assert board.states("a2") == ["processing"]
    board.finish(worker, "a2")
    board.finish(worker, "b", blob=b"r")
    assert running_limits_of(board.state) == {}
    board.drop_rest()


def test_a_user_may_have_a_limit_of_its_own_in_the_next_scheduler(board):
    user_limits_of(board.state).of_users = {"ann": {"running": 2}}
    jobs = [job(f"{user}{n}", user=user) for n in range(3) for user in ("ann", "bob")]
    board.play(SchedulerTick(journal=[JournalRead(jobs)]))
    board.worker(nthreads=8)
    assert board.states("ann0", "ann1", "ann2") == ["processing", "processing", "no_worker"]
    assert board.states("bob0", "bob1", "bob2") == ["processing"] * 3
    board.drop_rest()


def test_the_next_scheduler_counts_the_jobs_of_a_user():
    board = open_board(job("a", user="ann"), job("b", user="ann"), job("c"), max_rows=2)
    ann, bob = board.client("a", user="ann"), board.client("b", user="bob")
    out = board.send(ann, graph("x"))
    assert sent_keys(out, ann, m.KeysErred) == ["x"]
    board.send(bob, graph("y"))
    assert board.states("a", "b", "y") == ["no_worker"] * 3
    board.drop_rest()


def test_the_next_scheduler_gives_turns_to_users():
    jobs = [*(job(f"a{n}", user="ann") for n in range(100)), job("b", user="bob")]
    board = open_board(*jobs)
    worker = board.worker()
    assert board.where("b") == worker
    assert board.states("a0", "a99") == ["processing", "queued"]
    numbers = {board.task(key).group.client >> USER_SHIFT for key in ("a0", "b")}
    assert numbers == {board.state.users[name].number for name in ("ann", "bob")}
    board.client("other", user="ann")
    assert board.state.clients["other"].user is board.task("a0").group.user
    board.drop_rest()


@pytest.mark.parametrize("max_rows", [1, 2, 4096])
def test_jobs_of_several_users_that_wait_for_one_another_are_submitted(monkeypatch, max_rows):
    monkeypatch.setattr(resubmission, "MAX_ROWS", max_rows)
    jobs = [
        job("a", "r", user="ann"),
        job("b", "a", user="bob"),
        job("c"),
        job("d", user="ann", conditions=[["done", "b"], ["ended", "c"]]),
        job("e", "a", "d", user="ann"),
        job("f", "e"),
    ]
    board = open_board(*jobs, results={"r": b"result"}, ended={"r": "done"})
    assert users_of(board, *"abcdef") == ["ann", "bob", "", "ann", "ann", ""]
    worker = board.worker(nthreads=2)
    for key in ("r", "a", "c", "b", "d", "e", "f"):
        board.finish(worker, key, blob=b"result")
    ends = [
        entry.key
        for batch in journal_of(board.state).batches.values()
        for entry in batch.entries
        if isinstance(entry, JobEnded) and entry.state == "done"
    ]
    assert sorted(ends) == [*"abcdef"]


def test_jobs_of_one_user_are_one_message(monkeypatch):
    messages = []
    submission = resubmission._submission
    monkeypatch.setattr(
        resubmission,
        "_submission",
        lambda jobs, made: messages.append([one.key for one in jobs]) or submission(jobs, made),
    )
    open_board(*(job(f"{user}{n}", user=user) for n in range(50) for user in ("ann", "bob", "")))
    assert [len(keys) for keys in messages] == [50, 50, 50]
    assert messages[0] == [f"ann{n}" for n in range(50)]


def test_a_job_that_runs_again_has_its_user():
    board = open_board()
    board.worker(nthreads=8)
    bob = board.client("b", user="bob")
    ask = m.Ask(request=4, name="retry_job", arguments={"key": "b"})
    board.send(bob, ask)
    (asked,) = [action for action in board.actions if isinstance(action, ReadJobs)]
    read = JournalRead([job("a", user="ann"), job("b", "a")])
    board.play(SchedulerTick(journal=[JobsRead(asked, read)]))
    assert users_recorded(board) == {"a": "ann", "b": ""}
    assert users_of(board, "a", "b") == ["ann", ""]
    (number,) = journal_of(board.state).batches
    board.play(SchedulerTick(journal=[JournalWritten(number, "")]))
    assert board.out[bob] == [m.Answer(request=4, info={})]
