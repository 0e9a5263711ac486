"""Sessions that go on: away workers, inventories, the recovery of a new scheduler."""

from __future__ import annotations

import pytest

from tests.scheduler.core.recovery.recovery_kit import BEFORE, lines
from weft.protocol.wire import messages as m
from weft.scheduler.core.recovery.barrier import QUIET_S
from weft.scheduler.core.recovery.records import recovery_of

from ...builders import assigned, dropped, finished, function_id, graph, inventory, sent_keys


# -- away workers ---------------------------------------------------------------------------------
def test_a_worker_whose_connection_ends_keeps_its_work_and_gets_nothing_more(board):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, graph("kept", "runs"))
    board.finish(worker, "kept", blob=None)
    board.close(worker)
    assert lines(board) == ["the connection of worker w has ended: it may come back"]
    assert board.states("kept", "runs") == ["memory", "processing"]
    board.send(client, graph("late"))
    assert board.states("late") == ["queued"]
    board.tick(5.5)
    assert board.states("kept", "runs", "late") == ["no_worker"] * 3


@pytest.mark.parametrize("is_first", [True, False], ids=["report first", "close first"])
def test_an_exit_ends_the_wait_at_once_whatever_comes_first(board, is_first):
    client, sup = board.client(), board.supervisor("sup")
    worker = board.worker(supervisor_id="sup")
    board.send(client, graph("a"))
    report = m.WorkerExited(worker_id="id of w", reason="killed", running=[])
    if is_first:
        board.send(sup, report)
        board.close(worker)
    else:
        board.close(worker)
        assert board.states("a") == ["processing"]
        board.send(sup, report)
    assert board.states("a") == ["no_worker"]


def test_a_worker_that_is_back_goes_on_with_what_it_has(board):
    client, worker = board.client(), board.worker(nthreads=2)
    board.send(client, graph("kept", "runs", "ended"))
    attempts = {key: board.attempt(key) for key in ("kept", "runs", "ended")}
    board.finish(worker, "kept", blob=None)
    board.close(worker)
    back = board.come_back(
        nthreads=2,
        kept={"kept": attempts["kept"], "ended": attempts["ended"]},
        running={"runs": attempts["runs"]},
    )
    assert board.states("kept", "runs", "ended") == ["memory", "processing", "memory"]
    assert board.attempt("runs") == attempts["runs"]
    assert sent_keys(board.out, client, m.KeysInMemory) == ["ended"]
    assert m.Reconciled(n_kept=2, n_adopted=1, n_dropped=0) in board.out[back]
    assert dropped(board.out, back) == []


def test_keys_that_an_inventory_does_not_name_are_not_there(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("lost", "copy"))
    board.finish(worker, "copy", blob=None)
    first = board.attempt("lost")
    board.close(worker)
    back = board.come_back()
    assert board.states("lost", "copy") == ["processing"] * 2  # again, under new attempts
    assert assigned(board.out, back)["lost"] > first
    assert board.state.counters.tasks_recomputed == 1
    assert board.rest() == ["KeysPending", "Reconciled"]


def test_rows_that_are_not_wanted_any_more_are_dropped(board):
    client, worker = board.client(), board.worker(nthreads=2)
    board.send(client, graph("kept", "runs"))
    kept, runs = board.attempt("kept"), board.attempt("runs")
    board.finish(worker, "kept", blob=None)
    board.close(worker)
    board.send(client, m.ReleaseKeys(keys=["kept", "runs"]))
    back = board.come_back(nthreads=2, kept={"kept": kept}, running={"runs": runs})
    assert sorted(dropped(board.out, back)) == sorted([kept, runs])
    (ws,) = board.state.workers.values()
    assert list(ws.zombies) == [runs]  # its thread is busy until the worker reports the end
    board.send(back, m.AttemptsEnded(attempts=[runs]))
    assert not ws.zombies
    assert board.rest() == ["Reconciled"]


@pytest.mark.parametrize("was", ["kept", "running"])
def test_a_drop_before_the_row_of_an_attempt_is_left_to_that_row(board, was):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    if was == "kept":
        board.finish(worker, "a", blob=None)
    board.close(worker)
    back = board.worker(last_epoch=board.state.epoch)
    # The worker has sent its inventory already, and it has the result by then.
    out = board.send(client, m.ReleaseKeys(keys=["a"]))
    assert dropped(out, back) == []
    board.send(client, graph("a"))
    out = board.send(back, *inventory(kept={"a": attempt}))
    assert dropped(out, back) == []
    assert m.Reconciled(n_kept=1, n_adopted=0, n_dropped=0) in out[back]
    assert (board.states("a"), board.attempt("a")) == (["memory"], attempt)
    (ws,) = board.state.workers.values()
    assert not ws.zombies
    assert sent_keys(out, client, m.KeysInMemory) == ["a"]
    assert board.rest() == []


def test_a_drop_after_the_row_of_an_attempt_is_sent_before_the_inventory_ends(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a", blob=None)
    attempt = board.attempt("a")
    board.close(worker)
    back = board.worker(last_epoch=board.state.epoch)
    kept, *others = inventory(kept={"a": attempt})
    board.send(back, kept)
    assert dropped(board.send(client, m.ReleaseKeys(keys=["a"])), back) == [attempt]
    board.send(back, *others)
    assert not board.state.tasks
    assert board.rest() == []


def test_a_failure_that_was_not_reported_counts_once(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", retries=1))
    first = board.attempt("a")
    board.close(worker)
    back = board.come_back(failed={"a": first})
    assert board.state.n_exceptions == {board.task("a"): 1}
    assert dropped(board.out, back) == [first]
    board.close(back)
    again = board.come_back(failed={"a": first})  # the drop was lost
    assert dropped(board.out, again) == [first]
    assert board.state.n_exceptions == {board.task("a"): 1}
    board.raise_(again, "a")
    assert board.states("a") == ["erred"]
    assert board.rest() == ["Reconciled", "AssignTasks", "Reconciled", "AssignTasks"]


def test_a_failure_is_kept_at_its_worker_while_a_client_wants_it(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    assert dropped(board.raise_(worker, "a"), worker) == []
    board.close(worker)
    back = board.come_back(failed={"a": attempt})
    assert dropped(board.out, back) == []
    assert dropped(board.send(client, m.ReleaseKeys(keys=["a"])), back) == [attempt]
    assert board.rest() == ["KeysErred", "Reconciled"]


def test_functions_that_a_worker_has_are_not_sent_again_and_others_are_dropped(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    attempt = board.attempt("a")
    board.close(worker)
    back = board.come_back(running={"a": attempt}, functions=["inc", "old"])
    assert m.DropFunctions(functions=[function_id("old")]) in board.out[back]
    board.finish(back, "a")
    out = board.send(client, graph("b", blob=None))
    (assignment,) = [x for x in out[back] if isinstance(x, m.AssignTasks)]
    assert assignment.function_blobs == [None]


def test_a_client_s_report_about_an_away_worker_is_answered_when_it_is_back(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a", blob=None)
    attempt = board.attempt("a")
    board.close(worker)
    assert board.send(client, m.ReportMissing(keys=["a"], holder="tcp://w")) == {}
    board.come_back(kept={"a": attempt})
    assert sent_keys(board.out, client, m.KeysInMemory) == ["a"]
    assert board.rest() == ["Reconciled"]


def test_a_worker_that_is_back_is_no_longer_noted_as_out_of_reach(board):
    client, worker, other = board.client(), board.worker("w"), board.worker("other")
    board.send(client, graph("a", workers=["w"]))
    board.finish(worker, "a", blob=None)
    attempt = board.attempt("a")
    board.send(other, m.KeysMissing(keys=["a"], holder="tcp://w", unreachable=True))
    board.close(worker)
    board.come_back("w", kept={"a": attempt})
    assert not board.state.workers_by_id["id of other"].unreachable


def test_a_relayed_fetch_waits_for_an_away_worker(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    board.finish(worker, "a", blob=None)
    attempt = board.attempt("a")
    board.close(worker)
    assert (
        sent_keys(board.send(client, m.FetchKeys(request=1, keys=["a"])), client, m.KeysData) == []
    )
    back = board.come_back(kept={"a": attempt})
    (fetch,) = [x for x in board.out[back] if isinstance(x, m.FetchKeys)]
    out = board.send(
        back, m.KeysData(request=fetch.request, keys=["a"], results=[b"x"], missing=[])
    )
    assert sent_keys(out, client, m.KeysData) == ["a"]
    assert board.rest() == ["FetchKeys"]


def test_a_worker_that_comes_back_too_late_is_merged_with_what_was_placed_again(board):
    client, worker, other = board.client(), board.worker("w"), board.worker("other")
    board.send(client, graph("kept", "runs", "twice", workers=["w"], allow_other_workers=True))
    assert {board.where(key) for key in ("kept", "runs", "twice")} == {worker}
    attempts = {key: board.attempt(key) for key in ("kept", "runs", "twice")}
    board.close(worker)
    board.pass_time(6.0)
    assert {board.where(key) for key in ("kept", "runs", "twice")} <= {other, None}
    back = board.come_back(
        "w", kept={"kept": attempts["kept"]}, running={"twice": attempts["twice"]}
    )
    assert board.states("kept") == ["memory"]
    # The first of the two that run "twice" counts, and the other one is dropped.
    board.send(back, finished([attempts["twice"]], blob=None))
    assert board.states("twice") == ["memory"]
    assert board.attempt("twice") == attempts["twice"]
    assert not recovery_of(board.state).twins


def moved_from_a_lost_worker(board):
    """Let "a" be assigned anew; return the client, the other worker, and the first attempt."""
    client, worker, other = board.client(), board.worker("w"), board.worker("other")
    board.send(client, graph("a", workers=["w"], allow_other_workers=True))
    first = board.attempt("a")
    board.close(worker)
    board.pass_time(6.0)
    assert board.where("a") == other
    return client, other, first


def test_tasks_behind_an_attempt_that_a_kept_result_ends_are_placed_again(board):
    client, other, first = moved_from_a_lost_worker(board)
    board.send(client, graph(":a -> b"))
    ahead = board.attempt("b")
    assert (board.where("a"), board.where("b")) == (other, other)
    board.come_back("w", kept={"a": first})
    assert board.states("a", "b") == ["memory", "processing"]
    assert board.attempt("b") != ahead


def test_the_twin_of_an_attempt_that_finished_is_dropped(board):
    _, other, first = moved_from_a_lost_worker(board)
    assert board.where("a") == other
    back = board.come_back("w", running={"a": first})
    assert list(recovery_of(board.state).twins) == [first]
    assert dropped(board.finish(other, "a"), back) == [first]
    assert board.rest() == ["ResultsReady"]


def test_a_twin_may_submit_as_the_current_attempt_may(board):
    _, other, first = moved_from_a_lost_worker(board)
    board.come_back("w", running={"a": first})
    assert board.where("a") == other
    in_task = board.client("tasks of w", worker_id="id of w")
    out = board.send(in_task, graph("child", attempt=first))
    assert out.of(in_task, m.KeysErred) == []
    assert board.states("child") == ["processing"]
    outsider = board.client("tasks of other", worker_id="id of other")
    (erred,) = board.send(outsider, graph("foreign", attempt=first)).of(outsider, m.KeysErred)
    assert erred.failures[0][0] == "not-permitted"
    board.drop_rest()


def test_a_twin_takes_the_place_of_an_attempt_whose_worker_is_lost(board):
    _, other, first = moved_from_a_lost_worker(board)
    back = board.come_back("w", running={"a": first})
    board.close(other)
    board.pass_time(6.0)
    assert (board.where("a"), board.attempt("a")) == (back, first)


def test_a_twin_that_has_not_begun_takes_no_place(board):
    """It may wait for an input that was lost: it was not the current attempt then."""
    _, other, first = moved_from_a_lost_worker(board)
    back = board.come_back("w", running={"a": first})
    row = {"attempts": [board.attempt("a")], "durations_us": [1000]}
    out = board.send(other, m.AttemptsErred(**row, failures=[["exception", "a", "ValueError"]]))
    (asked,) = out.of(back, m.WithdrawAttempts)
    assert asked.attempts == [first]
    assert dropped(out, other) == row["attempts"]
    board.send(back, m.AttemptsWithdrawn(attempts=[first], started=[]))
    assert board.where("a") == back
    assert board.attempt("a") > first


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([m.InventoryEnd(n_rows=3)], "announced 3 rows and sent 0"),
        (inventory(kept={"a": 1 << 40}), "which no scheduler has given out"),
        (inventory() * 2, "in the middle of its session"),
    ],
)
def test_an_inventory_that_lies_ends_only_that_session(board, messages, reason):
    client, other = board.client(), board.worker("other")
    board.send(client, graph("a"))
    peer = board.worker("liar", last_epoch=7)
    board.send(peer, *messages)
    (text,) = board.refused()
    assert reason in text
    assert board.where("a") == other
    assert list(board.state.workers_by_id) == ["id of other"]


def test_a_worker_that_sends_no_inventory_is_given_up(board):
    mute = board.worker("mute", last_epoch=7)
    assert any(ws.is_away for ws in board.state.workers.values())
    for _ in range(2):
        assert board.pass_time(14.0) == []
        board.send(mute, m.Heartbeat())
    assert board.pass_time(3.0) == ["worker mute did not send its inventory"]
    assert not board.state.workers


def test_the_line_about_a_worker_that_is_back_counts_what_it_has(board):
    client, worker = board.client(), board.worker(nthreads=3)
    board.send(client, graph("a", "b", "c"))
    attempts = {key: board.attempt(key) for key in "abc"}
    board.close(worker)
    kept, running = {"a": attempts["a"]}, {"b": attempts["b"]}
    board.come_back(nthreads=3, kept=kept, running=running)
    (line,) = [line for line in lines(board) if "is back" in line]
    assert line == (
        "worker w is back with 1 result and 1 unfinished task; 1 other task is placed again"
    )


@pytest.mark.parametrize("is_early", [True, False], ids=["worker first", "client first"])
def test_rows_and_tasks_are_merged_in_either_order(new, is_early):
    rows = {"kept": {"h": 3}, "running": {"r": 4}, "assigned": {"s": 5}, "failed": {"f": 6}}
    if is_early:
        worker = new.come_back(last_epoch=BEFORE, **rows)
        assert sorted(recovery_of(new.state).rows) == ["f", "h", "r", "s"]
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("h", "r", "s", "f", "n"))
    if not is_early:
        worker = new.come_back(last_epoch=BEFORE, **rows)
    assert new.states("h", "r", "s", "f", "n") == [
        "memory", "processing", "processing", "erred", "queued"
    ]  # fmt: skip
    assert [new.attempt(key) for key in ("h", "r", "s")] == [3, 4, 5]
    assert {new.where("r"), new.where("s")} == {worker}
    assert not recovery_of(new.state).rows


def test_a_chain_that_was_assigned_ahead_goes_on(new):
    worker = new.come_back(last_epoch=BEFORE, running={"a": 3}, assigned={"b": 4, "c": 5})
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a -> b", "b -> c"))
    assert [new.attempt(key) for key in ("a", "b", "c")] == [3, 4, 5]
    new.send(worker, finished([3, 4], blob=None))
    assert new.states("a", "b", "c") == ["memory", "memory", "processing"]


def test_an_unstarted_attempt_whose_inputs_are_elsewhere_is_dropped(new):
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a -> b"))
    worker = new.come_back(last_epoch=BEFORE, assigned={"b": 4})
    assert new.states("a", "b") == ["queued", "waiting"]
    assert dropped(new.out, worker) == []  # the worker that holds "a" may still come back
    assert dropped(new.tick(QUIET_S), worker) == [4]
    new.send(worker, m.AttemptsEnded(attempts=[4]))
    assert new.states("a", "b") == ["processing", "processing"]
    assert new.rest() == ["Reconciled", "Recovered"]


@pytest.mark.parametrize("last", ["holder", "client"])
def test_an_unstarted_attempt_goes_on_although_its_inputs_are_known_later(new, last):
    client = new.client(last_epoch=BEFORE)
    if last == "holder":
        new.send(client, graph("a -> b"))
    worker = new.come_back("w", last_epoch=BEFORE, assigned={"b": 4})
    new.send(worker, m.KeysMissing(keys=["a"], holder="tcp://w"))
    new.come_back("holder", last_epoch=BEFORE, kept={"a": 3})
    out = new.send(client, graph("a -> b")) if last == "client" else {}
    out = out or new.tick(QUIET_S)
    assert (new.where("b"), new.attempt("b")) == (worker, 4)
    located = m.LocatedKeys(keys=["a"], attempts=[3], nbytes=[8], holders=[["tcp://holder"]])
    assert [x for x in out[worker] if isinstance(x, (m.LocatedKeys, m.DropAttempts))] == [located]
    new.drop_rest()


@pytest.mark.parametrize("ends", ["finished", "raised"])
def test_an_unstarted_attempt_that_ends_before_its_inputs_are_known_counts(new, ends):
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a -> b"))
    worker = new.come_back("w", last_epoch=BEFORE, assigned={"b": 4})
    if ends == "finished":
        new.send(worker, finished([4], blob=None))
        assert (new.states("b"), new.attempt("b")) == (["memory"], 4)
    else:
        failure = ["exception", "b", "E"]
        new.send(worker, m.AttemptsErred(attempts=[4], durations_us=[1], failures=[failure]))
        assert new.states("b") == ["erred"]
    assert not recovery_of(new.state).rows


def test_an_unmerged_attempt_that_ends_before_its_client_is_back_is_kept(new):
    worker = new.come_back(last_epoch=BEFORE, running={"a": 3, "b": 4})
    assert dropped(new.send(worker, finished([3])), worker) == []
    report = m.AttemptsErred(attempts=[4], durations_us=[1], failures=[["exception", "b", "E"]])
    assert dropped(new.send(worker, report), worker) == []
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a", "b"))
    assert new.states("a", "b") == ["memory", "erred"]


@pytest.mark.parametrize(("kind", "state"), [("kept", "memory"), ("failed", "erred")])
def test_the_outcome_of_a_dropped_attempt_waits_for_a_client(new, kind, state):
    """The worker did not get the drop, and its attempt has ended meanwhile."""
    worker = new.come_back(last_epoch=BEFORE, running={"a": 3})
    client = new.client("alice", last_epoch=BEFORE)
    new.send(client, graph("a"))
    assert dropped(new.send(client, m.ReleaseKeys(keys=["a"])), worker) == [3]
    new.close(worker)
    worker = new.come_back(**{kind: {"a": 3}})
    assert not new.state.workers[worker].zombies
    new.send(new.client("bob", last_epoch=BEFORE), graph("a"))
    assert new.states("a") == [state]


def test_failures_before_a_later_attempt_count_as_retries(new):
    new.come_back("one", last_epoch=BEFORE, failed={"a": 3})
    two = new.come_back("two", last_epoch=BEFORE, running={"a": 7})
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a", retries=2))
    assert (new.where("a"), new.attempt("a")) == (two, 7)


def test_a_failure_does_not_count_if_a_later_attempt_has_not_started(new):
    """Its worker kept it, because it was not told that the task was submitted again."""
    one = new.come_back("one", last_epoch=BEFORE, failed={"b": 3})
    two = new.come_back("two", last_epoch=BEFORE, assigned={"b": 7})
    client = new.client(last_epoch=BEFORE)
    out = new.send(client, graph("a -> b"))
    assert new.states("a", "b") == ["queued", "waiting"]
    assert dropped(out, one) == [3]
    new.come_back("holder", last_epoch=BEFORE, kept={"a": 6})
    new.tick(QUIET_S)
    assert (new.where("b"), new.attempt("b")) == (two, 7)


def test_content_of_the_same_name_but_another_hash_is_not_the_same_task(new):
    new.come_back(last_epoch=BEFORE, kept={"a": 3}, spec_hash="old")
    client = new.client(last_epoch=BEFORE)
    new.send(client, graph("a", named="new"))
    assert new.states("a") == ["queued"]
    assert not recovery_of(new.state).rows


def test_a_result_without_recipe_is_found_by_a_client_that_wants_it(new):
    client = new.client(last_epoch=BEFORE)
    assert sent_keys(new.send(client, m.WantKeys(keys=["a"])), client, m.KeysUnknown) == []
    new.come_back(last_epoch=BEFORE, kept={"a": 3})
    assert sent_keys(new.out, client, m.KeysInMemory) == ["a"]
    new.send(client, graph(":a -> b"))
    assert new.states("a", "b") == ["memory", "queued"]
    assert new.rest() == ["Reconciled"]


def test_a_key_that_no_peer_knows_is_unknown_at_the_barrier(new):
    client = new.client(last_epoch=BEFORE)
    new.send(client, m.WantKeys(keys=["a"]))
    new.come_back(last_epoch=BEFORE)
    unknown = []
    for _ in range(6):
        unknown += sent_keys(new.tick(1.0), client, m.KeysUnknown)
    assert unknown == ["a"]
    assert new.states("a") == ["-"]
    assert new.rest() == ["Recovered"]


def test_a_task_gets_its_recipe_when_its_client_is_back(new):
    bob, worker = new.client("bob", last_epoch=BEFORE), new.worker()
    new.send(bob, m.WantKeys(keys=["b"]), graph(":b -> c"))
    alice = new.client("alice", last_epoch=BEFORE)
    new.send(alice, graph("a -> b", function="f"))
    assert new.states("a", "b", "c") == ["queued", "waiting", "waiting"]
    new.pass_time(QUIET_S)
    for key in ("a", "b", "c"):
        new.finish(worker, key)
    assert new.states("a", "b", "c") == ["memory"] * 3


def test_a_result_without_recipe_gets_one_and_can_be_computed_again(new):
    bob = new.client("bob", last_epoch=BEFORE)
    worker = new.come_back(last_epoch=BEFORE, kept={"b": 3})
    new.send(bob, m.WantKeys(keys=["b"]))
    alice = new.client("alice", last_epoch=BEFORE)
    new.send(alice, graph("a -> b"), m.ReleaseKeys(keys=["a"]))
    assert new.states("a", "b") == ["released", "memory"]
    new.pass_time(QUIET_S)
    new.close(worker)
    new.pass_time(6.0)
    assert new.states("a", "b") == ["no_worker", "waiting"]


@pytest.mark.parametrize("kind", ["kept", "failed"])
def test_an_attempt_that_is_dropped_while_its_worker_comes_back_with_its_end_has_ended(board, kind):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("t"))
    attempt = board.attempt("t")
    board.close(worker)
    worker = board.worker("w", last_epoch=board.state.epoch)
    board.send(client, m.ReleaseKeys(keys=["t"]))
    board.send(worker, *inventory(**{kind: {"t": attempt}}))
    assert not board.state.workers[worker].zombies
    board.drop_rest()
