"""A job is accepted when its beginning is recorded, also if it has ended before."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal import jobs as jobs_module
from weft.scheduler.core.journal.entries import (
    JobEnded,
    JobsRead,
    JournalProbed,
    JournalRead,
    JournalWritten,
)
from weft.scheduler.core.journal.feature import RETRY_S
from weft.scheduler.core.journal.jobs import journal_of

from ...builders import Board, graph
from .test_journal import failed_job, job, open_board, recorded, retry, writes

FULL = "the disk is full"


@pytest.fixture
def board() -> Board:
    return open_board()


def ask(board: Board, client: int, *keys: str, request: int = 5) -> list[object]:
    """Ask which jobs are not recorded; return what is sent at once."""
    question = m.Ask(request=request, name="recorded", arguments={"keys": [*keys]})
    return board.send(client, question).get(client, [])


def answer(**unrecorded: str) -> m.Answer:
    return m.Answer(request=5, info={"unrecorded": unrecorded})


def end_a(board: Board, client: int, worker: int, how: str) -> None:
    if how == "cancelled":
        board.send(client, m.CancelKeys(keys=["a"], force=False, reason="why"))
    elif how == "failed":
        board.raise_(worker, "a")
    else:
        blob = b"result" if how == "done" else None
        board.finish(worker, "a", blob=blob)


@pytest.mark.parametrize("how", ["done", "made", "failed", "cancelled"])
def test_a_job_that_has_ended_before_its_beginning_could_not_be_recorded_is_not_accepted(
    board, how
):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b", detached=True))
    end_a(board, client, worker, how)
    assert ask(board, client, "a", "b") == []
    recorded(board, 1, FULL)
    recorded(board, 2)
    assert board.out.of(client, m.Answer) == [answer(a=FULL, b=FULL)]
    # It is no job on record for others either.
    board.tick(RETRY_S + 0.1)
    for number in [*journal_of(board.state).batches]:
        recorded(board, number)
    assert journal_of(board.state).jobs == {}
    assert journal_of(board.state).ended == {}
    assert ask(board, client, "a") == [answer(a=FULL)]
    (erred,) = board.send(client, graph("c", detached=True, conditions=[["ended", "a"]])).of(
        client, m.KeysErred
    )
    assert erred.failures[0][:2] == ["unrecorded", "c"]


def test_a_job_that_is_accepted_the_second_time_is_recorded(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.raise_(worker, "a")
    recorded(board, 1, FULL)
    board.send(client, graph("a", detached=True))
    assert ask(board, client, "a") == []
    for number in [*journal_of(board.state).batches]:
        recorded(board, number)
    assert board.out.of(client, m.Answer) == [answer()]


def test_a_job_that_fails_with_one_that_is_not_recorded_is_on_record_itself(board):
    client = board.client()
    board.send(client, graph("a", detached=True))
    board.send(client, graph(":a -> b", detached=True))
    recorded(board, 1, FULL)
    ends = [entry for write in writes(board) for entry in write.entries]
    assert [end.key for end in ends if isinstance(end, JobEnded)] == ["a", "b"]
    for number in [*journal_of(board.state).batches]:
        recorded(board, number)
    assert journal_of(board.state).ended == {"b": "failed"}
    assert ask(board, client, "a", "b") == [answer(a=FULL)]


def test_an_earlier_job_of_a_key_stays_on_record_if_the_next_one_is_not_recorded(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.finish(worker, "a", blob=b"result")
    board.send(client, m.ReleaseKeys(keys=["a"]))
    recorded(board, 1)
    recorded(board, 2)
    board.send(client, graph("a", detached=True))
    recorded(board, 3, FULL)
    recorded(board, 4)
    assert journal_of(board.state).ended == {"a": "done"}


def test_the_latest_jobs_on_no_record_are_known(board, monkeypatch):
    monkeypatch.setattr(jobs_module, "MAX_UNRECORDED", 2)
    client = board.client()
    for number, key in enumerate("abc", 1):
        board.send(client, graph(key, detached=True))
        recorded(board, number * 2 - 1, FULL)
        recorded(board, number * 2)
    assert ask(board, client, "a", "b", "c") == [answer(b=FULL, c=FULL)]


def test_a_scheduler_without_a_journal_has_recorded_nothing():
    board = Board()
    (answered,) = ask(board, board.client(), "a")
    assert "has no journal" in answered.info["unrecorded"]["a"]


def test_a_question_with_keys_that_are_none_is_refused(board):
    client = board.client()
    question = m.Ask(request=5, name="recorded", arguments={"keys": "abc"})
    (failed,) = board.send(client, question)[client]
    assert failed.kind == "bad-argument"


def test_a_job_that_is_to_run_again_and_cannot_be_recorded_does_not_run(board):
    client, _ = failed_job(board)
    (asked,) = retry(board, client, "a")
    board.play(SchedulerTick(journal=[JobsRead(asked, JournalRead([job("a")]))]))
    (write,) = writes(board)
    board.play(SchedulerTick(journal=[JournalWritten(write.number, FULL)]))
    (failed,) = board.out.of(client, m.AskFailed)
    assert failed.text == f"job 'a' does not run again: {FULL}"
    recorded(board, write.number + 1)
    assert journal_of(board.state).ended == {"a": "failed"}


def test_an_outage_that_a_look_at_the_database_finds_is_said_until_it_is_over():
    board = open_board()
    error = "the journal x cannot be written: it is away"
    board.play(SchedulerTick(journal=[JournalProbed(error)]))
    assert (journal_of(board.state).error, journal_of(board.state).failed_at) == (error, board.now)
    board.play(SchedulerTick(journal=[JournalProbed()]))
    assert journal_of(board.state).error == ""
