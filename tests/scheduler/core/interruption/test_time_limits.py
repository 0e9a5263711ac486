"""time_limits.py: attempts that take longer than their task allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.interruption.interrupted import interruptions_of
from weft.scheduler.core.interruption.interrupting import END_PROCESS_AFTER_S

from ...builders import Board, assignment, dropped, finished, graph, sent_keys

LIMIT_US = 5_000_000


def overdue(board: Board, peer: int, *attempts: int) -> dict[int, list[m.Message]]:
    message = m.AttemptsOverdue(attempts=[*attempts], timeouts_us=[LIMIT_US] * len(attempts))
    return board.send(peer, message)


def ends(board: Board, key: str) -> list[list[str]]:
    """Return how the attempts of a task ended, as a client reads it."""
    peer = next(iter(board.state.clients_by_peer))
    (answer,) = board.send(peer, m.Ask(request=9, name="attempts", arguments={"keys": [key]}))[peer]
    ((_, found),) = answer.info["attempts"]
    return found


def test_workers_are_sent_the_limits_of_tasks_that_have_one(board):
    client, worker = board.client(), board.worker(nthreads=4)
    out = board.send(client, graph("a", "b"), graph("c", function="dec", timeout_us=LIMIT_US))
    assert assignment(out, worker).timeouts_us == [0, 0, LIMIT_US]
    out = board.send(client, graph("d", "e"))
    assert assignment(out, worker).timeouts_us == []


def test_the_failure_names_the_category_whose_longest_time_the_limit_is(board):
    client, worker = board.client(), board.worker()
    category = {"name": "fits", "mode": "fixed", "max_nbytes": 0, "max_wall_us": LIMIT_US}
    board.send(client, graph("a", timeout_us=LIMIT_US, category=category, retries=1))
    first = board.attempt("a")
    overdue(board, worker, first)
    board.send(worker, m.AttemptsEnded(attempts=[first], ends=[m.INTERRUPTED]))
    board.tick()
    (message,) = overdue(board, worker, board.attempt("a"))[client]
    assert message.failures == [["timed-out", "a", "inc", LIMIT_US, "w", 0, 2, "fits"]]
    assert ends(board, "a")[0][1].startswith(
        "took longer than the max_wall_time of its category 'fits', "
    )
    board.drop_rest()


def test_a_task_that_takes_too_long_fails_with_a_kind_of_its_own(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b", timeout_us=LIMIT_US))
    attempt = board.attempt("a")
    out = overdue(board, worker, attempt)
    (message,) = out[client]
    assert message.failures == [["timed-out", "a", "inc", LIMIT_US, "w", 0, 1]]
    assert sorted(message.keys) == ["a", "b"]
    assert attempt in dropped(out, worker)
    assert out[worker][-1] == m.InterruptAttempts(attempts=[attempt])
    assert interruptions_of(board.state).n_timed_out == 1
    assert board.state.counters.tasks_failed_timed_out == 1
    # Its thread is not free yet.
    assert attempt in board.state.workers[worker].zombies


def test_the_failure_says_that_the_process_can_be_ended(board):
    client, _ = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a", timeout_us=LIMIT_US))
    out = overdue(board, worker, board.attempt("a"))
    assert out[client][0].failures[0][5] == 1
    assert board.rest() == ["DropAttempts", "InterruptAttempts"]


def end(board: Board, peer: int, attempt: int) -> dict[int, list[m.Message]]:
    """Let a dropped attempt end; return what is sent then, and in the tick that follows."""
    board.send(peer, m.AttemptsEnded(attempts=[attempt], ends=[m.INTERRUPTED]))
    return board.tick()


def test_a_retry_begins_when_the_attempt_before_it_has_ended(board):
    client, one = board.client(), board.worker("one")
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1))
    attempt = board.attempt("a")
    two = board.worker("two")
    out = overdue(board, one, attempt)
    assert client not in out
    assert board.states("a") == ["no_worker"]
    # The value of the first attempt comes too late, and is its end.
    out = board.send(one, finished([attempt]))
    assert client not in out
    out = board.tick()
    peer = board.where("a")
    assert peer in (one, two)
    assert assignment(out, peer).timeouts_us == [LIMIT_US]
    assert assignment(out, peer).n_raised == [1]
    out = overdue(board, peer, board.attempt("a"))
    assert out[client][0].failures[0][6] == 2
    assert board.state.counters.tasks_retried == 1
    assert board.rest() == ["DropAttempts", "InterruptAttempts"]


def test_a_task_that_read_the_value_of_an_overdue_attempt_runs_again(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1), graph(":a -> b"))
    first, reader = board.attempt("a"), board.attempt("b")
    assert dropped(overdue(board, worker, first), worker) == [first, reader]
    # The worker had finished the first and begun the other before it was told.
    board.send(worker, finished([first]))
    out = board.send(worker, m.AttemptsEnded(attempts=[reader], ends=[m.RETURNED]))
    assert client not in out
    board.tick()
    board.finish(worker, "a")
    assert board.states("a", "b") == ["memory", "processing"]
    assert board.attempt("b") > board.attempt("a") > reader
    out = board.finish(worker, "b")
    assert client in out
    assert board.states("b") == ["memory"]
    assert board.rest() == ["InterruptAttempts"]


def test_a_retry_does_not_wait_for_ever(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1))
    peer = board.where("a")
    overdue(board, peer, board.attempt("a"))
    for _ in range(6):
        assert board.states("a") == ["no_worker"]
        board.send(one, m.Heartbeat())
        board.send(two, m.Heartbeat())
        board.tick(END_PROCESS_AFTER_S / 5)
    board.tick(0.1)
    assert board.where("a") == (two if peer == one else one)


def test_a_retry_begins_when_the_process_has_ended(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1))
    peer = board.where("a")
    overdue(board, peer, board.attempt("a"))
    board.close(peer)
    board.tick()
    assert board.where("a") == (two if peer == one else one)


def test_a_retry_waits_for_its_pause(board):
    client, worker = board.client(), board.worker(nthreads=2)
    pauses = [30.0, 1.0, 30.0, 0.0]
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1, pauses=pauses))
    attempt = board.attempt("a")
    overdue(board, worker, attempt)
    end(board, worker, attempt)
    board.tick(1.0)
    assert board.states("a") == ["no_worker"]
    for _ in range(30):
        board.send(worker, m.Heartbeat())
        board.tick(1.0)
    assert board.states("a") == ["processing"]


def test_a_task_that_is_cancelled_while_it_waits_for_its_retry_is_forgotten(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1))
    attempt = board.attempt("a")
    overdue(board, worker, attempt)
    board.send(client, m.CancelKeys(keys=["a"], force=False, reason="", running=True))
    assert board.states("a") == ["-"]
    end(board, worker, attempt)
    assert board.states("a") == ["-"]


def test_exceptions_and_overdue_attempts_take_the_same_retries(board):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=2))
    board.raise_(worker, "a")
    attempt = board.attempt("a")
    overdue(board, worker, attempt)
    end(board, worker, attempt)
    board.raise_(worker, "a")
    assert board.states("a") == ["erred"]
    (_, first), (_, second), (_, third) = ends(board, "a")
    assert first == third == "exception"
    assert second.startswith("took longer than its timeout of 5 s; an exception")


def test_an_overdue_attempt_that_has_finished_or_was_dropped_is_stale(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", "b", timeout_us=LIMIT_US))
    first = board.attempt("a")
    board.finish(worker, "a")
    n_before = board.state.counters.reports_stale
    out = overdue(board, worker, first, 12345)
    assert out == {}
    assert board.states("a") == ["memory"]
    assert board.state.counters.reports_stale == n_before + 2
    assert interruptions_of(board.state).n_timed_out == 0


def test_an_attempt_that_is_reported_twice_counts_once(board):
    client, worker = board.client(), board.worker(nthreads=2)
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1))
    attempt = board.attempt("a")
    overdue(board, worker, attempt, attempt)
    overdue(board, worker, attempt)
    assert board.states("a") == ["no_worker"]
    assert interruptions_of(board.state).n_timed_out == 1


def test_a_worker_reports_only_attempts_of_its_own(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", timeout_us=LIMIT_US))
    liar = board.worker("liar")
    overdue(board, liar, board.attempt("a"))
    assert board.states("a") == ["processing"]
    assert board.where("a") == worker


def test_a_failure_in_the_same_report_may_take_away_the_need_for_a_retry(board):
    client, worker = board.client(), board.worker(nthreads=2)
    board.send(client, graph("a", timeout_us=LIMIT_US, retries=1), graph("b", timeout_us=LIMIT_US))
    board.send(client, graph(":a :b -> c"), m.ReleaseKeys(keys=["a", "b"]))
    overdue(board, worker, board.attempt("a"), board.attempt("b"))
    assert board.states("a", "c") == ["released", "erred"]
    assert not board.state.paused


def test_a_limit_holds_after_a_restart(new):
    """A new scheduler has the limits of calls that were submitted again."""
    worker = new.come_back(last_epoch=6, running={"a": 3})
    client = new.client(last_epoch=6)
    new.send(client, graph("a", timeout_us=LIMIT_US), m.Resubmitted())
    assert new.attempt("a") == 3
    assert sent_keys(overdue(new, worker, 3), client, m.KeysErred) == ["a"]
    assert new.rest() == ["DropAttempts", "InterruptAttempts"]


def test_an_attempt_of_a_task_that_nobody_has_submitted_yet_goes_on(new):
    worker = new.come_back(last_epoch=6, running={"a": 3})
    assert overdue(new, worker, 3) == {}
    client = new.client(last_epoch=6)
    new.send(client, graph("a", timeout_us=LIMIT_US), m.Resubmitted())
    # It is reported again.
    assert sent_keys(overdue(new, worker, 3), client, m.KeysErred) == ["a"]
    assert new.rest() == ["DropAttempts", "InterruptAttempts"]


def test_the_second_attempt_of_two_that_run_is_only_dropped(new):
    """Two workers came back with attempts of one task; each has a time of its own."""
    one = new.come_back("one", last_epoch=6, running={"a": 3})
    two = new.come_back("two", last_epoch=6, running={"a": 4})
    client = new.client(last_epoch=6)
    new.send(client, graph("a", timeout_us=LIMIT_US), m.Resubmitted())
    first = new.attempt("a")
    twin, attempt = (one, 3) if first == 4 else (two, 4)
    out = overdue(new, twin, attempt)
    assert dropped(out, twin) == [attempt]
    assert new.states("a") == ["processing"]
    assert new.attempt("a") == first


# -- how it was ended -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("end", "text"),
    [
        (m.RETURNED, "it ended by itself 0.5 s later"),
        (m.INTERRUPTED, "an exception (TaskInterrupted) ended it 0.5 s later"),
        (m.NOT_BEGUN, "it has ended"),
    ],
)
def test_the_record_of_an_attempt_says_how_it_was_ended(board, end, text):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", timeout_us=LIMIT_US))
    attempt = board.attempt("a")
    overdue(board, worker, attempt)
    assert ends(board, "a") == [["w", "took longer than its timeout of 5 s"]]
    board.tick(0.5)
    board.send(worker, m.AttemptsEnded(attempts=[attempt], ends=[end]))
    assert ends(board, "a") == [["w", f"took longer than its timeout of 5 s; {text}"]]


def test_a_process_that_is_ended_for_an_overdue_task_is_in_its_record_and_in_the_log(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a", timeout_us=LIMIT_US))
    overdue(board, worker, board.attempt("a"))
    sent = []
    for _ in range(6):
        board.send(worker, m.Heartbeat())
        board.send(supervisor, m.Heartbeat())
        sent += board.tick(END_PROCESS_AFTER_S / 5).get(supervisor, [])
    (order,) = [x for x in sent if isinstance(x, m.EndWorkers)]
    assert "1 overdue task did not end within 5 s" in order.reason
    board.close(worker)
    ((_, end),) = ends(board, "a")
    assert end.startswith("took longer than its timeout of 5 s; its process was ended 6 s later")


def test_a_task_whose_own_calls_have_its_process_ended_again_and_again_is_given_up():
    # The retries of a call are forgotten with it: the task is run again, and makes it anew.
    board = Board(allowed_deaths=1)
    client, supervisor = board.client(), board.supervisor()
    for n in (1, 2):
        worker = board.worker("w", worker_id=f"w{n}", supervisor_id="sup")
        if n == 1:
            board.send(client, graph("outer"))
        outer = board.attempt("outer")
        inside = board.client("in", worker_id=f"w{n}")
        board.send(inside, graph("inner", timeout_us=LIMIT_US, retries=3, attempt=outer))
        board.send(worker, m.AttemptsBlocked(attempts=[outer], keys=[["inner"]]))
        overdue(board, worker, board.attempt("inner"))
        for _ in range(6):
            for peer in (client, inside, worker, supervisor):
                board.send(peer, m.Heartbeat())
            out = board.tick(END_PROCESS_AFTER_S / 5)
            if n == 2 and (keys := sent_keys(out, client, m.KeysErred)):
                break
        board.close(worker)
        board.send(supervisor, m.WorkerExited(worker_id=f"w{n}", reason="ended", running=[]))
    assert keys == ["outer"]
    assert board.task("outer").failure[:3] == ["worker-died", "outer", 2]
    board.drop_rest()


def test_the_record_of_a_cancelled_attempt_says_how_it_was_ended(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    cancel = m.CancelKeys(keys=["a"], force=False, reason="", running=True)
    board.send(client, cancel)
    assert ends(board, "a") == []
    board.send(worker, m.AttemptsEnded(attempts=[attempt], ends=[m.RETURNED]))
    assert ends(board, "a") == [["w", "was cancelled; it ended by itself 0 s later"]]


def test_a_worker_that_comes_back_is_asked_again_to_interrupt(board):
    board.state.settings = replace(board.state.settings, away_s=60.0)
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", timeout_us=LIMIT_US))
    attempt = board.attempt("a")
    overdue(board, worker, attempt)
    board.close(worker)
    back = board.worker(last_epoch=board.state.epoch)
    row = m.InventoryUnfinished(keys=["a"], attempts=[attempt], phases=[m.RUNNING])
    out = board.send(back, row, m.InventoryEnd(n_rows=1))
    assert out[back][:2] == [
        m.DropAttempts(attempts=[attempt]),
        m.InterruptAttempts(attempts=[attempt]),
    ]


def test_a_description_names_the_limit(board):
    client, _ = board.client(), board.worker()
    board.send(client, graph("a", timeout_us=LIMIT_US))
    ask = m.Ask(request=1, name="tasks", arguments={"keys": ["a"]})
    (answer,) = board.send(client, ask)[client]
    assert answer.info["tasks"][0]["timeout_s"] == 5.0
    ask = m.Ask(request=1, name="explanations", arguments={"keys": ["a"]})
    (answer,) = board.send(client, ask)[client]
    assert "an attempt may run for 5 s" in answer.info["explanations"][0]["details"]


# -- a worker that cannot report anything ---------------------------------------------------------
def held_up(board: Board, supervisor: int, held_ms: int, *attempts: int) -> dict:
    n = len(attempts)
    message = m.WorkerHeldUp(worker_id="id of w", attempts=[*attempts], held_ms=[held_ms] * n)
    return board.send(supervisor, message)


def test_a_supervisor_reports_for_a_worker_whose_loop_does_not_run(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(nthreads=3, supervisor_id="sup")
    board.send(client, graph("a", "b", timeout_us=LIMIT_US), graph("c", function="dec"))
    attempts = [board.attempt(key) for key in ("a", "c")]
    assert held_up(board, supervisor, 4999, *attempts, 12345) == {}
    out = held_up(board, supervisor, 5000, *attempts)
    assert sent_keys(out, client, m.KeysErred) == ["a"]
    assert board.states("b", "c") == ["processing", "processing"]
    # Again, in the next heartbeat.
    assert held_up(board, supervisor, 6000, *attempts) == {}
    assert board.where("c") == worker
    assert board.rest() == ["DropAttempts", "InterruptAttempts"]


def test_a_supervisor_reports_only_for_its_own_workers(board):
    client, _ = board.client(), board.supervisor()
    board.worker(supervisor_id="sup")
    stranger = board.supervisor("other")
    board.send(client, graph("a", timeout_us=LIMIT_US))
    assert held_up(board, stranger, 1 << 48, board.attempt("a")) == {}
    assert board.states("a") == ["processing"]
