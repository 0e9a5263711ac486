"""Lost workers, lost and missing data."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from weft.protocol.death_facts import DeathFacts, HeldResults
from weft.protocol.wire import messages as m
from weft.protocol.wire.session import MISSED_HEARTBEATS
from weft.scheduler.core.ends.attempt_ends import attempt_ends
from weft.scheduler.core.members.membership import MAX_REASON_CHARS
from weft.scheduler.core.reports.missing import MAX_UNREACHABLE_ROUNDS

from ...builders import Board, assigned, dropped, finished, graph, sent_keys


def test_a_lost_worker_s_work_is_placed_again_under_new_attempts(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a b c d"))
    out = board.close(one)
    assert assigned(out, two) == {"a": 5, "b": 6}
    assert one not in out
    assert sent_keys(out, client, m.KeysErred) == []


def test_a_lost_worker_reschedules_only_its_own_tasks(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a b c d"))
    board.close(one)
    assert [board.attempt(key) for key in "cd"] == [3, 4]
    assert board.where("c") == two


def test_a_lost_only_copy_that_is_needed_is_computed_again(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    two = board.worker("two")
    out = board.close(one)
    assert sent_keys(out, client, m.KeysPending) == ["a"]
    assert assigned(out, two) == {"a": 2}


def test_a_lost_copy_of_delivered_data_is_not_computed_again(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, graph("a"))
    board.finish(one, "a")
    two = board.worker("two")
    assert sent_keys(board.close(one), client, m.KeysPending) == []
    assert board.states("a") == ["released"]
    # Another client or a new task that needs it later gets it.
    out = board.send(client, graph(":a -> b", blob=None))
    assert list(assigned(out, two)) == ["a", "b"]


def test_another_client_gets_what_was_delivered_to_the_first_and_lost(board):
    alice, bob = board.client("alice"), board.client("bob")
    one = board.worker("one")
    board.send(alice, graph("a"))
    board.finish(one, "a")
    two = board.worker("two")
    board.close(one)
    out = board.send(bob, m.WantKeys(keys=["a"]))
    assert sent_keys(out, bob, m.KeysPending) == ["a"]
    assert assigned(out, two) == {"a": 2}


def test_a_second_copy_makes_a_loss_harmless(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None)
    board.send(two, m.ReplicasAdded(attempts=[1], keys=["a"]))
    out = board.close(one)
    assert sent_keys(out, client, m.KeysPending) == []
    assert [ws.peer for ws in board.task("a").replicas] == [two]
    assert board.rest() == ["KeysInMemory"]


def test_clients_are_sent_the_other_holder_of_data_that_they_lack(board):
    """One of them may be waiting for the lost worker, whose process may still run."""
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None, nbytes=1 << 20)
    board.send(two, m.ReplicasAdded(attempts=[board.attempt("a")], keys=["a"]))
    out = board.close(one)
    (told_of,) = [x for x in out[client] if isinstance(x, m.KeysInMemory)]
    assert (told_of.keys, told_of.holders) == (["a"], ["tcp://two"])
    assert sent_keys(out, client, m.KeysPending) == []


def test_the_loss_of_a_worker_is_reported_to_those_that_read_its_data_only(board):
    client = board.client()
    holder, reader, other = (board.worker(name) for name in ("holder", "reader", "other"))
    board.send(client, graph("a", workers=["holder"]))
    board.finish(holder, "a", blob=None)
    board.send(client, graph(":a -> b", workers=["reader"]))
    board.send(client, graph("c", workers=["other"]))
    out = board.close(holder)
    gone = m.HoldersGone(addresses=["tcp://holder"])
    assert gone in out[reader]
    assert gone not in out.get(other, [])
    assert board.rest() == ["KeysPending"]


def test_a_copy_of_data_that_is_not_in_memory_any_more_is_dropped(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a"))
    board.finish(one, "a")
    board.send(client, m.ReleaseKeys(keys=["a"]))
    out = board.send(two, m.ReplicasAdded(attempts=[1], keys=["a"]))
    assert dropped(out, two) == [1]


def test_lost_lineage_is_computed_again_down_to_existing_data(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, graph("a", "a -> b", "b -> c"))
    board.send(client, m.ReleaseKeys(keys=["a", "b"]))
    for key in "abc":
        board.finish(one, key, blob=None)
    assert board.states("a", "b", "c") == ["released", "released", "memory"]
    two = board.worker("two")
    out = board.close(one)
    assert list(assigned(out, two)) == ["a", "b", "c"]
    assert board.rest() == ["KeysPending"]


def test_queued_tasks_wait_again_when_an_input_is_lost(board):
    client = board.client()
    one = board.worker("one", resources={"r": 1.0})
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None)
    board.send(client, graph("x", resources={"r": 1.0}, function="f"))
    board.send(client, graph(":a -> b", resources={"r": 1.0}, blob=None))
    assert board.states("b") == ["queued"]
    board.send(client, m.ReportMissing(keys=["a"], holder="tcp://one"))
    assert board.states("a", "b") == ["processing", "waiting"]
    board.finish(one, "a", blob=None)
    assert board.states("b") == ["queued"]


def test_inputs_of_a_task_that_fails_meanwhile_are_not_computed_again(board):
    """Two inputs are lost at once; one cannot be computed again, so the other is not needed."""
    client = board.client()
    one = board.worker("one")
    board.send(client, graph("bad"))
    board.finish(one, "bad")
    board.send(client, graph(":bad -> x", blob=None), graph("y", blob=None))
    board.send(client, graph(":x :y -> z", blob=None, workers=["nobody"]))
    board.finish(one, "x", blob=None)
    board.finish(one, "y", blob=None)
    board.send(client, m.ReleaseKeys(keys=["x", "y"]))
    # "bad" is computed once more for another client, and raises this time.
    board.send(client, m.ReportMissing(keys=["bad"], holder="tcp://one"))
    board.raise_(one, "bad")
    assert board.states("bad", "x", "y", "z") == ["erred", "memory", "memory", "no_worker"]
    out = board.close(one)
    assert sent_keys(out, client, m.KeysErred) == ["z"]
    assert board.states("x", "y", "z") == ["released", "released", "erred"]


# -- deaths ---------------------------------------------------------------------------------------
def died(worker_id: str, running: list[int], reason: str = "SIGKILL") -> m.WorkerExited:
    return m.WorkerExited(worker_id=worker_id, reason=reason, running=running)


def test_each_cause_of_deaths_is_named_once_with_its_count():
    board = Board(allowed_deaths=3)
    client, supervisor = board.client(), board.supervisor("sup")
    for n, reason in enumerate(["SIGKILL", "SIGKILL", "memory limit", "SIGKILL"]):
        worker = board.worker("w", worker_id=f"w{n}", supervisor_id="sup")
        if n == 0:
            board.send(client, graph("bad"))
        running = board.attempt("bad")
        board.close(worker)
        board.send(supervisor, died(f"w{n}", [running], reason))
    assert board.task("bad").failure == [
        "worker-died", "bad", 4, "w", "SIGKILL (3 times); memory limit",
    ]  # fmt: skip


def test_the_failure_after_deaths_by_memory_says_what_the_worker_held():
    board = Board(allowed_deaths=0)
    client, supervisor = board.client(), board.supervisor("sup")
    worker = board.worker("w", worker_id="w1", supervisor_id="sup")
    board.send(client, graph("first second bad"))
    for key in ("first", "second"):
        board.finish(worker, key, nbytes=150 << 20, blob=None)
    running = board.attempt("bad")
    board.close(worker)
    board.send(supervisor, died("w1", [running], "memory limit: 0.98 of 1.00 GiB"))
    assert board.task("bad").failure[4] == (
        "memory limit: 0.98 of 1.00 GiB; w held 2 results, 300 MiB; raise memory_limit, or gather "
        "and release results in batches"
    )


@pytest.mark.parametrize("is_first", [True, False], ids=["report first", "end first"])
def test_the_failure_has_the_facts_of_the_last_death(is_first):
    board = Board(allowed_deaths=0)
    client, supervisor = board.client(), board.supervisor("sup")
    worker = board.worker("w", worker_id="w1", supervisor_id="sup")
    board.send(client, graph("first second bad"))
    for key in ("first", "second"):
        board.finish(worker, key, nbytes=150 << 20, blob=None)
    name = board.task("first").group.prefix.name
    report = died("w1", [board.attempt("bad")], "memory limit: 0.98 of 1.00 GiB")
    known = DeathFacts(1 << 30, 0, (), ("the last line",))
    report.facts = {**known.to_plain(), "later": "a fact of a later version"}
    if is_first:
        board.send(supervisor, report)
    board.close(worker)
    if not is_first:
        board.send(supervisor, report)
    failure = board.task("bad").failure
    assert DeathFacts.from_items(failure[5:]) == replace(
        known, held_most=(HeldResults(name, 2, 300 << 20),)
    )
    memory = f"; its memory was 1 GiB at most; it held 2 results of {name} (300 MiB)"
    assert attempt_ends(board.state, "bad") == [
        ("w", f"the worker died: memory limit: 0.98 of 1.00 GiB{memory}")
    ]


def test_only_running_tasks_are_blamed_for_a_death_and_too_many_deaths_fail_them():
    board = Board(allowed_deaths=1)
    client, supervisor = board.client(), board.supervisor("sup")
    for n in (1, 2):
        worker = board.worker("w", worker_id=f"w{n}", supervisor_id="sup")
        if n == 1:
            board.send(client, graph("bad good"))
        running = board.attempt("bad")
        board.close(worker)
        out = board.send(supervisor, died(f"w{n}", [running]))
    assert sent_keys(out, client, m.KeysErred) == ["bad"]
    assert board.task("bad").failure == [
        "worker-died", "bad", 2, "w", "SIGKILL",
    ]  # fmt: skip
    assert board.states("good") == ["no_worker"]
    assert board.state.counters.tasks_failed_worker_died == 1


def test_a_task_whose_own_call_ends_its_process_is_blamed_as_well():
    # Nobody else wants the call, so it is forgotten with the process; the task makes a new one.
    board = Board(allowed_deaths=1)
    client, supervisor = board.client(), board.supervisor("sup")
    for n in (1, 2):
        worker = board.worker("w", worker_id=f"w{n}", supervisor_id="sup")
        if n == 1:
            board.send(client, graph("outer"))
        outer = board.attempt("outer")
        inside = board.client("in", worker_id=f"w{n}")
        board.send(inside, graph("inner", attempt=outer))
        blocked = m.AttemptsBlocked(attempts=[outer], keys=[["inner"]], actors=[""], calls=[0])
        board.send(worker, blocked)
        running = board.attempt("inner")
        assert board.where("inner") == worker
        board.close(worker)
        board.close(inside)
        out = board.send(supervisor, died(f"w{n}", [running]))
    assert sent_keys(out, client, m.KeysErred) == ["outer"]
    assert board.task("outer").failure[:3] == ["worker-died", "outer", 2]


def test_a_worker_that_dies_of_serving_a_result_counts_against_its_task():
    board = Board(allowed_deaths=1)
    client, supervisor = board.client(), board.supervisor("sup")
    board.send(client, graph("large small"))
    for n in (1, 2):
        worker = board.worker("w", worker_id=f"w{n}", supervisor_id="sup")
        attempt = board.attempt("large")
        for key in ("large", "small"):
            board.finish(worker, key, nbytes=500, blob=None)
        board.close(worker)
        out = board.send(supervisor, died(f"w{n}", [attempt]))
    assert sent_keys(out, client, m.KeysErred) == ["large"]
    assert board.task("large").failure[:5] == [
        "worker-died", "large", 2, "w",
        "SIGKILL, while its result (500 bytes) was pickled or sent",
    ]  # fmt: skip
    assert board.states("small") == ["no_worker"]


def test_a_result_that_is_there_again_before_the_report_comes_is_counted_and_stays():
    board = Board(allowed_deaths=0)
    client, supervisor = board.client(), board.supervisor("sup")
    one = board.worker("w", worker_id="w1", supervisor_id="sup")
    board.send(client, graph("a"))
    board.finish(one, "a", nbytes=500, blob=None)
    two = board.worker("w", worker_id="w2", supervisor_id="sup")
    board.close(one)
    board.finish(two, "a", nbytes=500, blob=None)
    board.send(supervisor, died("w1", [1]))
    assert board.states("a") == ["memory"]
    board.close(two)
    out = board.send(supervisor, died("w2", [2]))
    assert sent_keys(out, client, m.KeysErred) == ["a"]


def test_the_report_may_come_before_the_connection_ends():
    board = Board(allowed_deaths=0)
    client, supervisor = board.client(), board.supervisor("sup")
    worker = board.worker("w", worker_id="w1", supervisor_id="sup")
    board.send(client, graph("bad"))
    board.send(supervisor, died("w1", [1]))
    assert board.states("bad") == ["processing"]
    out = board.close(worker)
    assert sent_keys(out, client, m.KeysErred) == ["bad"]


def test_a_death_that_is_reported_late_does_not_count_for_a_task_that_has_failed_since():
    board = Board(allowed_deaths=1)
    client, supervisor = board.client(), board.supervisor("sup")
    one = board.worker("one", worker_id="w1", supervisor_id="sup")
    board.send(client, graph("a"))
    running = board.attempt("a")
    two = board.worker("two", worker_id="w2", supervisor_id="sup")
    board.close(one)
    board.raise_(two, "a")
    out = board.send(supervisor, died("w1", [running]))
    assert sent_keys(out, client, m.KeysErred) == []
    assert board.state.deaths == {}
    # Submitted again, its count starts at zero: one death is allowed.
    board.send(client, graph("a"))
    running = board.attempt("a")
    board.close(two)
    board.send(supervisor, died("w2", [running]))
    assert board.states("a") == ["no_worker"]


def test_a_worker_that_leaves_in_order_is_not_a_death():
    board = Board(allowed_deaths=0)
    client, supervisor = board.client(), board.supervisor("sup")
    worker = board.worker("w", worker_id="w1", supervisor_id="sup")
    board.send(client, graph("a"))
    board.send(worker, m.Bye(reason="retired"))
    board.send(supervisor, died("w1", [1]))
    assert board.states("a") == ["no_worker"]
    counters = board.state.counters
    assert (counters.workers_left, counters.workers_lost) == (1, 0)


# -- data that its holder does not have -----------------------------------------------------------
def test_a_worker_is_sent_another_holder_of_a_missing_key(board):
    client = board.client()
    one, two, three = board.worker("one"), board.worker("two"), board.worker("three")
    board.send(client, graph("a"))
    board.finish(one, "a", nbytes=5, blob=None)
    board.send(two, m.ReplicasAdded(attempts=[1], keys=["a"]))
    out = board.send(three, m.KeysMissing(keys=["a"], holder="tcp://one"))
    assert out == {
        one: [m.DropAttempts(attempts=[1])],
        three: [m.LocatedKeys(keys=["a"], attempts=[1], nbytes=[5], holders=[["tcp://two"]])],
    }


def test_a_task_that_waits_for_data_that_is_nowhere_is_taken_back(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None)
    board.send(client, graph(":a -> b", blob=None, workers=["two"]))
    two = board.worker("two")
    attempt = board.attempt("b")
    out = board.send(two, m.KeysMissing(keys=["a"], holder="tcp://one"))
    assert dropped(out, two) == [attempt]
    assert board.where("a") == one  # `two` may still hold a thread for b
    assert board.states("b") == ["waiting"]
    assert sent_keys(out, client, m.KeysPending) == ["a"]
    assert board.rest() == ["DropAttempts", "AssignTasks"]


def test_a_task_stays_where_its_missing_input_has_been_assigned_meanwhile(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a -> b", retries=1))
    board.raise_(worker, "a")
    a, b = board.attempt("a"), board.attempt("b")
    # It was sent before the worker had read that "a" runs there again.
    out = board.send(worker, m.KeysMissing(keys=["a"], holder="tcp://w"))
    assert out == {}
    assert [board.attempt(key) for key in "ab"] == [a, b]


def test_a_late_report_about_an_earlier_copy_of_a_holder_drops_no_later_one(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"]))
    board.finish(one, "a", blob=None)
    old = board.attempt("a")
    board.send(two, m.KeysMissing(keys=["a"], holder="tcp://one", attempts=[old]))
    board.finish(one, "a", blob=None)  # it was lost there, and is made again
    late = m.KeysMissing(keys=["a"], holder="tcp://one", attempts=[old])
    out = board.send(two, late)
    assert dropped(out, one) == []
    assert board.states("a") == ["memory"]
    assert sent_keys(out, two, m.LocatedKeys) == ["a"]


def test_a_missing_key_of_an_unknown_holder_loses_nothing(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a", blob=None)
    out = board.send(client, m.ReportMissing(keys=["a", "b"], holder="tcp://nobody"))
    assert out[client] == [
        m.KeysInMemory(keys=["a"], nbytes=[8], holder_of=[0], holders=["tcp://w"]),
        m.KeysUnknown(keys=["b"]),
    ]


# -- many keys at once ----------------------------------------------------------------------------
def test_a_message_that_grows_in_the_out_box_stays_within_the_limit_of_a_column(board):
    """The limit is lowered for the test; a lost worker may have held a million keys."""
    client = board.client()
    worker = board.worker(nthreads=4)
    keys = [f"k{i}" for i in range(25)]
    board.send(client, graph(" ".join(keys)))
    board.send(worker, finished([board.attempt(key) for key in keys], blob=None))
    with patch("weft.scheduler.core.moves.transitions.MAX_ITEMS", 10):
        board.close(worker)
        other = board.worker("other", nthreads=4)
        board.send(client, m.CancelKeys(keys=keys[:1], force=False, reason=""))
        board.send(client, graph("root"), graph(*[f":root -> d{i}" for i in range(25)], blob=None))
        board.raise_(other, "root")
        out = board.send(client, m.ReleaseKeys(keys=keys))
        drops = [x.attempts for x in out[other] if isinstance(x, m.DropAttempts)]
        assert max(len(part) for part in drops) <= 10


# -- holders that cannot be reached ---------------------------------------------------------------
def test_data_out_of_reach_of_one_worker_is_not_made_again_and_its_task_goes_to_the_data(board):
    client = board.client()
    one = board.worker("one")
    board.send(client, graph("a"))
    board.finish(one, "a", blob=None)
    board.send(client, graph("long"))  # so that b goes to the other one
    board.tick(1.0)
    two = board.worker("two")
    board.send(client, graph(":a -> b", blob=None))
    assert board.where("b") == two
    attempt = board.attempt("b")
    out = board.send(two, m.KeysMissing(keys=["a"], holder="tcp://one", unreachable=True))
    assert dropped(out, two) == [attempt]
    assert board.states("a") == ["memory"]
    assert board.where("b") == one
    assert board.rest() == ["AssignTasks"]


@pytest.fixture
def apart(board):
    """Task b may run on "two" only and needs a, which only "one" has."""
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"]))
    board.finish(one, "a", blob=None)
    board.send(client, graph(":a -> b", blob=None, workers=["two"]))
    return client, one, two


def fail_to_fetch(board, two):
    """Let worker two fail to fetch a until it gets no more requests; return how often."""
    for n in range(100):
        if board.states("b") != ["processing"]:
            return n
        attempt = board.attempt("b")
        board.send(two, m.KeysMissing(keys=["a"], holder="tcp://one", unreachable=True))
        board.send(two, m.AttemptsEnded(attempts=[attempt]))
    raise AssertionError("it is tried for ever")


def test_inputs_that_no_worker_can_bring_together_are_an_error_in_the_end(board, apart):
    _, one, two = apart
    for _ in range(2 * MISSED_HEARTBEATS):
        assert board.states("a") == ["memory"]
        fail_to_fetch(board, two)
        if board.states("b") == ["erred"]:
            break
        for peer in (one, two):
            board.send(peer, m.Heartbeat())
        board.tick(2.0)
    assert board.states("a", "b") == ["memory", "erred"]
    assert board.task("b").failure[0] == "data-lost"
    assert "tcp://one" in board.task("b").failure[2]
    assert board.state.counters.tasks_recomputed == 0


def test_a_holder_whose_death_is_not_noticed_yet_costs_no_task(board, apart):
    _, _, two = apart
    assert fail_to_fetch(board, two) == MAX_UNREACHABLE_ROUNDS + 1
    assert board.states("b") == ["no_worker"]
    for _ in range(MISSED_HEARTBEATS + 2):
        board.send(two, m.Heartbeat())
        board.tick(2.0)
        assert fail_to_fetch(board, two) <= 1  # once a tick
    assert board.states("a", "b") == ["no_worker", "waiting"]
    again = board.worker("one")
    board.finish(again, "a", blob=None)
    board.finish(two, "b")
    assert board.states("a", "b") == ["memory", "memory"]


def test_a_task_that_has_run_starts_to_count_anew(board, apart):
    _, _, two = apart
    board.send(two, m.KeysMissing(keys=["a"], holder="tcp://one", unreachable=True))
    assert board.task("b") in board.state.out_of_reach
    board.finish(two, "b")
    assert board.state.out_of_reach == {}


def test_data_that_is_out_of_reach_now_and_then_is_not_given_up(board, apart):
    _, one, two = apart
    for _ in range(3):
        fail_to_fetch(board, two)
        assert board.states("b") == ["no_worker"]
        for _ in range(MISSED_HEARTBEATS + 2):
            for peer in (one, two):
                board.send(peer, m.Heartbeat())
            board.tick(2.0)
        assert board.states("b") == ["processing"]


def test_tasks_whose_inputs_are_out_of_reach_for_now_are_no_reason_for_a_warning(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two", nthreads=2)
    board.send(client, graph("a c", workers=["one"]))
    board.finish(one, "a", blob=None)
    board.finish(one, "c", blob=None)
    board.send(client, graph(":a -> b", ":c -> d", blob=None, workers=["two"]))
    task_class = board.task("b").group.task_class

    def set_aside(task: str, lacks: str) -> None:
        while board.states(task) == ["processing"]:
            attempt = board.attempt(task)
            missing = m.KeysMissing(keys=[lacks], holder="tcp://one", unreachable=True)
            board.send(two, missing, m.AttemptsEnded(attempts=[attempt]))

    sent: list[str] = []
    set_aside("b", "a")
    for n in range(70):  # 4.2 s
        sent += sent_keys(board.tick(0.06), client, m.KeysUnrunnable)
        set_aside(*[("d", "c"), ("b", "a")][n % 2])
        assert task_class.unrunnable  # one of the two tasks, each for a moment
    assert sent == []
    board.close(two)
    assert sorted(sent_keys(board.tick(6.0), client, m.KeysUnrunnable)) == ["b", "d"]
    board.drop_rest()


def test_exit_reports_are_kept_only_for_registered_workers_of_the_same_supervisor(board):
    sup, other = board.supervisor("sup"), board.supervisor("other")
    worker = board.worker("w", worker_id="w", supervisor_id="sup")
    for n in range(3):
        board.send(sup, died(f"never joined {n}", []))
    board.send(other, died("w", []))
    assert board.state.lost.exit_reports == {}
    assert board.state.counters.reports_stale == 1
    board.send(sup, died("w", [], "r" * 100_000))
    assert board.state.lost.exit_reports["w"].reason == "r" * MAX_REASON_CHARS + " [...]"
    board.close(worker)
    assert board.state.lost.exit_reports == {}


def test_only_the_supervisor_of_a_lost_worker_counts_deaths_against_its_tasks():
    board = Board(allowed_deaths=0)
    client, sup, other = board.client(), board.supervisor("sup"), board.supervisor("other")
    worker = board.worker("w", worker_id="w", supervisor_id="sup")
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    board.close(worker)
    board.send(other, died("w", [attempt]))
    assert board.states("a") == ["no_worker"]
    board.send(sup, died("w", [attempt]))
    assert board.states("a") == ["erred"]


def test_a_lost_worker_is_no_longer_noted_as_out_of_reach(board):
    client, holder, reader = board.client(), board.worker("holder"), board.worker("reader")
    board.send(client, graph("a", workers=["holder"]))
    board.finish(holder, "a", blob=None)
    missing = m.KeysMissing(keys=["a"], holder="tcp://holder", unreachable=True)
    board.send(reader, missing)
    ws = board.state.workers[reader]
    assert [other.name for other in ws.unreachable] == ["holder"]
    board.close(holder)
    assert ws.unreachable == {}
