"""Detached jobs are recorded, wanted to their end, and submitted again by the next scheduler."""

from __future__ import annotations

import pickle

import pytest

from weft.protocol.values.constants import constant
from weft.protocol.values.serialize import dumps, loads
from weft.protocol.wire import messages as m
from weft.protocol.wire.constant_calls import CONSTANT_BLOB, CONSTANT_ID, arguments_of
from weft.protocol.wire.payload import Payload
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal.entries import (
    AskJournal,
    JobAdded,
    JobEnded,
    JobForgotten,
    JobsRead,
    JournalRead,
    JournalWritten,
    ReadJobs,
    WriteJournal,
)
from weft.scheduler.core.journal.feature import RETRY_S
from weft.scheduler.core.journal.jobs import MAX_UNRECORDED_NBYTES, journal_of

from ...builders import Board, dropped, finished, function_id, graph, sent_keys


def open_board(read: JournalRead | None = None) -> Board:
    board = Board()
    board.play(SchedulerTick(journal=[read or JournalRead()]))
    return board


@pytest.fixture
def board() -> Board:
    return open_board()


def writes(board: Board) -> list[WriteJournal]:
    """Return what is to be recorded since the last event."""
    return [action for action in board.actions if isinstance(action, WriteJournal)]


def recorded(board: Board, number: int, error: str = "") -> None:
    board.play(SchedulerTick(journal=[JournalWritten(number, error)]))


def test_a_job_is_recorded_as_it_was_submitted(board):
    client = board.client()
    board.send(client, graph("a", detached=True, retries=2))
    (write,) = writes(board)
    (added,) = write.entries
    assert isinstance(added, JobAdded)
    assert (added.key, added.function_name, added.client) == ("a", "inc", "alice")
    assert (added.function_blob, added.args) == (b"pickle", b"args of a")
    assert added.options["retries"] == 2


def test_a_question_is_answered_when_all_before_is_recorded(board):
    client = board.client()
    board.send(client, graph("a", detached=True))
    (write,) = writes(board)
    ask = m.Ask(request=5, name="recorded", arguments={})
    assert board.send(client, ask) == {}
    board.send(client, graph("b", detached=True))
    board.play(SchedulerTick(journal=[JournalWritten(write.number)]))
    assert board.out == {client: [m.Answer(request=5, info={})]}
    recorded(board, write.number + 1)
    out = board.send(client, m.Ask(request=6, name="recorded", arguments={}))
    assert out == {client: [m.Answer(request=6, info={})]}


def test_a_job_runs_to_its_end_without_its_client(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    recorded(board, 1)
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert board.states("a") == ["processing"]
    board.finish(worker, "a", blob=b"result")
    (write,) = writes(board)
    assert write.entries == [JobEnded("a", "done", result=b"result")]
    assert board.states("a") == ["memory"]  # until that is recorded
    recorded(board, write.number)
    assert board.states("a") == ["-"]
    assert not journal_of(board.state).jobs


def test_a_large_result_stays_with_the_workers(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    board.send(worker, finished([board.attempt("a")], nbytes=1 << 20, blob=None))
    (write,) = writes(board)
    assert write.entries == [JobEnded("a", "done", nbytes=1 << 20)]
    recorded(board, write.number)
    assert board.states("a") == ["memory"]
    assert journal_of(board.state).jobs == {"a": "made"}


def test_workers_are_asked_for_larger_results_of_jobs_also_by_the_next_scheduler(board):
    client, worker = board.client(), board.worker()
    (message,) = board.send(client, graph("a", "b", detached=True))[worker]
    assert message.wanted == [m.WANTED_LARGE, m.WANTED_LARGE]
    jobs = [entry for write in writes(board) for entry in write.entries]
    (message,) = board.send(client, graph("c"))[worker]
    assert message.wanted == [m.WANTED]

    again = open_board(JournalRead(jobs=jobs))
    worker = again.worker()
    (message,) = (sent for sent in again.out[worker] if isinstance(sent, m.AssignTasks))
    assert (message.keys, message.wanted) == (["a", "b"], [m.WANTED_LARGE, m.WANTED_LARGE])


def test_results_beyond_what_waits_for_the_disk_stay_with_the_workers(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b", "c", detached=True))
    large = bytes(MAX_UNRECORDED_NBYTES - 1)
    board.finish(worker, "a", blob=large)
    (first,) = writes(board)
    board.finish(worker, "b", blob=b"too much")
    (second,) = writes(board)
    assert first.entries == [JobEnded("a", "done", result=large)]
    assert second.entries == [JobEnded("b", "done", nbytes=len(b"too much"))]
    recorded(board, 1)
    recorded(board, first.number, "the disk is full")  # it is tried again
    recorded(board, second.number)
    board.tick(RETRY_S + 0.1)
    (retried,) = writes(board)
    recorded(board, retried.number)
    board.finish(worker, "c", blob=b"result")
    (last,) = writes(board)
    assert last.entries == [JobEnded("c", "done", result=b"result")]


def test_a_job_that_is_forgotten_lets_go_of_its_result(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    board.send(worker, finished([board.attempt("a")], nbytes=1 << 20, blob=None))
    recorded(board, 1)
    recorded(board, 2)
    ask = m.Ask(request=4, name="forget_jobs", arguments={"keys": ["a"]})
    board.send(client, ask)
    assert [write.entries for write in writes(board)] == [[JobForgotten("a")]]
    recorded(board, 3)
    assert len(board.out.of(worker, m.DropAttempts)) == 1
    assert board.out.of(client, m.Answer) == [m.Answer(request=4, info={})]
    board.drop_rest()


def test_a_job_that_could_not_be_forgotten_is_on_record():
    board = open_board(JournalRead(ended={"a": "done"}))
    client = board.client()
    ask = m.Ask(request=4, name="forget_jobs", arguments={"keys": ["a"]})
    board.send(client, ask)
    recorded(board, 1, "the disk is full")
    text = "the jobs are not forgotten: the disk is full"
    assert board.out == {client: [m.AskFailed(request=4, kind="no-answer", text=text)]}
    assert journal_of(board.state).is_done("a")
    board.send(client, ask)
    board.send(client, graph("a", detached=True))
    recorded(board, 2, "the disk is full")
    recorded(board, 3)
    assert not journal_of(board.state).ended
    board.drop_rest()


def test_a_failure_is_recorded(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.raise_(worker, "a")
    (write,) = writes(board)
    assert write.entries == [JobEnded("a", "failed", ["exception", "a", "ValueError"])]


def test_a_job_is_cancelled_by_its_client(board):
    client = board.client()
    board.send(client, graph("a", detached=True))
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason="why"))
    (write,) = writes(board)
    assert write.entries == [JobEnded("a", "cancelled", ["cancelled", "a", "why"])]
    recorded(board, write.number)
    assert board.states("a") == ["-"]


def test_a_job_that_cannot_be_recorded_fails(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.play(SchedulerTick(journal=[JournalWritten(1, "the disk is full")]))
    (erred,) = board.out.of(client, m.KeysErred)
    assert erred.failures == [["unrecorded", "a", "the disk is full"]]
    assert len(board.out.of(worker, m.DropAttempts)) == 1
    # An earlier job of its key may be on record.
    (write,) = writes(board)
    assert write.entries == [JobEnded("a", "failed", ["unrecorded", "a", "the disk is full"])]
    recorded(board, write.number)
    assert not journal_of(board.state).jobs


def test_a_call_that_the_journal_cannot_take_goes_on_for_those_who_have_not_asked_for_it():
    """The scheduler has no journal."""
    board = Board()
    alice, bob, worker = board.client(), board.client("bob"), board.worker()
    board.send(alice, graph("a", named=True))
    out = board.send(bob, graph("a", named=True, detached=True))
    assert sent_keys(out, bob, m.KeysErred) == ["a"]
    assert alice not in out
    assert board.states("a") == ["processing"]
    out = board.finish(worker, "a")
    assert sent_keys(out, alice, m.ResultsReady) == ["a"]
    assert bob not in out
    board.drop_rest()


def test_a_refused_job_has_no_task_and_none_of_its_name_is_changed(board):
    alice, bob = board.client(), board.client("bob")
    board.send(alice, graph("a", named=True))
    assert sent_keys(board.send(bob, graph(":a -> b", detached=True)), bob, m.KeysErred) == ["b"]
    assert board.states("b") == ["-"]
    out = board.send(bob, graph("a", named="otherwise", detached=True))
    (erred,) = out.of(bob, m.KeysErred)
    assert erred.failures == [["key-conflict", "a"]]
    assert writes(board) == []
    assert not journal_of(board.state).jobs


def test_a_job_that_cannot_be_recorded_fails_for_those_who_have_submitted_it_as_a_job(board):
    alice, bob, carol = board.client(), board.client("bob"), board.client("carol")
    worker = board.worker()
    for client, options in ((alice, {}), (bob, {"detached": True}), (carol, {"detached": True})):
        board.send(client, graph("a", named=True, **options))
    board.send(bob, graph(":a -> b", detached=True))
    recorded(board, 1, "the disk is full")
    assert sent_keys(board.out, bob, m.KeysErred) == ["a", "b"]
    assert sent_keys(board.out, carol, m.KeysErred) == ["a"]
    assert alice not in board.out
    assert board.states("a", "b") == ["processing", "erred"]
    (write,) = writes(board)
    failure = ["unrecorded", "a", "the disk is full"]
    ends = [JobEnded(key, "failed", failure) for key in "ba"]
    assert write.entries == ends
    recorded(board, 2)
    recorded(board, 3)
    assert not journal_of(board.state).jobs
    out = board.finish(worker, "a")
    assert sent_keys(out, alice, m.ResultsReady) == ["a"]
    assert [*out] == [alice]
    board.send(bob, m.ReleaseKeys(keys=["a", "b"]))
    board.send(alice, m.ReleaseKeys(keys=["a"]))
    assert board.states("a", "b") == ["-", "-"]
    board.drop_rest()


def test_a_job_that_was_cancelled_before_its_beginning_could_not_be_recorded_has_ended(board):
    """It stays known, because a task that has failed with it is wanted."""
    client = board.client()
    board.send(client, graph("a", detached=True), graph("a -> b"))
    board.send(client, m.CancelKeys(keys=["a"], force=True, reason="why"))
    assert board.states("a", "b") == ["released", "erred"]
    recorded(board, 1, "the disk is full")
    assert board.states("a", "b") == ["released", "erred"]
    recorded(board, 2)
    recorded(board, 3)
    assert not journal_of(board.state).jobs
    assert not journal_of(board.state).ending


def test_a_result_of_a_job_that_cannot_be_recorded_is_none(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.finish(worker, "a")
    board.play(SchedulerTick(journal=[JournalWritten(1, "the disk is full")]))
    assert sent_keys(board.out, client, m.KeysErred) == ["a"]
    assert len(dropped(board.out, worker)) == 1
    recorded(board, 2)
    assert journal_of(board.state).jobs == {"a": "pending"}
    recorded(board, 3)
    assert not journal_of(board.state).jobs
    assert not journal_of(board.state).ended


def test_an_end_that_cannot_be_recorded_is_tried_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    recorded(board, 1)
    board.finish(worker, "a")
    recorded(board, 2, "the disk is full")
    assert board.states("a") == ["memory"]
    board.tick(RETRY_S + 0.1)
    (write,) = writes(board)
    assert [type(entry) for entry in write.entries] == [JobEnded]
    recorded(board, write.number)
    assert not journal_of(board.state).jobs


def test_an_end_that_the_database_does_not_take_is_not_tried_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    recorded(board, 1)
    board.finish(worker, "a")
    board.play(SchedulerTick(journal=[JournalWritten(2, refused=["a"])]))
    assert (journal_of(board.state).jobs, journal_of(board.state).ended) == ({}, {})
    board.tick(RETRY_S + 0.1)
    assert writes(board) == []


def test_a_key_with_a_nul_character_is_refused_as_that_of_a_job(board):
    client = board.client()
    (erred,) = board.send(client, graph("a\0b", "c", detached=True)).of(client, m.KeysErred)
    assert (erred.keys, erred.failures[0][0]) == (["a\0b"], "unrecorded")
    assert "has a NUL character" in erred.failures[0][2]
    (write,) = writes(board)
    assert [entry.key for entry in write.entries] == ["c"]


def test_a_scheduler_without_a_journal_refuses_jobs():
    board = Board()
    client = board.client()
    out = board.send(client, graph("a", detached=True))
    (erred,) = out.of(client, m.KeysErred)
    assert erred.failures[0][0] == "unrecorded"
    assert "has no journal" in erred.failures[0][2]
    out = board.send(client, m.Ask(request=1, name="jobs", arguments={}))
    assert [type(x) for x in out[client]] == [m.AskFailed]


@pytest.mark.parametrize("options", [{}, {"conditions": [["done", "a"]]}])
def test_a_job_waits_for_jobs_only(board, options):
    client = board.client()
    board.send(client, graph("a"))
    rows = graph("b" if options else ":a -> b", detached=True, **options)
    out = board.send(client, rows)
    (erred,) = out.of(client, m.KeysErred)
    assert erred.failures[0][:2] == ["unrecorded", "b"]
    assert "it waits for a, which is not detached" in erred.failures[0][2]


def test_jobs_that_the_journal_has_forgotten_are_read_by_no_new_ones(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.finish(worker, "a", blob=b"result")
    recorded(board, 1)
    board.play(SchedulerTick(journal=[JournalWritten(2, "", ["a"])]))
    assert not journal_of(board.state).ended


def test_questions_about_jobs_are_for_the_shell(board):
    client = board.client()
    board.send(client, question := m.Ask(request=3, name="jobs", arguments={"state": "done"}))
    assert [a for a in board.actions if isinstance(a, AskJournal)] == [AskJournal(client, question)]


def job(key: str, *dependencies: str, **options: object) -> JobAdded:
    name = function_id("inc")
    return JobAdded(
        key, name, "inc", b"pickle", b"args", [*dependencies], {"detached": True, **options},
        m.NO_HASH, "alice",
    )  # fmt: skip


def test_the_next_scheduler_submits_what_has_not_ended():
    board = open_board(JournalRead([job("a"), job("b", "a", priority=3)]))
    assert writes(board) == []  # it is recorded already
    worker = board.worker()
    assert board.states("a", "b") == ["processing", "processing"]
    board.finish(worker, "a", "b")
    ends = [entry for write in writes(board) for entry in write.entries]
    assert [end.key for end in ends] == ["a", "b"]


def test_results_that_jobs_read_are_given_as_constants():
    read = JournalRead([job("b", "a")], results={"a": dumps(7)})
    board = open_board(read)
    worker = board.worker()
    sent = board.out.of(worker, m.AssignTasks)[0]
    assert sent.keys == ["a", "b"]
    assert sent.functions == [CONSTANT_ID, function_id("inc")]
    board.finish(worker, "a")
    assert writes(board) == []  # its end is recorded already
    board.finish(worker, "b")
    assert [end.key for write in writes(board) for end in write.entries] == ["b"]


def test_a_result_that_workers_have_is_not_made_again():
    board = open_board(JournalRead([job("a")], made={"a": None}))
    board.worker()
    assert board.states("a") == ["released"]
    client = board.client()
    board.send(client, m.WantKeys(keys=["a"]))
    assert board.states("a") == ["processing"]  # no worker has come back with it


@pytest.mark.parametrize("value", [7, b"bytes", {"a": [1, 2]}, bytearray(300_000)])
def test_constants_are_pickles_without_pickle(value):
    blob = Payload(*_packed(value)) if isinstance(value, bytearray) else dumps(value)
    (argument,) = pickle.loads(arguments_of(blob))
    assert pickle.loads(CONSTANT_BLOB) is constant
    assert constant(argument) == value
    assert loads(blob) == value


def _packed(value: object) -> tuple[bytes, list[bytes]]:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(pickle.PickleBuffer(value), 5, buffer_callback=buffers.append)  # type: ignore[arg-type]
    return data, [bytes(buffer) for buffer in buffers]


def test_a_restarted_job_is_known_by_its_keys(board):
    client = board.client()
    board.send(client, graph("a", detached=True))
    assert sent_keys(board.send(client, graph("a", detached=True)), client, m.KeysPending) == ["a"]
    assert writes(board) == []


def test_a_result_that_its_client_has_is_no_new_job(board):
    client = board.client()
    board.send(client, graph("a", detached=True, delivered=True))
    assert board.states("a") == ["released"]
    assert writes(board) == []


def test_a_result_that_its_client_has_is_no_new_job_also_where_another_task_reads_it(board):
    client, _ = board.client(), board.worker()
    board.send(client, graph("a", delivered=True), graph(":a -> b"))
    board.send(client, graph("a", detached=True, delivered=True))
    assert board.states("a") == ["processing"]
    assert writes(board) == []


def test_a_job_is_recorded_as_one_that_runs_though_another_client_has_its_result(board):
    owner, other = board.client("owner"), board.client("other")
    board.send(owner, graph("a", detached=True, delivered=True))
    board.send(other, graph("a", detached=True))
    (added,) = [entry for write in writes(board) for entry in write.entries]
    assert "delivered" not in added.options


def test_a_job_that_fails_at_once_is_recorded_with_its_failure(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.raise_(worker, "a")
    board.send(client, graph(":a -> b", detached=True))
    entries = [entry for write in writes(board) for entry in write.entries]
    assert [type(entry) for entry in entries] == [JobAdded, JobEnded]
    assert entries[1].state == "failed"


def test_a_job_that_begins_anew_while_its_end_is_recorded_is_recorded_anew(board):
    client = board.client()
    board.send(client, graph("a", detached=True))
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason="why"))
    board.send(client, graph("a", detached=True))
    for number in (1, 2, 3):
        recorded(board, number)
    assert journal_of(board.state).jobs == {"a": "pending"}
    assert board.states("a") == ["no_worker"]


@pytest.mark.parametrize("failing", [1, 2])
def test_a_job_that_begins_anew_is_not_ended_by_what_was_being_recorded_of_it(board, failing):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.raise_(worker, "a")
    if failing == 2:  # so that its end is to be tried again
        recorded(board, 1)
        recorded(board, 2, "the disk is full")
    board.send(client, graph("a", detached=True))
    assert [type(entry) for write in writes(board) for entry in write.entries] == [JobAdded]
    if failing == 1:
        recorded(board, 1, "the disk is full")
        recorded(board, 2)
    board.tick(RETRY_S + 0.1)
    assert writes(board) == []
    recorded(board, 3)
    assert journal_of(board.state).jobs == {"a": "pending"}
    assert board.states("a") == ["processing"]


# -- jobs run again --------------------------------------------------------------------------------
def failed_job(board: Board) -> tuple[int, int]:
    """Return the client and the worker of a board on which job `a` has failed, as is recorded."""
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.raise_(worker, "a")
    recorded(board, 1)
    recorded(board, 2)
    return client, worker


def retry(board: Board, client: int, key: str) -> list[object]:
    """Ask for a job to run again; return what is sent at once, or the reading that is asked for."""
    out = board.send(client, m.Ask(request=9, name="retry_job", arguments={"key": key}))
    return out.get(client, []) or [a for a in board.actions if isinstance(a, ReadJobs)]


def test_a_job_that_has_failed_runs_again_when_it_is_read_and_is_recorded_anew(board):
    client, worker = failed_job(board)
    (asked,) = retry(board, client, "a")
    assert asked == ReadJobs(client, 9, "a")
    read = JournalRead([job("a", retries=3, start_ms=1 << 45, end_by_ms=5)])
    board.play(SchedulerTick(journal=[JobsRead(asked, read)]))
    (write,) = writes(board)
    (added,) = write.entries
    assert isinstance(added, JobAdded)
    assert (added.key, added.options["retries"]) == ("a", 3)
    assert {"start_ms", "end_by_ms"}.isdisjoint(added.options)
    assert board.states("a") == ["processing"]
    assert client not in board.out  # until it is recorded
    recorded(board, write.number)
    assert board.out == {client: [m.Answer(request=9, info={})]}
    board.finish(worker, "a", blob=b"result")
    (write,) = writes(board)
    assert write.entries == [JobEnded("a", "done", result=b"result")]


def test_jobs_that_have_failed_before_a_job_run_again_with_it_and_read_what_was_recorded(board):
    client, worker = failed_job(board)
    (asked,) = retry(board, client, "c")
    read = JournalRead([job("a"), job("c", "a", "b")], results={"b": dumps(7)})
    board.play(SchedulerTick(journal=[JobsRead(asked, read)]))
    assert [entry.key for write in writes(board) for entry in write.entries] == ["a", "c"]
    board.finish(worker, "b", "a")
    board.finish(worker, "c", blob=b"result")
    assert [entry.key for write in writes(board) for entry in write.entries] == ["c"]


def test_only_what_has_ended_badly_runs_again(board):
    client, worker = failed_job(board)
    (asked,) = retry(board, client, "a")
    board.play(SchedulerTick(journal=[JobsRead(asked, JournalRead([job("a")]))]))
    assert "has not ended" in retry(board, client, "a")[0].text
    # Two have asked before either was read.
    board.play(SchedulerTick(journal=[JobsRead(asked, JournalRead([job("a")]))]))
    assert "has not ended" in board.out[client][0].text
    assert writes(board) == []
    board.finish(worker, "a", blob=b"result")
    for number in (3, 4):
        recorded(board, number)
    assert "is done" in retry(board, client, "a")[0].text
    (asked,) = retry(board, client, "x")
    report = JobsRead(asked, JournalRead(), "the journal has no job 'x' any more")
    board.play(SchedulerTick(journal=[report]))
    assert board.out[client][0].text == report.problem
    without = Board()
    assert "no journal" in retry(without, without.client(), "a")[0].text


@pytest.mark.parametrize("key", [None, 7, ["a"], {"a": 1}])
@pytest.mark.parametrize("name", ["retry_job", "forget_jobs"])
def test_a_question_with_keys_that_are_none_is_refused_and_nothing_is_recorded(board, name, key):
    client = board.client()
    arguments = {"key": key} if name == "retry_job" else {"keys": [key]}
    ((failed,),) = board.send(client, m.Ask(request=3, name=name, arguments=arguments)).values()
    assert (failed.request, failed.kind) == (3, "bad-argument")
    assert writes(board) == []
