"""Conditions on jobs: they are judged once, whatever becomes of the other job and the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal.entries import JobChanged, JournalWritten, WriteJournal
from weft.scheduler.core.journal.jobs import journal_of

from ...builders import Board, graph
from ..arrays.acts import array
from ..arrays.disk import Disk


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def board(disk) -> Board:
    return disk.board()


def submit(board: Board, disk: Disk, client: int, *texts: str, **options: Any) -> None:
    board.send(client, graph(*texts, detached=True, **options))
    disk.commit(board)


def end(board: Board, disk: Disk, client: int, worker: int, key: str, how: str) -> None:
    if how == "done":
        board.finish(worker, key, blob=b"result")
    elif how == "failed":
        board.raise_(worker, key)
    else:
        board.send(client, m.CancelKeys(keys=[key], force=True, reason="why"))
    disk.commit(board)
    board.send(client, m.ReleaseKeys(keys=[key]))


def ask(board: Board, disk: Disk, client: int, name: str, **arguments: object) -> list[object]:
    out = board.send(client, m.Ask(request=9, name=name, arguments=arguments))
    disk.commit(board)
    return out.get(client, [])


def forget(board: Board, disk: Disk, client: int, worker: int) -> None:
    ask(board, disk, client, "forget_jobs", keys=["a"])
    assert "a" not in disk.jobs


def retry(board: Board, disk: Disk, client: int, worker: int) -> None:
    ask(board, disk, client, "retry_job", key="a")
    board.finish(worker, "a", blob=b"result")
    disk.commit(board)
    assert disk.ended["a"].state == "done"


def submit_anew(board: Board, disk: Disk, client: int, worker: int) -> None:
    submit(board, disk, client, "a")
    board.send(client, m.CancelKeys(keys=["a"], force=True, reason="why"))
    disk.commit(board)
    assert disk.ended["a"].state == "cancelled"


def drop(board: Board, disk: Disk, client: int, worker: int) -> None:
    """Let the database drop it, as the oldest one."""
    submit(board, disk, client, "x")
    board.finish(worker, "x", blob=b"result")
    (write,) = disk.left
    assert isinstance(write, WriteJournal)
    disk.left = []
    disk.apply(write)
    del disk.jobs["a"], disk.ended["a"]
    board.play(SchedulerTick(journal=[JournalWritten(write.number, dropped=["a"])]))
    disk.commit(board)


@pytest.mark.parametrize("then", [forget, retry, submit_anew, drop])
@pytest.mark.parametrize("is_array", [False, True])
def test_a_condition_that_is_met_stays_so_over_a_restart(
    board, disk, then: Callable[..., None], is_array
):
    client, worker = board.client(), board.worker(nthreads=4)
    submit(board, disk, client, "a", "c")
    waits = {"conditions": [["failed", "a"], ["done", "c"]]}
    board.send(
        client, array(2, key="b", **waits) if is_array else graph("b", detached=True, **waits)
    )
    disk.commit(board)
    end(board, disk, client, worker, "a", "failed")
    then(board, disk, client, worker)
    again = disk.board(epoch=8)
    client, worker = again.client(), again.worker(nthreads=4)
    again.finish(worker, "c", blob=b"result")
    disk.commit(again)
    assert again.states("b/0" if is_array else "b") == ["processing"]
    # And in one more, before it has ended.
    last = disk.board(epoch=9)
    last.worker(nthreads=4)
    assert last.states("b/0" if is_array else "b") == ["processing"]


def test_a_condition_that_is_not_met_yet_stays_on_record(board, disk):
    client, worker = board.client(), board.worker()
    submit(board, disk, client, "a", "c")
    submit(board, disk, client, "b", conditions=[["failed", "a"], ["done", "c"]])
    end(board, disk, client, worker, "a", "failed")
    board.send(client, m.Ask(request=9, name="forget_jobs", arguments={"keys": ["a"]}))
    changes = [x for write in disk.left for x in write.entries if isinstance(x, JobChanged)]
    assert [(x.key, x.options["conditions"]) for x in changes] == [("b", [["done", "c"]])]
    disk.commit(board)
    again = disk.board(epoch=8)
    client, worker = again.client(), again.worker()
    again.raise_(worker, "c")
    disk.commit(again)
    assert disk.ended["b"].state == "cancelled"
    assert disk.ended["b"].failure[2] == "it was to run when c is done, and that has failed"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_job_that_another_reads_is_not_forgotten_before_that_has_ended(board, disk, restarts):
    client, worker = board.client(), board.worker()
    submit(board, disk, client, "a -> b", "c")
    end(board, disk, client, worker, "a", "done")
    if restarts:
        board = disk.board(epoch=8)
        client, worker = board.client(), board.worker()
        board.finish(worker, "a", blob=b"result")  # a constant by now
    (failed,) = ask(board, disk, client, "forget_jobs", keys=["c"])
    assert failed.text == "job 'c' has not ended: cancel it first"
    (failed,) = ask(board, disk, client, "forget_jobs", keys=["a"])
    assert failed.text == "job 'b' reads 'a', and has not ended: cancel it first"
    board.finish(worker, "b", blob=b"result")
    disk.commit(board)
    ask(board, disk, client, "forget_jobs", keys=["a"])
    assert "a" not in disk.jobs


@pytest.mark.parametrize("has_ended", [False, True])
def test_a_condition_on_a_job_of_another_client(board, disk, has_ended):
    alice, bob, worker = board.client("alice"), board.client("bob"), board.worker()
    submit(board, disk, alice, "a", "c")
    if has_ended:
        end(board, disk, alice, worker, "a", "failed")
        assert board.states("a") == ["-"]
    submit(board, disk, bob, "b", conditions=[["failed", "a"], ["ended", "c"]])
    board.send(bob, graph("d", conditions=[["failed", "a"], ["ended", "c"]]))  # no job
    if not has_ended:
        end(board, disk, alice, worker, "a", "failed")
    assert board.states("b", "d") == ["waiting", "waiting"]
    end(board, disk, alice, worker, "c", "done")
    assert board.states("b", "d") == ["processing", "processing"]


def test_a_job_is_cancelled_by_the_next_scheduler_if_its_condition_is_on_record_as_not_met(
    board, disk
):
    client = board.client()
    board.worker()
    submit(board, disk, client, "a")
    submit(board, disk, client, "b", conditions=[["done", "a"]])
    submit(board, disk, client, "c", conditions=[["cancelled", "b"]])
    board.send(client, m.CancelKeys(keys=["a"], force=True, reason="why"))
    (first, *_) = disk.left
    first.entries = [entry for entry in first.entries if entry.key == "a"]
    disk.apply(first)  # the process was killed before more was committed
    again = disk.board(epoch=8)
    again.worker()
    disk.commit(again)
    assert {key: end.state for key, end in disk.ended.items()} == {
        "a": "cancelled",
        "b": "cancelled",
    }
    assert again.states("c") == ["processing"]


@pytest.mark.parametrize("wanted", ["cancelled", "done"])
def test_a_job_that_was_cancelled_and_is_not_recorded_so_yet_is_known_as_that(board, disk, wanted):
    client = board.client()
    board.worker()
    submit(board, disk, client, "a")
    board.send(client, m.CancelKeys(keys=["a"], force=True, reason="why"))
    assert board.states("a") == ["-"]
    out = board.send(client, graph("b", detached=True, conditions=[[wanted, "a"]]))
    if wanted == "cancelled":
        assert board.states("b") == ["processing"]
    else:
        (cancelled,) = out.of(client, m.KeysCancelled)
        assert cancelled.reason == "it was to run when a is done, and that was cancelled"
    assert journal_of(board.state).ending.keys() >= {"a"}


def test_an_array_that_has_ended_meets_conditions_after_a_restart(board, disk):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, array(2, key="arr"))
    submit(board, disk, client, "c")
    submit(board, disk, client, "b", conditions=[["failed", "arr"], ["ended", "c"]])
    board.raise_(worker, "arr/0")
    board.finish(worker, "arr/1", blob=b"result")
    disk.commit(board)
    board.tick()
    disk.commit(board)
    assert disk.ended["arr"].state == "failed"
    again = disk.board(epoch=8)
    worker = again.worker()
    again.finish(worker, "c", blob=b"result")
    assert again.states("b") == ["processing"]
