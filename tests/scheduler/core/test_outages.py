"""Cases at the edges of an outage of the scheduler or a connection to it, as sequences of events.

The table in tests/README.md lists all of them, with their tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message
from weft.scheduler.core.recovery.barrier import QUIET_S
from weft.scheduler.core.recovery.records import recovery_of

from ..builders import Board, assignment, dropped, finished, graph, sent_keys

#: An epoch before that of the board, and attempts of it.
BEFORE = 5


@pytest.fixture
def board() -> Board:
    return Board(away_s=5.0)


def test_the_table_of_cases_names_tests_that_exist():
    tests = Path(__file__).parents[2]
    named = re.findall(r"`([\w/]+\.py)::(test_\w+)`", (tests / "README.md").read_text())
    assert len(named) > 20
    for path, name in named:
        assert f"def {name}(" in (tests / path).read_text(), f"{path} has no {name}"


def resubmission(*keys: str) -> m.SubmitTasks:
    """Submit calls whose results the client has."""
    return graph(*keys, delivered=True)


# -- a worker that was given up -------------------------------------------------------------------
def test_a_result_that_was_made_again_meanwhile_is_dropped_at_the_worker_that_comes_back(board):
    client, worker, other = board.client(), board.worker("w"), board.worker("other")
    board.send(client, graph("a", workers=["w"], allow_other_workers=True))
    first = board.attempt("a")
    board.close(worker)
    board.pass_time(6.0)
    board.finish(other, "a", blob=None)
    second = board.attempt("a")
    back = board.come_back("w", kept={"a": first})
    assert dropped(board.out, back) == [first]
    assert sent_keys(board.out, client, m.KeysInMemory) == []
    assert (board.states("a"), board.attempt("a")) == (["memory"], second)
    assert board.rest() == ["Reconciled"]


def test_a_worker_started_again_under_its_name_runs_the_tasks_that_are_restricted_to_it(board):
    client, worker = board.client(), board.worker("gpu", worker_id="one", address="tcp://1")
    board.send(client, graph("a", workers=["gpu"]))
    board.close(worker)  # it is expected back, and its name is not free
    new = board.worker("gpu", worker_id="two2222", address="tcp://2")
    assert board.state.workers_by_id["two2222"].name == "gpu-two222"
    board.pass_time(6.0)
    assert board.where("a") == new


# -- results that clients have --------------------------------------------------------------------
def test_a_result_that_its_client_has_runs_again_only_for_a_task_that_reads_it(new):
    client = new.client(last_epoch=BEFORE)
    new.send(client, resubmission("a"), m.Resubmitted())
    worker = new.come_back(last_epoch=BEFORE, kept={"a": 3})
    assert (new.states("a"), new.attempt("a")) == (["memory"], 3)
    new.pass_time(QUIET_S)
    new.close(worker)
    new.pass_time(6.0)
    other = new.worker("other")
    assert new.states("a") == ["released"]
    new.send(client, graph(":a -> b"))
    assert new.where("a") == other


# -- copies ---------------------------------------------------------------------------------------
def test_workers_are_sent_the_hashes_of_inputs_that_others_hold(board):
    client, one, two = board.client(), board.worker("one"), board.worker("two")
    board.send(client, graph("a", named=True, workers=["one"]), graph("x", workers=["one"]))
    board.finish(one, "a", blob=None)
    board.finish(one, "x", blob=None)
    (spec_hash,) = [board.task("a").spec_hash]
    out = board.send(client, graph(":x :a -> b", workers=["two"]))
    assert assignment(out, two).located_hashes == [m.NO_HASH, spec_hash]
    out = board.send(two, m.KeysMissing(keys=["a"], holder="tcp://two"))
    (located,) = [message for message in out[two] if isinstance(message, m.LocatedKeys)]
    assert located.spec_hashes == [spec_hash]
    assert (
        assignment(board.send(client, graph(":x -> c", workers=["two"])), two).located_hashes == []
    )


# -- clients during the recovery ------------------------------------------------------------------
def test_a_client_that_is_gone_for_good_during_the_recovery_leaves_nothing(new):
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a", "b -> c"))  # and dies before the rest, and `Resubmitted`
    new.close(client)
    worker = new.come_back(last_epoch=BEFORE, kept={"a": 3, "d": 4}, running={"b": 5})
    gone: list[int] = []
    for _ in range(80):
        new.send(worker, m.Heartbeat())
        gone += dropped(new.tick(2.0), worker)
    assert not new.state.awaits_peers
    assert sorted(gone) == [3, 4, 5]
    assert new.states("a", "b", "c") == ["-"] * 3
    assert not recovery_of(new.state).rows


def test_the_keys_of_a_client_that_never_comes_back_stay_with_another_one_that_wants_them(new):
    new.come_back(last_epoch=BEFORE, kept={"a": 3, "b": 4})
    alice, bob = new.client("alice", last_epoch=BEFORE), new.client("bob", last_epoch=BEFORE)
    new.send(alice, graph("a", "b"), m.Resubmitted())
    new.send(bob, m.WantKeys(keys=["a"]), m.Resubmitted())
    new.close(alice)
    (worker,) = (ws.peer for ws in new.state.workers.values())
    for _ in range(40):
        new.send(worker, m.Heartbeat())
        new.tick(2.0)
    assert new.states("a", "b") == ["memory", "-"]
    assert [client.client_id for client in new.task("a").wanted_by] == ["bob"]


def test_a_task_that_was_cancelled_during_the_outage_is_dropped_where_it_runs(new):
    worker = new.come_back(last_epoch=BEFORE, running={"cancelled": 3, "wanted": 4})
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("wanted"), m.Resubmitted())  # the other key is left out
    gone: list[int] = []
    for _ in range(40):
        new.send(worker, m.Heartbeat())
        gone += dropped(new.tick(2.0), worker)
    assert gone == [3]
    assert (new.where("wanted"), new.attempt("wanted")) == (worker, 4)
    assert new.rest() == ["Recovered"]


# -- exceptions before the restart ----------------------------------------------------------------
def test_an_assignment_tells_how_often_its_task_has_raised(board):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, graph("a", "b", "c", retries=2))
    board.raise_(worker, "b")
    assert assignment(board.out, worker).n_raised == [1]
    board.send(client, graph("d", "e"))
    assert assignment(board.out, worker).n_raised == []
    assert board.rest() == ["DropAttempts"]


@pytest.mark.parametrize("is_early", [True, False], ids=["worker first", "client first"])
@pytest.mark.parametrize("kind", ["running", "failed"])
def test_exceptions_before_a_restart_count_after_it(new, kind, is_early):
    rows = {kind: {"a": 7}, "n_raised": 2}
    if is_early:
        worker = new.come_back(last_epoch=BEFORE, **rows)
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a", retries=2))
    if not is_early:
        worker = new.come_back(last_epoch=BEFORE, **rows)
    if kind == "running":
        assert new.state.n_exceptions == {new.task("a"): 2}
        report = m.AttemptsErred(attempts=[7], durations_us=[1], failures=[["exception", "a", "E"]])
        new.send(worker, report)
    assert new.states("a") == ["erred"]
    assert new.task("a").failure[-1] == 3  # exceptions, in all


def test_a_failure_whose_drop_was_lost_is_counted_once_by_the_next_scheduler(new):
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a", retries=1))
    worker = new.come_back(last_epoch=BEFORE, failed={"a": 3})
    assert dropped(new.out, worker) == [3]
    for _ in range(2):
        new.close(worker)  # before it has read that
        worker = new.come_back(last_epoch=new.state.epoch, failed={"a": 3})
        assert dropped(new.out, worker) == [3]
        assert new.state.n_exceptions == {new.task("a"): 1}
    new.pass_time(QUIET_S)
    assert new.states("a") == ["processing"]
    assert new.rest() == ["Reconciled", "Reconciled", "Reconciled"]


def test_a_worker_of_an_earlier_version_counts_no_exceptions(new):
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a", retries=1))
    new.come_back(last_epoch=BEFORE, running={"a": 3})
    assert new.state.n_exceptions == {}


# -- a scheduler that dies while it recovers ------------------------------------------------------
def test_a_scheduler_that_follows_one_which_died_while_it_recovered_finds_the_same():
    rows = {"kept": {"h": 3}, "running": {"r": 4}, "failed": {"f": 6}}
    seen: list[tuple[object, ...]] = []
    for epoch in (7, 8):
        board = Board(away_s=5.0)
        board.state.epoch = epoch
        board.state.first_attempt = board.state.next_attempt = 100
        client = board.client(last_epoch=epoch - 1)
        worker = board.come_back(last_epoch=epoch - 1, **rows)
        board.send(client, graph("h", "r", "f", "n"))
        states = board.states("h", "r", "f", "n")
        seen.append((states, board.attempt("h"), board.attempt("r"), dropped(board.out, worker)))
        assert board.rest() == ["KeysErred", "KeysInMemory"]
        assert board.state.awaits_peers  # and here the first one dies
    assert seen[0] == seen[1]
    out = board.send(worker, finished([4], blob=None))
    assert sent_keys(out, client, m.KeysInMemory) == ["r"]


def test_messages_of_an_earlier_session_of_a_worker_change_nothing(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    back = board.come_back(running={"a": attempt})
    late: list[Message] = [finished([attempt])]
    assert board.send(worker, *late) == {}
    assert (board.where("a"), board.attempt("a")) == (back, attempt)


# -- tasks that go on without a recipe -------------------------------------------------------------
def answers(out: dict[int, list[Message]], worker: int) -> list[Message]:
    kinds = (m.KeysUnknown, m.LocatedKeys)
    return [message for message in out.get(worker, []) if isinstance(message, kinds)]


def pass_lease(board: Board, worker: int) -> list[Message]:
    """Let the lease end of clients that do not come back; return what the worker is answered."""
    found = []
    for _ in range(40):
        board.send(worker, m.Heartbeat())
        found += answers(board.tick(2.0), worker)
    return found


@pytest.mark.parametrize("was", ["nowhere", "failed", "running"])
def test_an_attempt_whose_input_no_client_submits_is_given_back_and_its_client_asked(new, was):
    bob = new.client("bob", last_epoch=BEFORE)
    new.send(bob, m.WantKeys(keys=["b"]), m.Resubmitted())
    rows = {} if was == "nowhere" else {was: {"a": 3}}
    worker = new.come_back(last_epoch=BEFORE, assigned={"b": 4}, **rows)
    if was != "running":
        new.send(worker, m.KeysMissing(keys=["a"], holder="tcp://w"))
    else:
        failure = ["exception", "a", "E"]
        new.send(worker, m.AttemptsErred(attempts=[3], durations_us=[1], failures=[failure]))
    assert answers(new.tick(QUIET_S), worker) == []  # a client may still submit it
    assert (new.state.awaits_peers, new.where("b"), new.attempt("b")) == (False, worker, 4)
    assert pass_lease(new, worker) == [m.KeysUnknown(keys=["a"])]
    out = new.send(worker, m.AttemptsReturned(attempts=[4]))
    out = out if bob in out else new.tick()
    assert sent_keys(out, bob, m.KeysUnknown) == ["b"]
    assert new.rest() == ["Recovered"]


def test_an_attempt_without_recipe_gets_its_input_from_a_worker_that_comes_back_later(new):
    bob = new.client("bob", last_epoch=BEFORE)
    new.send(bob, m.WantKeys(keys=["b", "a"]), m.Resubmitted())
    worker = new.come_back(last_epoch=BEFORE, assigned={"b": 4})
    new.send(worker, m.KeysMissing(keys=["a"], holder="tcp://w"))
    new.come_back("holder", last_epoch=BEFORE, kept={"a": 3})
    located = m.LocatedKeys(keys=["a"], attempts=[3], nbytes=[8], holders=[["tcp://holder"]])
    assert answers(new.tick(QUIET_S), worker) == [located]
    assert new.rest() == ["Recovered"]


def test_an_input_that_is_lost_later_is_answered_at_once(new):
    bob = new.client("bob", last_epoch=BEFORE)
    new.send(bob, m.WantKeys(keys=["b"]), m.Resubmitted())
    worker = new.come_back(last_epoch=BEFORE, assigned={"b": 4})
    new.tick(QUIET_S)
    assert pass_lease(new, worker) == []
    out = new.send(worker, m.KeysMissing(keys=["a"], holder="tcp://other"))
    assert answers(out, worker) == [m.KeysUnknown(keys=["a"])]


def test_a_client_that_asks_for_calls_that_failed_before_gets_the_failures_that_were_kept(new):
    new.send(new.client("alice", last_epoch=BEFORE), m.Resubmitted())  # her calls have failed
    bob = new.client("bob", last_epoch=BEFORE)
    new.send(bob, m.WantKeys(keys=["a", "b"]), m.Resubmitted())
    new.come_back(last_epoch=BEFORE, failed={"a": 3})
    out = new.tick(QUIET_S)
    assert sent_keys(out, bob, m.KeysErred) == ["a"]
    assert sent_keys(out, bob, m.KeysUnknown) == ["b"]
    assert new.rest() == ["Recovered", "Recovered"]
