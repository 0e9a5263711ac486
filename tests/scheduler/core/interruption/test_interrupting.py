"""interrupting.py: running tasks that are interrupted, and processes that are ended for them."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.actions import LogLine
from weft.scheduler.core.interruption.interrupted import interruptions_of
from weft.scheduler.core.interruption.interrupting import END_PROCESS_AFTER_S

from ...builders import Board, finished, graph, sent_keys


def cancel(*keys: str, force: bool = False) -> m.CancelKeys:
    return m.CancelKeys(keys=[*keys], force=force, reason="why", running=True)


def pass_time(board: Board, *peers: int) -> list[str]:
    """Let the time pass after which processes are ended; return what was logged."""
    logged = []
    for _ in range(6):
        for peer in peers:
            board.send(peer, m.Heartbeat())
        board.tick(END_PROCESS_AFTER_S / 5)
        logged += [a.text for a in board.actions if isinstance(a, LogLine)]
    return logged


def test_the_worker_is_asked_to_interrupt_what_it_drops(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b"))
    a = board.attempt("a")
    out = board.send(client, cancel("a"))
    assert out[worker][:2] == [m.DropAttempts(attempts=[a]), m.InterruptAttempts(attempts=[a])]
    assert sent_keys(out, client, m.KeysCancelled) == ["a"]
    assert interruptions_of(board.state).n_interrupted == 1


def test_a_task_that_does_not_run_is_only_cancelled(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", resources={"GPU": 1}))
    assert worker not in board.send(client, cancel("a"))
    board.send(client, graph("b"))
    out = board.send(client, m.CancelKeys(keys=["b"], force=False, reason=""))
    assert m.InterruptAttempts not in map(type, out[worker])
    assert board.rest() == ["KeysCancelled"]


def test_inputs_that_run_for_nobody_else_are_interrupted(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b"))
    a = board.attempt("a")
    board.send(client, m.ReleaseKeys(keys=["a"]))
    out = board.send(client, cancel("b"))
    (interrupt,) = [x for x in out[worker] if isinstance(x, m.InterruptAttempts)]
    assert interrupt.attempts[-1] == a
    assert board.rest() == ["KeysCancelled"]


def test_a_task_that_another_client_wants_goes_on(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker()
    board.send(alice, graph("a"))
    board.send(bob, graph("a"))
    assert worker not in board.send(alice, cancel("a"))
    a = board.attempt("a")
    out = board.send(alice, graph("a"), cancel("a", force=True))
    assert m.InterruptAttempts(attempts=[a]) in out[worker]
    assert sent_keys(out, bob, m.KeysCancelled) == ["a"]
    assert board.rest() == ["KeysPending", "KeysCancelled"]


def test_a_process_is_ended_if_its_task_does_not_end(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a", "behind", "waits"))
    board.send(client, cancel("a"))
    sent = []
    for _ in range(6):
        for peer in (worker, supervisor):
            board.send(peer, m.Heartbeat())
        sent += board.tick(END_PROCESS_AFTER_S / 5).get(supervisor, [])
    (message,) = sent
    assert message.worker_ids == ["id of w"]
    assert "1 cancelled task did not end within 5 s" in message.reason
    # No attempt is named, so none counts a death.
    board.send(
        supervisor,
        m.WorkerExited(worker_id="id of w", reason=message.reason, running=[], kind="signal"),
    )
    board.close(worker)
    assert not board.state.deaths
    assert "processing" not in board.states("behind", "waits")
    board.worker("w2")
    assert "processing" in board.states("behind", "waits")


def test_a_task_that_ends_in_time_costs_nothing(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a"))
    a = board.attempt("a")
    board.send(client, cancel("a"))
    board.send(worker, m.AttemptsEnded(attempts=[a]))
    assert pass_time(board, worker, supervisor) == []


def test_a_result_that_crosses_the_cancellation_is_the_end(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a"))
    a = board.attempt("a")
    board.send(client, cancel("a"))
    board.send(worker, finished([a]))
    assert pass_time(board, worker, supervisor) == []


def test_a_worker_without_a_supervisor_goes_on(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.send(client, cancel("a"))
    (line,) = pass_time(board, worker)
    assert "whose process cannot be ended" in line
    assert list(board.state.workers) == [worker]


def test_a_worker_that_left_meanwhile_is_not_ended(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a"))
    board.send(client, cancel("a"))
    board.close(worker)
    assert not any("is ended" in line for line in pass_time(board, supervisor))


# -- restarts on request ---------------------------------------------------------------------------
def restart(*ids: str) -> m.Ask:
    return m.Ask(request=3, name="restart", arguments={"workers": [*ids]})


def test_supervisors_are_asked_to_replace_processes(board):
    client, supervisor = board.client(), board.supervisor()
    board.worker("a", supervisor_id="sup")
    board.worker("b")
    out = board.send(client, restart("id of a", "id of b", "id of c"))
    (order,) = out[supervisor]
    assert order.worker_ids == ["id of a"]
    (answer,) = out[client]
    assert answer.info == {
        "workers": {"id of a": "asked", "id of b": "no supervisor", "id of c": "gone"}
    }


@pytest.mark.parametrize("ids", [None, "id of a", [7], {}])
def test_ids_that_are_no_texts_are_refused(board, ids):
    client = board.client()
    out = board.send(client, m.Ask(request=3, name="restart", arguments={"workers": ids}))
    (answer,) = out[client]
    assert isinstance(answer, m.AskFailed)
