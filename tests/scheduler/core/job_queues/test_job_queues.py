"""No task of a paused queue begins, those that run go on, and the next scheduler knows of it."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.conditions.no_worker_limit import no_worker_limit_of
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.insight.desired import desired_workers
from weft.scheduler.core.insight.explaining import explain
from weft.scheduler.core.insight.metrics import count_unrunnable
from weft.scheduler.core.job_queues import feature as job_queues
from weft.scheduler.core.job_queues.feature import paused_queues_of
from weft.scheduler.core.journal.entries import (
    JournalRead,
    JournalWritten,
    QueueChanged,
    WriteJournal,
)
from weft.scheduler.core.journal.feature import RETRY_S
from weft.scheduler.core.upkeep.running_limits import running_limits_of
from weft.scheduler.core.upkeep.user_limits import user_limits_of

from ...builders import Board, graph


def ask(question: str, **arguments: object) -> m.Ask:
    return m.Ask(request=1, name=question, arguments=arguments)


def pause(board: Board, peer: int, name: str = "q") -> None:
    board.send(peer, ask("pause_queue", name=name))


def resume(board: Board, peer: int, name: str = "q") -> None:
    board.send(peer, ask("resume_queue", name=name))


def held(board: Board, name: str = "q") -> list[str]:
    return [task.key for task in paused_queues_of(board.state)[name]]


def changes(board: Board) -> list[WriteJournal]:
    return [action for action in board.actions if isinstance(action, WriteJournal)]


def test_no_task_of_a_paused_queue_begins_and_others_do(board):
    client, worker = board.client(), board.worker(nthreads=4)
    pause(board, client)
    assert board.out == {client: [m.Answer(request=1, info={})]}
    board.send(client, graph("a", "b", job_queue="q"), graph("c", job_queue="other"), graph("d"))
    assert board.states(*"abcd") == ["no_worker"] * 2 + ["processing"] * 2
    assert held(board) == ["a", "b"]
    resume(board, client)
    assert board.states("a", "b") == ["processing", "processing"]
    assert paused_queues_of(board.state) == {}
    assert board.where("a") == worker


def test_running_tasks_go_on_and_all_others_are_held(board):
    client, worker = board.client(), board.worker()
    keys = [f"k{i}" for i in range(200)]
    board.send(client, graph(*keys, job_queue="q"))
    at_worker = [key for key in keys if board.states(key) == ["processing"]]
    assert 1 < len(at_worker) < 200
    pause(board, client)
    assert board.out.of(worker, m.ReturnAttempts) == [m.ReturnAttempts(count=len(at_worker))]
    assert board.out[client] == [m.Answer(request=1, info={})]
    assert len(held(board)) == 200 - len(at_worker)
    begun, rest = at_worker[0], at_worker[1:]
    attempts = [board.attempt(key) for key in rest]
    board.send(worker, m.AttemptsReturned(attempts=attempts))
    assert board.states(begun, *rest) == ["processing"] + ["no_worker"] * len(rest)
    assert len(held(board)) == 199
    board.finish(worker, begun)
    assert board.states(*keys) == ["memory"] + ["no_worker"] * 199
    resume(board, client)
    assert "no_worker" not in board.states(*keys)


def test_a_task_is_held_when_its_inputs_are_there_and_not_assigned_ahead_of_them(board):
    client, worker = board.client(), board.worker(nthreads=2)
    board.send(client, graph("a"), graph(":a -> b", job_queue="q"))
    assert board.states("a", "b") == ["processing", "waiting"]
    pause(board, client)
    board.finish(worker, "a")
    assert board.states("b") == ["no_worker"]
    assert held(board) == ["b"]
    resume(board, client)
    assert board.states("b") == ["processing"]


def test_an_attempt_that_failed_is_not_repeated_while_its_queue_is_paused(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", job_queue="q", retries=1))
    pause(board, client)
    board.raise_(worker, "a")
    assert board.states("a") == ["no_worker"]
    resume(board, client)
    assert board.states("a") == ["processing"]


def test_a_pause_before_a_retry_goes_on_when_the_queue_is_resumed(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", job_queue="q", retries=1, pauses=[5.0, 1.0, 5.0, 0.0]))
    pause(board, client)
    board.raise_(worker, "a")
    resume(board, client)
    assert board.states("a") == ["no_worker"]
    board.tick(5.1)
    assert board.states("a") == ["processing"]
    board.drop_rest()


def test_workers_that_come_and_go_begin_nothing_of_a_paused_queue(board):
    client, first = board.client(), board.worker("first")
    board.send(client, graph("a", job_queue="q"))
    pause(board, client)
    board.close(first)
    board.worker("second")
    assert board.states("a") == ["no_worker"]
    resume(board, client)
    assert board.states("a") == ["processing"]


def test_a_queue_is_resumed_while_there_is_no_worker(board):
    client, first = board.client(), board.worker("first")
    pause(board, client)
    board.send(client, graph("a", job_queue="q"))
    board.close(first)
    resume(board, client)
    assert board.states("a") == ["no_worker"]
    board.worker("second")
    assert board.states("a") == ["processing"]


def test_cancelled_tasks_are_not_held_any_more(board):
    client = board.client()
    board.worker()
    pause(board, client)
    board.send(client, graph("a", "b", job_queue="q"))
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason=""))
    assert held(board) == ["b"]
    board.drop_rest()


def test_a_worker_that_was_away_is_asked_when_it_is_back(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b", job_queue="q"))
    a, b = board.attempt("a"), board.attempt("b")
    board.close(worker)
    pause(board, client)
    back = board.come_back(running={"a": a}, assigned={"b": b})
    assert board.out.of(back, m.ReturnAttempts) == [m.ReturnAttempts(count=2)]
    board.send(back, m.AttemptsReturned(attempts=[b]))
    assert board.states("a", "b") == ["processing", "no_worker"]
    board.drop_rest()


def test_a_held_task_says_so(board):
    client = board.client()
    board.worker()
    pause(board, client, "nightly")
    board.send(client, graph("a", job_queue="nightly"))
    ((_, kind, text),) = explain(board.state, board.state.tasks["a"])["steps"]
    assert kind == "no_worker"
    assert text == "its queue nightly is paused (weft resume nightly lets it begin)"
    assert count_unrunnable(board.state)["held"] == 1
    board.drop_rest()


def test_no_worker_is_desired_for_a_paused_queue(board):
    client = board.client()
    pause(board, client)
    board.send(client, graph("a", job_queue="q"))
    assert desired_workers(board.state).n_workers == 0
    worker = board.worker()
    assert desired_workers(board.state).n_workers == 0
    board.close(worker)
    assert desired_workers(board.state).n_workers == 0
    resume(board, client)
    assert desired_workers(board.state).n_workers == 1
    board.drop_rest()


def test_a_task_of_a_paused_queue_does_not_fail_for_lack_of_a_worker(board):
    no_worker_limit_of(board.state).seconds = 10.0
    client = board.client()
    pause(board, client)
    board.send(client, graph("a", job_queue="q"), graph("b", job_queue="q", no_worker_ms=5000))
    board.tick(30.0)
    assert board.states("a", "b") == ["no_worker", "no_worker"]
    resume(board, client)
    board.tick(11.0)
    assert board.states("a", "b") == ["erred", "erred"]
    board.drop_rest()


def test_held_tasks_do_not_count_against_the_limit_of_their_user(board):
    user_limits_of(board.state).max_running = 1
    ann = board.client("ann", user="ann")
    worker = board.worker(nthreads=4)
    board.send(ann, graph("a", job_queue="q"))
    pause(board, ann)
    board.send(worker, m.AttemptsReturned(attempts=[board.attempt("a")]))
    board.send(ann, graph("b"), graph("c", job_queue="q"))
    assert board.states(*"abc") == ["no_worker", "processing", "no_worker"]
    assert held(board) == ["a", "c"]
    resume(board, ann)
    assert board.states(*"abc") == ["no_worker", "processing", "no_worker"]
    board.finish(worker, "b")
    assert board.states("a", "c") == ["processing", "no_worker"]
    board.finish(worker, "a")
    board.finish(worker, "c")
    assert running_limits_of(board.state) == {}


def test_users_are_told_which_queues_are_paused_and_what_they_hold(board):
    client = board.client()
    board.worker()
    pause(board, client)
    pause(board, client, "p")
    pause(board, client)  # again
    board.send(client, graph("a", "b", job_queue="q"))
    out = board.send(client, ask("paused_queues"))
    assert out[client] == [m.Answer(request=1, info={"queues": {"q": 2, "p": 0}})]
    board.drop_rest()


def test_a_queue_that_is_not_paused_cannot_be_resumed(board):
    client = board.client()
    pause(board, client, "other")
    resume(board, client)
    (failed,) = board.out[client]
    assert failed.text == "queue 'q' is not paused; those that are: other"


@pytest.mark.parametrize("name", ["", "x" * 1000, "a\0b", 5, None])
@pytest.mark.parametrize("question", ["pause_queue", "resume_queue"])
def test_a_name_that_is_none_is_refused(board, question, name):
    client = board.client()
    (failed,) = board.send(client, ask(question, name=name))[client]
    assert "name= is that of a queue" in failed.text


def test_the_number_of_paused_queues_is_limited(board, monkeypatch):
    monkeypatch.setattr(job_queues, "MAX_PAUSED", 1)
    client = board.client()
    pause(board, client)
    pause(board, client, "other")
    (failed,) = board.out[client]
    assert "no more can be" in failed.text


# -- the journal -----------------------------------------------------------------------------------
def test_a_pause_is_recorded_and_the_answer_comes_then(board):
    client = board.client()
    board.play(SchedulerTick(journal=[JournalRead()]))
    pause(board, client)
    assert board.out == {}
    (write,) = changes(board)
    assert write.entries == [QueueChanged("q", True)]
    board.play(SchedulerTick(journal=[JournalWritten(write.number)]))
    assert board.out == {client: [m.Answer(request=1, info={})]}
    resume(board, client)
    assert changes(board)[-1].entries == [QueueChanged("q", False)]


def test_a_pause_that_cannot_be_recorded_is_tried_again_as_it_is_then(board):
    client = board.client()
    board.play(SchedulerTick(journal=[JournalRead()]))
    pause(board, client)
    (write,) = changes(board)
    board.play(SchedulerTick(journal=[JournalWritten(write.number, "the disk is full")]))
    (failed,) = board.out[client]
    assert failed.text.endswith("not recorded yet, and is tried again: the disk is full")
    board.tick(RETRY_S + 0.1)
    assert changes(board)[-1].entries == [QueueChanged("q", True)]
    board.play(SchedulerTick(journal=[JournalWritten(write.number + 1, "the disk is full")]))
    board.tick(RETRY_S + 0.1)
    assert changes(board)[-1].entries == [QueueChanged("q", True)]
    board.play(SchedulerTick(journal=[JournalWritten(write.number + 2)]))
    board.actions.clear()
    board.tick(RETRY_S + 0.1)
    assert changes(board) == []


def test_the_next_scheduler_knows_which_queues_are_paused(board):
    client = board.client()
    board.play(SchedulerTick(journal=[JournalRead(paused=["q"])]))
    board.worker()
    board.send(client, graph("a", job_queue="q"))
    assert board.states("a") == ["no_worker"]
    assert changes(board) == []
    resume(board, client)
    assert board.states("a") == ["processing"]
