"""The barrier at the end of a recovery: whom it waits for, and for how long."""

from __future__ import annotations

import pytest

from tests.scheduler.core.recovery.recovery_kit import BEFORE, lines
from weft.protocol.wire import messages as m
from weft.scheduler.core.members.epochs import GiveWay, StartOver
from weft.scheduler.core.records.presence import Members
from weft.scheduler.core.recovery.barrier import MOST_S, QUIET_S, waits_for
from weft.scheduler.core.recovery.records import recovery_of

from ...builders import Board, dropped, function_id, graph, inventory


# -- a new scheduler ------------------------------------------------------------------------------
def test_nothing_is_assigned_before_the_barrier(new):
    client = new.client(last_epoch=BEFORE)
    assert new.state.awaits_peers
    (message,) = [x for x in new.out[client] if isinstance(x, m.Recovering)]
    assert "may still come back" in message.reason
    worker = new.come_back(last_epoch=BEFORE)
    new.send(client, graph("a"))
    assert new.states("a") == ["queued"]
    new.pass_time(QUIET_S - 0.1)
    assert new.states("a") == ["queued"]
    new.pass_time(0.2)
    assert new.where("a") == worker
    assert not new.state.awaits_peers


def test_a_scheduler_without_peers_of_another_one_begins_at_once(new):
    client, worker = new.client(), new.worker()
    new.send(client, graph("a"))
    assert new.where("a") == worker


def test_the_barrier_comes_when_all_expected_members_are_back():
    board = Board(expected=Members(("id of w", "id of gone"), ("alice",)))
    board.tick()
    sup = board.supervisor("sup")
    client = board.client("alice", last_epoch=BEFORE)
    assert waits_for(board.state) == ("recovering: 0 of 2 workers and 0 of 1 client are back")
    board.come_back("w", last_epoch=BEFORE)
    board.send(sup, m.WorkerExited(worker_id="id of gone", reason="killed", running=[]))
    board.send(client, m.Resubmitted())
    board.tick(0.6)
    assert not board.state.awaits_peers
    (text,) = [line for line in lines(board) if line.startswith("recovered")]
    assert text == (
        "recovered epoch 7: 1 worker, 1 client, 0 tasks, 0 results kept, "
        "0 unfinished tasks adopted, "
        "0 lost, 0.5 s"
    )
    (recovered,) = [x for x in board.out[client] if isinstance(x, m.Recovered)]
    assert (recovered.n_workers, recovered.n_clients) == (1, 1)


def test_the_barrier_waits_for_a_client_that_has_not_sent_what_it_wants():
    board = Board(away_s=5.0, expected=Members(("id of w",), ("alice",)))
    board.come_back("w", last_epoch=BEFORE)
    board.tick(1.0)
    assert board.state.awaits_peers  # it may hold a lock, and is not back
    client = board.client("alice", last_epoch=BEFORE)
    board.tick(1.0)
    assert board.state.awaits_peers
    board.send(client, m.Resubmitted())
    board.tick(0.6)
    assert not board.state.awaits_peers


def test_the_barrier_does_not_wait_for_a_client_that_has_left():
    board = Board(away_s=5.0, expected=Members(("id of w",), ("alice",)))
    board.come_back("w", last_epoch=BEFORE)
    client = board.client("alice", last_epoch=BEFORE)
    board.send(client, m.Bye(reason="closed"))
    board.tick(0.6)
    assert not board.state.awaits_peers


def test_workers_that_nobody_expects_do_not_put_off_the_barrier():
    board = Board(away_s=5.0, expected=Members(("id of gone",), ()))
    client = board.client()
    board.send(client, graph("a"))
    for i in range(2):
        board.worker(f"new{i}")
        board.tick(QUIET_S / 2 - 0.1)
    assert board.states("a") == ["queued"]
    board.worker("new2")
    board.tick(0.3)
    assert not board.state.awaits_peers
    assert board.states("a") == ["processing"]


@pytest.mark.parametrize("is_expected", [True, False], ids=["on record", "of an earlier epoch"])
def test_members_of_the_last_epoch_put_off_the_barrier(is_expected):
    board = Board(away_s=5.0, expected=Members(("id of gone", "id of old"), ()))
    board.client()
    board.tick(QUIET_S - 0.2)
    if is_expected:
        board.worker("old")
    else:
        board.come_back("joined late", last_epoch=BEFORE)
    board.tick(QUIET_S - 0.1)
    assert board.state.awaits_peers
    board.tick(0.2)
    assert not board.state.awaits_peers


def test_the_barrier_waits_for_an_inventory_that_has_begun():
    board = Board(away_s=5.0, expected=Members(("id of w",), ()))
    worker = board.worker("w", last_epoch=BEFORE)
    for _ in range(4):
        board.send(worker, m.InventoryKept(keys=[], attempts=[], nbytes=[]))
        board.tick(5.0)
    assert board.state.awaits_peers
    board.send(worker, *inventory())
    board.tick()
    assert not board.state.awaits_peers


def test_a_recovery_that_begins_late_waits_for_an_inventory_that_has_begun(new):
    new.close(new.worker("w"))
    worker = new.worker("w", last_epoch=new.state.epoch)
    assert not new.state.awaits_peers
    new.come_back("other", last_epoch=BEFORE)
    for _ in range(4):
        new.send(worker, m.InventoryKept(keys=[], attempts=[], nbytes=[]))
        new.pass_time(QUIET_S)
    assert new.state.awaits_peers
    new.send(worker, *inventory())
    new.tick()
    assert not new.state.awaits_peers


def test_a_barrier_that_waits_looks_at_nothing_meanwhile():
    board = Board(away_s=5.0, expected=Members(tuple(f"id of w{i}" for i in range(100)), ("c",)))
    board.client("c", last_epoch=BEFORE)
    pending = [entry[2] for entry in board.state.deadlines._heap if entry[2].is_pending]
    assert [d.when for d in pending if d is recovery_of(board.state).barrier.due] == [QUIET_S]
    assert waits_for(board.state) == "recovering: 0 of 100 workers and 0 of 1 client are back"


def test_the_barrier_comes_after_a_minute_in_any_case():
    board = Board(expected=Members(("id of w",), ()))
    board.tick()
    for _ in range(round(MOST_S / 2) + 1):
        board.tick(2.0)
    assert not board.state.awaits_peers


def test_rows_that_no_client_takes_are_dropped_after_a_lease(new):
    worker = new.come_back(
        last_epoch=BEFORE, kept={"a": 3}, running={"b": 4}, failed={"c": 5}, functions=["f"]
    )
    gone: list[int] = []
    functions = []
    for _ in range(40):
        new.send(worker, m.Heartbeat())
        out = new.tick(2.0)
        gone += dropped(out, worker)
        functions += [x for x in out.get(worker, []) if isinstance(x, m.DropFunctions)]
    assert sorted(gone) == [3, 4, 5]
    assert functions == [m.DropFunctions(functions=[function_id("f")])]
    assert not recovery_of(new.state).rows


def test_the_members_of_the_last_epoch_stay_on_record_until_the_recovery_ends():
    board = Board(expected=Members(("id of w", "id of v"), ("alice",)))
    board.tick()
    board.come_back("w", last_epoch=BEFORE)
    board.tick(1.1)
    (kept,) = [a.members for a in board.actions if hasattr(a, "members")]
    assert set(kept.worker_ids) == {"id of w", "id of v"}
    assert kept.client_ids == ("alice",)


# -- two schedulers -------------------------------------------------------------------------------
def test_a_scheduler_that_has_just_started_begins_again_above_a_later_epoch(board):
    board.worker(last_epoch=99)
    (action,) = [a for a in board.actions if isinstance(a, StartOver)]
    assert action.seen == 99
    assert board.state.workers == {}


def test_a_scheduler_that_has_given_out_work_gives_way(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("a"))
    assert board.where("a") == worker
    board.tick(1.0)
    board.client("bob", last_epoch=99)
    (action,) = [a for a in board.actions if isinstance(a, GiveWay)]
    assert action.seen == 99
    assert any("another scheduler of this cluster has taken over" in line for line in lines(board))
