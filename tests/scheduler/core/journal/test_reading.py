"""Jobs that have ended: others wait for their ends, and clients come back for their results."""

from __future__ import annotations

import pytest

from weft.protocol.values.serialize import dumps
from weft.protocol.wire import messages as m
from weft.protocol.wire.constant_calls import CONSTANT_ID
from weft.scheduler.core.conditions.no_worker_limit import no_worker_limit_of
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal.entries import (
    EndsRead,
    JobEnded,
    JournalRead,
    ReadEnds,
)
from weft.scheduler.core.journal.feature import RETRY_S
from weft.scheduler.core.journal.jobs import journal_of
from weft.scheduler.core.journal.reading import LOOK_S, READ_AGAIN_S
from weft.scheduler.core.records.presence import Members

from ...builders import Board, finished, graph, sent_keys
from .test_journal import job, open_board, recorded, writes

ENDED: dict[str, str] = {"a": "done", "b": "failed"}
ENDS = [
    (JobEnded("a", "done", result=dumps(7)), m.NO_HASH),
    (JobEnded("b", "failed", ["exception", "b", "x"]), m.NO_HASH),
]


def reads(board: Board) -> list[ReadEnds]:
    """Return what is to be read since the last event."""
    return [action for action in board.actions if isinstance(action, ReadEnds)]


def test_a_client_that_comes_back_gets_what_is_on_record_and_nothing_runs_again():
    board = open_board(JournalRead(ended={**ENDED}))
    client, worker = board.client(), board.worker()
    assert board.send(client, m.WantKeys(keys=["b", "a", "c"])).of(client, m.KeysUnknown) == [
        m.KeysUnknown(keys=["c"])
    ]
    (asked,) = reads(board)
    assert asked.keys == ["b", "a"]
    board.tick(11.0)  # nobody gives them up
    assert board.states("a", "b") == ["no_worker", "no_worker"]
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS)]))
    assert sent_keys(board.out, client, m.KeysErred) == ["b"]
    (sent,) = board.out.of(worker, m.AssignTasks)
    assert (sent.keys, sent.functions) == (["a"], [CONSTANT_ID])
    out = board.finish(worker, "a", blob=dumps(7))
    assert sent_keys(out, client, m.ResultsReady) == ["a"]
    assert writes(board) == []
    board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    board.drop_rest()
    assert board.states("a", "b") == ["-", "-"]


def test_a_job_reads_the_result_of_one_that_is_on_record():
    board = open_board(JournalRead(ended={**ENDED}))
    client, worker = board.client(), board.worker()
    board.send(client, graph("c", ":a -> d", detached=True))
    (asked,) = reads(board)
    assert asked.keys == ["a"]
    board.send(client, graph(":b -> e"))
    assert reads(board) == []  # one after the other
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    (asked,) = reads(board)
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[1:])]))
    assert sent_keys(board.out, client, m.KeysErred) == ["e"]
    board.finish(worker, "c", "a")
    assert board.states("d") == ["processing"]
    board.drop_rest()


def test_ends_that_could_not_be_read_are_read_again():
    board = open_board(JournalRead(ended={**ENDED}))
    client = board.client()
    board.send(client, m.WantKeys(keys=["a", "b"]))
    (asked,) = reads(board)
    board.play(SchedulerTick(journal=[EndsRead(asked, problem="the database is locked")]))
    assert reads(board) == []
    board.tick(READ_AGAIN_S + 0.1)
    (asked,) = reads(board)
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1], rest=["b"])]))
    assert [one.keys for one in reads(board)] == [["b"]]
    board.send(client, m.ReleaseKeys(keys=["b"]))
    assert board.states("b") == ["-"]
    board.play(SchedulerTick(journal=[EndsRead(ReadEnds(["b"]), ENDS[1:])]))
    assert board.states("b") == ["-"]
    assert not journal_of(board.state).reading
    board.drop_rest()


@pytest.mark.parametrize("is_forgotten", [False, True])
@pytest.mark.parametrize("is_there", [False, True])
def test_a_job_that_is_on_record_no_more_or_is_another_call_is_unknown(is_there, is_forgotten):
    board = open_board(JournalRead(ended={**ENDED}))
    client = board.client()
    board.send(client, m.WantKeys(keys=["a"], spec_hashes=[b"h" * 16]))
    (asked,) = reads(board)
    ends = [(ENDS[0][0], b"i" * 16)] if is_there else []
    if is_forgotten:
        board.send(client, m.Ask(request=1, name="forget_jobs", arguments={"keys": ["a"]}))
    board.play(SchedulerTick(journal=[EndsRead(asked, ends)]))
    board.tick(0.1)
    assert sent_keys(board.out, client, m.KeysUnknown) == ["a"]
    assert board.states("a") == ["-"]


def test_a_job_that_begins_anew_while_its_end_is_read_runs():
    board = open_board(JournalRead(ended={**ENDED}))
    client, other, worker = board.client(), board.client("bob"), board.worker()
    board.send(client, m.WantKeys(keys=["a"]))
    (asked,) = reads(board)
    board.send(other, graph("a", detached=True))
    assert board.states("a") == ["processing"]
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    out = board.finish(worker, "a", blob=b"new")
    assert sent_keys(out, client, m.ResultsReady) == ["a"]
    board.drop_rest()


@pytest.mark.parametrize(("end", "how"), [("finish", "done"), ("raise_", "failed")])
def test_a_job_may_wait_for_the_end_of_one_that_has_ended(end, how):
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    getattr(board, end)(worker, "a", **({"blob": b"result"} if how == "done" else {}))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    recorded(board, 1)
    recorded(board, 2)
    assert board.states("a") == ["-"]
    board.send(client, graph("b", detached=True, conditions=[[how, "a"]]))
    assert board.states("b") == ["processing"]
    out = board.send(client, graph("c", detached=True, conditions=[["cancelled", "a"]]))
    (cancelled,) = out.of(client, m.KeysCancelled)
    ended = {"done": "is done", "failed": "has failed"}[how]
    assert cancelled.reason == f"it was to run when a is cancelled, and that {ended}"


def test_conditions_of_jobs_are_judged_by_the_record_after_a_restart():
    jobs = [job("c", conditions=[["done", "a"], ["failed", "b"]]), job("d", "c")]
    ended = {"a": "done", "b": "failed", "x": "cancelled", "y": "lost"}
    jobs.append(job("e", conditions=[["ended", "x"], ["lost", "y"], ["done", "d"]]))
    board = open_board(JournalRead(jobs, ended=ended))
    worker = board.worker()
    assert board.states("c", "d", "e") == ["processing", "processing", "waiting"]
    board.finish(worker, "c", "d")
    assert board.states("e") == ["processing"]


def returning(board: Board) -> int:
    """Return a client of the last scheduler, when it waits for no others."""
    client = board.client(last_epoch=board.state.epoch - 1)
    while board.state.awaits_peers:
        board.tick(1.0)
    return client


def test_jobs_that_a_client_submits_again_to_the_next_scheduler_do_not_run_again():
    board = open_board(JournalRead(ended={**ENDED, "x": "done"}))
    worker, client = board.worker(), returning(board)
    board.send(client, graph("b a c", ":a -> d", detached=True))
    (asked,) = reads(board)
    assert asked.keys == ["b", "a"]
    assert board.states(*"abcd") == ["no_worker", "no_worker", "processing", "waiting"]
    board.send(client, m.Resubmitted())
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS)]))
    assert sent_keys(board.out, client, m.KeysErred) == ["b"]
    board.finish(worker, "c", "a", blob=dumps(7))
    assert board.states(*"ad") == ["memory", "processing"]
    board.send(client, graph("x", detached=True))  # a user asks for it
    assert board.states("x") == ["processing"]
    board.drop_rest()


@pytest.mark.parametrize("away_s", [0.0, 100.0], ids=["back", "released"])
def test_a_client_whose_line_breaks_while_it_submits_again_goes_on_with_that(away_s):
    board = open_board(JournalRead(ended={**ENDED, "x": "done"}))
    board.close(returning(board))
    board.tick(away_s)
    worker = board.worker()
    client = board.client(last_epoch=board.state.epoch)
    board.send(client, graph("a", ":a -> d", detached=True), m.ReleaseKeys(keys=["a"]))
    assert board.states(*"ad") == ["no_worker", "waiting"]
    (asked,) = reads(board)
    board.send(client, m.Resubmitted())
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    board.finish(worker, "a", blob=dumps(7))
    assert board.states("d") == ["processing"]
    board.send(client, graph("x", detached=True))  # a user asks for it
    assert [entry.key for write in writes(board) for entry in write.entries] == ["x"]
    board.drop_rest()


def test_a_client_that_was_away_for_a_moment_may_have_a_job_begin_anew_when_it_is_back():
    board = open_board(JournalRead(ended={**ENDED}))
    board.worker()
    board.close(board.client())
    client = board.client(last_epoch=board.state.epoch)
    board.send(client, graph("a", detached=True))
    assert board.states("a") == ["processing"]
    board.drop_rest()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_job_that_ends_before_its_client_submits_it_again_does_not_begin_anew(is_lost):
    board = open_board()
    worker = board.worker()
    client = board.client(last_epoch=board.state.epoch)
    board.send(client, graph("a", detached=True), m.Resubmitted())
    recorded(board, *[write.number for write in writes(board)])
    board.finish(worker, "a", blob=dumps(7))
    recorded(board, *[write.number for write in writes(board)])
    board.close(client)
    if is_lost:
        board.close(worker)
        board.tick(11.0)
    client = board.client(last_epoch=board.state.epoch)
    board.send(client, graph("a", detached=True), m.Resubmitted())
    assert writes(board) == []
    assert [asked.keys for asked in reads(board)] == ([["a"]] if is_lost else [])
    board.drop_rest()


def test_a_lost_result_whose_end_is_still_to_be_recorded_is_made_again_for_the_same_job():
    board = open_board()
    worker = board.worker()
    client = board.client(last_epoch=board.state.epoch)
    board.send(client, graph("a", detached=True), m.Resubmitted())
    recorded(board, *[write.number for write in writes(board)])
    board.finish(worker, "a", blob=dumps(7))
    (ending,) = writes(board)
    board.close(client)
    board.close(worker)
    board.tick(11.0)
    board.worker()
    client = board.client(last_epoch=board.state.epoch)
    board.send(client, graph("a", detached=True), m.Resubmitted())
    assert writes(board) == []  # no other job begins
    assert board.states("a") == ["processing"]
    recorded(board, ending.number)
    assert journal_of(board.state).ended == {"a": "done"}
    board.drop_rest()


def test_a_job_whose_end_is_still_to_be_recorded_begins_anew_when_its_task_was_cancelled():
    """Its keeper does not want the result that was made again for a reader."""
    board = open_board()
    worker = board.worker()
    client = board.client()
    board.send(client, graph("a", detached=True), graph(":a -> b", blob=None))
    recorded(board, 1)
    board.finish(worker, "a", blob=dumps(7))
    board.close(worker)
    board.tick(11.0)
    board.send(client, m.CancelKeys(keys=["a"], force=True, reason="why"))
    board.send(client, graph("a", detached=True))
    (added,) = [entry for write in writes(board) for entry in write.entries]
    assert added.key == "a"
    board.drop_rest()


def test_a_job_on_record_whose_result_is_at_a_worker_goes_on_being_on_record():
    """A client that has released it may submit it as an input of another task."""
    board = open_board()
    worker = board.worker()
    client, other = board.client(), board.client("other")
    board.send(client, graph("a", detached=True))
    board.finish(worker, "a", blob=dumps(7))
    board.send(other, m.WantKeys(keys=["a"]))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    recorded(board, 1)
    recorded(board, 2)
    assert journal_of(board.state).ended == {"a": "done"}
    out = board.send(client, graph("a", detached=True), graph(":a -> b", blob=None))
    assert sent_keys(out, client, m.KeysInMemory) == ["a"]
    assert writes(board) == []
    assert board.states("a", "b") == ["memory", "processing"]
    assert not journal_of(board.state).jobs
    board.drop_rest()


def test_a_client_that_is_back_is_answered_for_a_job_whose_end_is_still_to_be_read():
    """Without an answer it would take the key for unknown, and have the job begin anew."""
    board = open_board(JournalRead(ended={**ENDED}))
    board.worker()
    client = returning(board)
    board.send(client, graph("a", detached=True), m.Resubmitted())
    board.close(client)
    client = board.client(last_epoch=board.state.epoch)
    out = board.send(client, m.WantKeys(keys=["a"]))
    assert sent_keys(out, client, m.KeysPending) == ["a"]
    board.drop_rest()


def test_a_job_that_a_client_submits_again_and_that_is_on_record_no_more_runs():
    board = open_board(JournalRead(ended={**ENDED}))
    board.worker()
    client = returning(board)
    board.send(client, graph("a", detached=True))
    (asked,) = reads(board)
    board.send(client, m.Resubmitted())
    board.play(SchedulerTick(journal=[EndsRead(asked)]))
    board.tick(0.1)
    assert sent_keys(board.out, client, m.KeysUnknown) == ["a"]
    board.send(client, graph("a", detached=True, blob=None))
    assert board.states("a") == ["processing"]
    board.drop_rest()


def test_a_result_that_its_client_has_is_read_when_a_task_needs_it_after_a_restart():
    board = open_board(JournalRead(ended={**ENDED}))
    worker, client = board.worker(), returning(board)
    board.send(client, graph("a", detached=True, delivered=True), m.Resubmitted())
    assert (reads(board), board.states("a")) == ([], ["released"])
    board.send(client, graph("a", ":a -> d", detached=True, delivered=True))  # once more
    assert (reads(board), board.states(*"ad")) == ([], ["released", "released"])
    board.send(client, graph(":d -> e"))
    (asked,) = reads(board)
    assert board.states(*"ade") == ["no_worker", "waiting", "waiting"]
    board.send(client, graph("a", detached=True, delivered=True))
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    (sent,) = board.out.of(worker, m.AssignTasks)
    assert (sent.keys[0], sent.functions[0]) == ("a", CONSTANT_ID)
    board.finish(worker, "a", blob=dumps(7))
    assert board.states(*"ad") == ["memory", "processing"]
    board.drop_rest()


@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_result_whose_last_copy_is_lost_is_read_when_a_task_needs_it(is_read_before):
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("z a", ":z -> a", detached=True, retries=1))
    board.raise_(worker, "z")
    board.finish(worker, "z", blob=b"input")
    board.raise_(worker, "a")
    board.finish(worker, "a", blob=b"result")
    for number in range(1, journal_of(board.state).number):
        recorded(board, number)
    if is_read_before:
        board.send(client, graph(":a -> d"))
    other = board.worker("v")
    board.close(worker)
    assert board.states("z") == ["released"]
    if not is_read_before:
        assert (reads(board), board.states("a")) == ([], ["released"])
        board.send(client, graph(":a -> d"))
    (asked,) = reads(board)
    assert asked.keys == ["a"]
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    (sent,) = board.out.of(other, m.AssignTasks)
    assert (sent.keys[0], sent.functions[0]) == ("a", CONSTANT_ID)
    board.finish(other, "a", blob=dumps(7))
    assert board.states("d") == ["processing"]
    assert board.send(client, graph("y")).of(client, m.KeysErred) == []  # its function is known
    board.send(client, m.ReleaseKeys(keys=[*"zady"]))
    board.drop_rest()
    assert board.states(*"zady") == ["-"] * 4


def test_a_job_of_a_category_whose_result_is_to_be_read_is_given_no_memory():
    category = {"name": "c", "mode": "max", "max_nbytes": 0, "straggler_multiple": 0.0}
    board = open_board()
    client = board.client()
    worker = board.worker(memory_limit=1 << 30, resources={"memory": float(1 << 30)})
    board.send(client, graph("a", detached=True, category=category))
    board.finish(worker, "a", blob=b"result")
    recorded(board, 1)
    recorded(board, 2)
    board.send(client, graph(":a -> d"))
    board.close(worker)
    board.worker("v", memory_limit=1 << 30, resources={"memory": float(1 << 30)})
    board.tick(10.0)
    board.worker("w", memory_limit=1 << 31, resources={"memory": float(1 << 31)})
    board.tick(10.0)
    assert board.states("a") == ["no_worker"]
    board.drop_rest()


def test_a_result_that_is_read_is_not_kept_when_a_worker_has_taken_it():
    board = open_board(JournalRead(ended={**ENDED}))
    client, worker = board.client(), board.worker()
    read_of(board, client, "a")
    assert board.states("a") == ["processing"]
    assert board.task("a").args is None
    board.close(worker)
    board.worker("v")
    board.tick(0.1)
    assert board.states("a") == ["no_worker"]
    assert [*journal_of(board.state).reading] == ["a"]
    board.drop_rest()


def test_a_client_gets_the_value_of_a_job_on_record_also_without_workers(board):
    no_worker_limit_of(board.state).seconds = 5.0
    board.play(SchedulerTick(journal=[JournalRead(ended={**ENDED})]))
    client = board.client()
    read_of(board, client, "a")
    ready = board.out.of(client, m.ResultsReady)
    assert ready == [m.ResultsReady(keys=["a"], results=[dumps(7)])]
    board.send(client, graph(":a -> d"))
    board.tick(20.0)
    assert (reads(board), board.states(*"ad")) == ([], ["no_worker", "waiting"])
    board.worker()
    board.tick(LOOK_S + 0.1)
    (asked,) = reads(board)
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    assert board.states("a") == ["processing"]
    board.drop_rest()


def test_a_job_on_record_that_could_not_begin_anew_ends_when_it_has_begun_anew():
    board = open_board(JournalRead(ended={"a": "done"}))
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    (write,) = writes(board)
    recorded(board, write.number, "the disk is full")
    (failed,) = writes(board)
    board.send(client, m.ReleaseKeys(keys=["a"]))
    board.send(client, graph("a", detached=True))
    (begun,) = writes(board)
    for one in (failed, begun):
        recorded(board, one.number)
    board.finish(worker, "a", blob=b"result")
    assert [entry.key for one in writes(board) for entry in one.entries] == ["a"]
    board.drop_rest()


def read_of(board: Board, client: int, key: str, spec_hash: bytes = m.NO_HASH) -> None:
    """Let a client want a job on record, and let the journal read how it ended."""
    board.send(client, m.WantKeys(keys=[key]))
    (asked,) = reads(board)
    ends = {end.key: end for end, _ in ENDS}
    board.play(SchedulerTick(journal=[EndsRead(asked, [(ends[key], spec_hash)])]))


def test_a_job_that_has_failed_is_given_to_each_client_that_wants_it_or_what_reads_it():
    board = open_board(JournalRead(ended={**ENDED}))
    client, other = board.client(), board.client("bob")
    read_of(board, client, "b")
    board.send(client, graph(":b -> e"))
    out = board.send(other, m.WantKeys(keys=["b", "e"]))
    assert sent_keys(out, other, m.KeysErred) == ["b", "e"]
    assert not out.of(other, m.KeysUnknown)
    board.drop_rest()


def test_a_result_on_record_is_that_of_its_content():
    board = open_board(JournalRead(ended={**ENDED}))
    client, other, worker = board.client(), board.client("bob"), board.worker()
    read_of(board, client, "a", b"i" * 16)
    board.finish(worker, "a", blob=dumps(7))
    assert board.state.tasks["a"].spec_hash == b"i" * 16
    out = board.send(other, graph("a", named="other"))
    assert sent_keys(out, other, m.KeysErred) == ["a"]
    board.drop_rest()


def test_an_end_is_not_read_again_when_no_task_waits_for_it():
    board = open_board(JournalRead(ended={**ENDED}))
    client = board.client()
    board.send(client, m.WantKeys(keys=["a", "b"]))
    (asked,) = reads(board)
    board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    board.play(SchedulerTick(journal=[EndsRead(asked, problem="the database is locked")]))
    board.tick(READ_AGAIN_S + 0.1)
    assert reads(board) == []
    assert not journal_of(board.state).reading


def test_a_want_of_another_content_leaves_the_record_as_it_is():
    board = open_board(JournalRead(ended={**ENDED}))
    client = board.client()
    board.send(client, m.WantKeys(keys=["a"], spec_hashes=[b"h" * 16]))
    (asked,) = reads(board)
    board.play(SchedulerTick(journal=[EndsRead(asked, [(ENDS[0][0], b"i" * 16)])]))
    board.tick(0.1)
    assert journal_of(board.state).is_done("a")
    board.send(client, graph("y", detached=True, conditions=[["done", "a"]]))
    assert board.states("a") == ["-"]
    board.drop_rest()


def test_a_result_on_record_stays_there_when_its_job_is_submitted_while_others_read_it():
    board = open_board(JournalRead(ended={**ENDED}))
    client, other, worker = board.client(), board.client("bob"), board.worker()
    read_of(board, client, "a")
    board.finish(worker, "a", blob=dumps(7))
    out = board.send(other, graph("a", detached=True))
    assert sent_keys(out, other, m.KeysInMemory) == ["a"]
    assert writes(board) == []
    board.drop_rest()


def test_a_condition_is_judged_by_the_record_also_while_the_result_is_given_to_others():
    board = open_board(JournalRead(ended={**ENDED}))
    client, other = board.client(), board.client("bob")
    board.worker()
    board.send(client, graph(":a -> d"))
    (asked,) = reads(board)
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    assert board.states("a") == ["processing"]
    board.send(other, graph("x", detached=True, conditions=[["done", "a"]]))
    assert board.states("x") == ["processing"]
    board.drop_rest()


def test_a_condition_that_is_judged_later_leaves_the_record_before_the_other_job():
    board = Board(expected=Members(("id of w",), ()))
    read = JournalRead([job("x", conditions=[["done", "a"]])], ended={"a": "done"})
    board.play(SchedulerTick(journal=[read]))
    forget = m.Ask(request=1, name="forget_jobs", arguments={"keys": ["a"]})
    board.send(board.client(), forget)
    (write,) = writes(board)
    assert [type(entry).__name__ for entry in write.entries] == ["JobChanged", "JobForgotten"]


def test_another_call_of_the_name_of_a_result_that_was_given_to_others_is_refused_once():
    board = open_board(JournalRead(ended={**ENDED}))
    client, other, worker = board.client(), board.client("bob"), board.worker()
    read_of(board, client, "a", b"i" * 16)
    board.finish(worker, "a", blob=dumps(7))
    out = board.send(other, graph("a", named="other", detached=True))
    assert not out.of(other, m.KeysUnknown), "it would submit the call again, without end"
    assert sent_keys(out, other, m.KeysErred) == ["a"]
    board.drop_rest()


def test_a_key_with_a_hash_of_its_content_is_that_of_the_record_whatever_its_recipe():
    key = f"sum-{'0a' * 16}"
    board = open_board(JournalRead(ended={key: "done"}))
    client, other, worker = board.client(), board.client("bob"), board.worker()
    board.send(client, m.WantKeys(keys=[key], spec_hashes=[b"h" * 16]))
    (asked,) = reads(board)
    ends = [(JobEnded(key, "done", result=dumps(7)), b"i" * 16)]
    board.play(SchedulerTick(journal=[EndsRead(asked, ends)]))
    board.finish(worker, key, blob=dumps(7))
    out = board.send(other, graph(key, named="other", detached=True))
    assert sent_keys(out, other, m.KeysInMemory) == [key]
    board.drop_rest()


def test_jobs_on_record_keep_their_recipes_while_something_that_is_made_of_them_is_kept():
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("z", ":z -> a", detached=True))
    board.send(client, graph(":a -> d"))
    board.finish(worker, "z", blob=b"input")
    board.finish(worker, "a", blob=b"result")
    board.send(worker, finished([board.attempt("d")], blob=None))
    board.send(client, m.ReleaseKeys(keys=["a", "z"]))
    recorded(board, 1)
    for number in (3, 2):
        recorded(board, number, "the disk is full")
    board.tick(RETRY_S + 0.1)
    (write,) = writes(board)
    assert [entry.key for entry in write.entries] == ["a", "z"]
    recorded(board, write.number)
    assert board.states(*"zad") == ["released", "released", "memory"]
    board.send(client, m.ReleaseKeys(keys=["d"]))
    assert board.states(*"zad") == ["-", "-", "-"]
    board.drop_rest()
