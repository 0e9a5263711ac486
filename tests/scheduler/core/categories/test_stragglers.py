"""Calls that take much longer than others of their category are begun on another worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.categories.records import Stragglers, categories_of, make_category
from weft.scheduler.core.categories.stragglers import LEAST_ENDED
from weft.scheduler.core.interruption.interrupting import END_PROCESS_AFTER_S
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.recovery.records import recovery_of

from ...builders import Board, assigned, dropped, finished, graph, sent_keys
from .builders import measured, worker


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board()
    yield board
    board.drop_rest()


def shared(
    *lines: str, multiple: float = 3.0, copied: bool = False, **options: object
) -> m.SubmitTasks:
    """Make a submission of calls of 1 s, which are stragglers after `multiple` seconds."""
    category = {"name": "fits", "mode": "fixed", "max_nbytes": 0}
    if multiple:
        category |= {"straggler_multiple": multiple, "copies_stragglers": copied}
    return graph(*lines, category=category, **options)


def learn(
    board: Board, client: int, peer: int, n: int = LEAST_ENDED, multiple: float = 3.0
) -> None:
    """Let some calls of 1 s end."""
    for i in range(n):
        board.send(client, shared(f"first-{i}", multiple=multiple))
        measured(board, peer, f"first-{i}", mb=1)


def test_a_straggler_is_ended_and_begun_on_another_worker(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a)
    board.send(client, shared("x"))
    attempt = board.attempt("x")
    b = board.worker("b")
    board.tick(3.4)
    assert board.where("x") == a
    out = board.tick(1.0)
    assert dropped(out, a) == [attempt]
    assert out.of(a, m.InterruptAttempts)[0].attempts == [attempt]
    (message,) = out.of(b, m.AssignTasks)
    assert message.keys == ["x"]
    assert message.n_raised == []  # it counts as no failure
    out = board.finish(b, "x")
    assert sent_keys(out, client, m.ResultsReady) == ["x"]
    assert categories_of(board.state).by_name["fits"].times.n_late == 1


def test_the_process_of_a_straggler_that_goes_on_is_not_ended(board):
    client, supervisor = board.client(), board.supervisor()
    a = board.worker("a", supervisor_id="sup")
    learn(board, client, a)
    board.send(client, shared("x"))
    b = board.worker("b")
    board.tick(4.5)
    assert board.where("x") == b
    board.finish(b, "x")
    assert not board.tick(2 * END_PROCESS_AFTER_S).of(supervisor, m.EndWorkers)


def test_the_next_limit_is_twice_as_high(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a)
    board.send(client, shared("x"))
    first = board.attempt("x")
    b = board.worker("b")
    board.tick(4.5)
    assert board.where("x") == b
    board.send(a, m.AttemptsEnded(attempts=[first], ends=[m.INTERRUPTED]))
    board.tick(5.5)
    assert board.where("x") == b
    board.tick(2.0)
    assert board.where("x") == a
    board.finish(a, "x")
    board.tick(1.0)
    assert not board.state.record(Stragglers).n_late


def test_the_least_time_doubles_as_well(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a, multiple=0.1)
    board.send(client, shared("x", multiple=0.1))
    first = board.attempt("x")
    b = board.worker("b")
    board.tick(2.0)
    assert board.where("x") == b
    board.send(a, m.AttemptsEnded(attempts=[first], ends=[m.INTERRUPTED]))
    board.tick(0.6)
    board.tick(1.5)
    assert board.where("x") == b
    board.tick(1.0)
    assert board.where("x") == a


def test_nothing_is_ended_while_no_other_worker_has_a_thread(board):
    client, a = board.client(), board.worker("a", nthreads=2)
    learn(board, client, a)
    board.send(client, shared("x"))
    b = board.worker("b")
    board.send(client, graph("long", workers=["b"]))
    assert board.where("long") == b
    out = board.tick(12.0)
    assert board.where("x") == a
    assert not out.of(a, m.InterruptAttempts)
    board.finish(b, "long")
    board.tick(1.0)
    assert board.where("x") == b


@pytest.mark.parametrize(("n", "multiple"), [(LEAST_ENDED - 1, 3.0), (LEAST_ENDED, 0.0)])
def test_nothing_is_ended_before_enough_calls_have_ended_or_without_a_multiple(board, n, multiple):
    client, a = board.client(), board.worker("a")
    learn(board, client, a, n, multiple)
    board.send(client, shared("x", multiple=multiple))
    board.worker("b")
    board.tick(12.0)
    assert board.where("x") == a


def test_time_in_the_queue_of_a_worker_does_not_count(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a)
    board.send(client, graph("dropped"))
    attempt = board.attempt("dropped")
    board.send(client, m.ReleaseKeys(keys=["dropped"]))  # it has its thread until it ends
    board.send(client, shared("x", workers=["a", "b"]))
    assert board.where("x") == a
    board.worker("b")
    board.tick(12.0)
    assert board.where("x") == a
    board.send(a, m.AttemptsEnded(attempts=[attempt], ends=[m.RETURNED]))
    board.tick(2.0)
    assert board.where("x") == a
    board.tick(2.5)
    assert board.where("x") != a


def test_a_call_that_waits_for_others_is_no_straggler(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a)
    board.send(client, shared("x"))
    board.worker("b")
    board.send(a, m.AttemptsBlocked(attempts=[board.attempt("x")]))
    board.tick(12.0)
    assert board.where("x") == a


def test_only_workers_that_may_run_it_are_others(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a)
    board.send(client, shared("x", workers=["a"]))
    board.worker("b")
    board.tick(12.0)
    assert board.where("x") == a


def test_memory_of_the_other_worker_is_taken(board):
    client, a = board.client(), worker(board, "a", nthreads=1)
    learn(board, client, a)
    board.send(client, shared("x"))
    b = worker(board, "b", nthreads=2)
    board.send(client, graph("other", workers=["b"], resources={"memory": 1.0}))
    board.tick(12.0)
    assert board.where("x") == a  # it needs all memory of a worker
    board.finish(b, "other")
    out = board.tick(1.0)
    assert list(assigned(out, b)) == ["x"]
    assert board.state.workers[b].free_resources["memory"] == 0.0


def test_looks_end_when_there_is_no_task(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a, n=1)
    assert board.state.record(Stragglers).next_look is not None
    board.send(client, m.ReleaseKeys(keys=["first-0"]))
    board.tick(10.0)
    assert not board.state.tasks
    assert board.state.record(Stragglers).next_look is None
    learn(board, client, a, n=1)
    assert board.state.record(Stragglers).next_look is not None


def test_a_straggler_of_a_paused_queue_is_left_alone_until_that_is_resumed(board):
    client, a = board.client(), board.worker("a")
    learn(board, client, a)
    board.send(client, shared("x", job_queue="q"))
    b = board.worker("b")
    board.send(client, m.Ask(request=1, name="pause_queue", arguments={"name": "q"}))
    board.tick(9.0)
    assert (board.states("x"), board.where("x")) == (["processing"], a)
    board.send(client, m.Ask(request=2, name="resume_queue", arguments={"name": "q"}))
    board.tick(1.0)
    assert board.where("x") == b


def test_calls_of_the_category_without_it_switch_nothing_off_and_are_never_ended(board):
    client, a = board.client(), board.worker("a", nthreads=2)
    learn(board, client, a)
    board.send(client, shared("x"))
    board.send(client, shared("other", multiple=0.0))
    b = board.worker("b", nthreads=2)
    assert (board.where("x"), board.where("other")) == (a, a)
    board.tick(5.0)
    assert (board.where("x"), board.where("other")) == (b, a)


def test_each_call_has_its_own_multiple(board):
    client, a = board.client(), board.worker("a", nthreads=2)
    learn(board, client, a)
    board.send(client, shared("x", multiple=3.0))
    board.send(client, shared("y", multiple=20.0))
    b = board.worker("b", nthreads=2)
    board.tick(5.0)
    assert (board.where("x"), board.where("y")) == (b, a)


@pytest.mark.parametrize("is_copied", [False, True])
def test_nothing_is_begun_elsewhere_before_a_scheduler_that_was_started_again_has_its_peers(
    is_copied,
):
    board = Board(away_s=30.0, expected=Members(("id of a", "id of gone"), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    times = make_category(board.state, "fits").times
    times.n_ended, times.sum_s = 20, 20.0
    client = board.client("alice", last_epoch=6)
    board.send(client, shared("x", copied=is_copied), m.Resubmitted())
    a = board.come_back("a", last_epoch=6, running={"x": 1})
    b = board.worker("b")
    board.tick(4.5)
    assert board.state.awaits_peers
    assert board.where("x") == a
    while board.state.awaits_peers:
        board.pass_time(1.0)
    board.pass_time(0.6)
    assert board.where("x") == b
    board.drop_rest()


# -- copies ----------------------------------------------------------------------------------------
def copied(board: Board) -> tuple[int, int, int, int]:
    """Let `x` run twice; return both workers and the attempts there."""
    client, a = board.client(), board.worker("a", resources={"GPU": 1})
    learn(board, client, a)
    board.send(client, shared("x", copied=True, resources={"GPU": 1}))
    first = board.attempt("x")
    b = board.worker("b", resources={"GPU": 1})
    out = board.tick(4.5)
    assert assigned(out, b) == {"x": board.attempt("x")}
    assert not dropped(out, a)
    assert not out.of(a, m.InterruptAttempts)
    return a, first, b, board.attempt("x")


def interrupted(board: Board, peer: int) -> list[int]:
    """Return what is interrupted at a worker with the next look."""
    return [
        x for message in board.tick(0.6).of(peer, m.InterruptAttempts) for x in message.attempts
    ]


def test_the_first_attempt_of_a_call_that_runs_twice_may_win(board):
    a, first, b, second = copied(board)
    out = board.send(a, finished([first]))
    assert board.states("x") == ["memory"]
    (client,) = board.task("x").wanted_by
    assert sent_keys(out, client.peer, m.KeysInMemory) == ["x"]
    assert dropped(out, b) == [second]
    assert interrupted(board, b) == [second]
    board.send(b, m.AttemptsEnded(attempts=[second], ends=[m.INTERRUPTED]))
    assert not board.state.record(Stragglers).copies


def test_the_second_attempt_of_a_call_that_runs_twice_may_win(board):
    a, first, b, _ = copied(board)
    out = board.finish(b, "x")
    assert dropped(out, a) == [first]
    assert interrupted(board, a) == [first]
    assert not board.state.record(Stragglers).copies
    assert not recovery_of(board.state).twins


def test_the_first_attempt_goes_on_where_the_worker_of_the_second_is_lost(board):
    a, first, b, _ = copied(board)
    board.close(b)
    board.pass_time(6.0)
    assert (board.where("x"), board.attempt("x")) == (a, first)
    board.finish(a, "x")
    assert not interrupted(board, a)
    assert not board.state.record(Stragglers).copies


def test_a_failure_of_the_first_attempt_leaves_the_second(board):
    a, first, b, second = copied(board)
    failure = ["exception", "x", "ValueError"]
    board.send(a, m.AttemptsErred(attempts=[first], durations_us=[1000], failures=[failure]))
    assert (board.where("x"), board.attempt("x")) == (b, second)
    assert not interrupted(board, b)


def test_a_failure_of_the_second_attempt_leaves_the_first(board):
    a, first, b, second = copied(board)
    out = board.raise_(b, "x")
    assert (board.where("x"), board.attempt("x")) == (a, first)
    assert dropped(out, b) == [second]
    board.raise_(a, "x")
    assert board.states("x") == ["erred"]
    assert not recovery_of(board.state).twins


def test_both_attempts_of_a_cancelled_call_are_interrupted(board):
    a, first, b, second = copied(board)
    (client,) = board.task("x").wanted_by
    assert dropped(board.send(client.peer, m.ReleaseKeys(keys=["x"])), b) == [second]
    out = board.tick(0.6)
    assert [out.of(peer, m.InterruptAttempts)[0].attempts for peer in (a, b)] == [[first], [second]]


def test_a_call_is_not_copied_again_before_twice_the_time(board):
    _, _, b, second = copied(board)
    c = board.worker("c", resources={"GPU": 1})
    board.tick(5.5)
    assert (board.where("x"), board.attempt("x")) == (b, second)
    board.tick(2.0)
    assert board.where("x") == c
    assert len(recovery_of(board.state).twins) == 2
    board.finish(c, "x")
    assert not recovery_of(board.state).twins
