"""Workers that leave on request: which ones go, what they give back, what is computed again."""

from __future__ import annotations

from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.leaving.leavers import LOOK_S, START_S
from weft.scheduler.core.leaving.retiring import MAX_ORDERS, ranked, retiring_of, why_kept
from weft.scheduler.core.records.presence import Members

from ...builders import Board, Out, assigned, graph

LEAVE = (m.WorkerLeaving(reason="retired"), m.AskToLeave(request=1))


def retire(board: Board, peer: int, order: str = "1", **arguments: Any) -> Out:
    """Let a peer ask that workers leave."""
    question = m.Ask(request=9, name="retire", arguments={"order": order, **arguments})
    return board.send(peer, question)


def leaving(out: Out) -> list[int]:
    """Return the workers that are sent away."""
    return [
        peer for peer, messages in out.items() if any(type(x) is m.LeaveCluster for x in messages)
    ]


def answers(out: Out, peer: int) -> list[Any]:
    return [x for x in out.get(peer, []) if isinstance(x, (m.Answer, m.AskFailed, m.Denied))]


def ends(out: Out, peer: int) -> dict[str, tuple[str, int]]:
    """Return {name: (end, tasks computed again)} of the only answer."""
    (answer,) = answers(out, peer)
    assert isinstance(answer, m.Answer), answer
    rows = answer.info["workers"].values()
    return {row["name"]: (row["end"], row["n_recomputed"]) for row in rows}


def leave(board: Board, worker: int) -> Out:
    """Let a worker that was sent away go."""
    returned = list(board.state.workers[worker].processing)
    if returned:
        board.send(worker, m.AttemptsReturned(attempts=returned))
    return board.send(worker, m.WorkerLeaving(reason="retired"), m.Bye(reason="retired"))


def test_an_idle_worker_leaves_and_the_client_is_answered_when_it_has_gone(board):
    client = board.client()
    worker = board.worker("w")
    out = retire(board, client, workers=["id of w"])
    assert out[worker] == [m.LeaveCluster(reason="a client retired it")]
    assert not answers(out, client)
    board.send(client, graph("x"))
    assert board.states("x") == ["no_worker"]
    assert ends(leave(board, worker), client) == {"w": ("left", 0)}


def test_a_worker_finishes_what_runs_and_gives_back_the_rest(board):
    client = board.client()
    old = board.worker("old")
    board.send(client, graph("runs", "waits"), m.WantKeys(keys=["runs", "waits"]))
    new = board.worker("new")
    out = retire(board, client, workers=["id of old"])
    assert [type(x) for x in out[old]][-2:] == [m.LeaveCluster, m.ReturnAttempts]
    out = board.send(
        old,
        m.WorkerLeaving(reason="retired"),
        m.AttemptsReturned(attempts=[board.attempt("waits")]),
    )
    assert list(assigned(out, new)) == ["waits"]
    out = board.finish(old, "runs")
    assert m.ResultsReady(keys=["runs"], results=[b"result"]) in out[client]
    assert ends(leave(board, old), client) == {"old": ("left", 0)}
    assert board.states("runs") == ["released"], "the client has the value"


def test_of_several_those_without_only_copies_go_first_and_those_of_others_are_moved(board):
    client = board.client()
    holder = board.worker("holder")
    board.send(client, graph("big"), m.WantKeys(keys=["big"]))
    board.finish(holder, "big", blob=None)
    idle = board.worker("idle")
    assert leaving(retire(board, client, n=1)) == [idle]
    leave(board, idle)
    other = board.worker("other")
    assert leaving(retire(board, client, "2", workers=["id of holder"])) == [holder]
    out = board.tick(START_S)
    assert [x.keys for x in out[other] if isinstance(x, m.HoldCopies)] == [["big"]]
    board.send(other, m.ReplicasAdded(keys=["big"], attempts=[board.attempt("big")]))
    (answer,) = answers(leave(board, holder), client)
    (row,) = answer.info["workers"].values()
    assert (row["end"], row["n_moved"], row["n_recomputed"]) == ("left", 1, 0)
    assert board.states("big") == ["memory"]


def test_a_delivered_result_costs_nothing(board):
    client = board.client()
    with_result, with_data = board.worker("a"), board.worker("b")
    board.send(client, graph("small", workers=["a"]), m.WantKeys(keys=["small"]))
    board.finish(with_result, "small")
    board.send(client, graph("big", workers=["b"]), m.WantKeys(keys=["big"]))
    board.finish(with_data, "big", blob=None)
    assert leaving(retire(board, client, n=1)) == [with_result]
    assert ends(leave(board, with_result), client) == {"a": ("left", 0)}


def test_an_idle_worker_goes_before_a_busy_one_and_short_work_before_long(board):
    client = board.client()
    workers = {name: board.worker(name) for name in ("long", "short", "idle")}
    for name, us in (("long", 10_000_000), ("short", 1000)):
        board.send(client, graph(f"{name}-1", function=name, workers=[name]))
        board.finish(workers[name], f"{name}-1", us=us)
        board.send(client, m.ReleaseKeys(keys=[f"{name}-1"]))
        board.send(client, graph(f"{name}-2", function=name, workers=[name]))
    order = ranked(board.state, [*board.state.staying.values()])
    assert [ws.name for ws in order] == ["idle", "short", "long"]
    assert leaving(retire(board, client, n=2)) == [workers["idle"], workers["short"]]


def test_of_equal_workers_the_newest_go(board):
    client = board.client()
    peers = [board.worker(f"w{i}") for i in range(4)]
    assert sorted(leaving(retire(board, client, keep=1))) == peers[1:]


def test_all_but_some_may_be_asked_again_and_means_the_same(board):
    client = board.client()
    peers = [board.worker(f"w{i}") for i in range(4)]
    assert len(leaving(retire(board, client, "1", keep=3))) == 1
    assert not leaving(retire(board, client, "2", keep=3))
    assert ends(board.out, client) == {}
    assert len(leaving(retire(board, client, "3", keep=10))) == 0
    assert len(board.state.staying) == len(peers) - 1


def test_an_order_that_is_asked_again_sends_no_more_away(board):
    client = board.client()
    for i in range(4):
        board.worker(f"w{i}")
    (gone,) = leaving(retire(board, client, "1", n=1))
    board.close(client)
    client = board.client()
    out = retire(board, client, "1", n=1)
    assert not leaving(out)
    assert not answers(out, client)
    assert ends(leave(board, gone), client) == {"w3": ("left", 0)}
    assert ends(retire(board, client, "1", n=1), client) == {"w3": ("left", 0)}


def test_a_worker_that_dies_while_it_leaves_is_reported_as_lost(board):
    client = board.client()
    board.worker("stays")
    worker = board.worker("w")
    board.send(client, graph("x", workers=["w"], allow_other_workers=True))
    retire(board, client, workers=["id of w"])
    out = board.close(worker)
    assert ends(out, client) == {"w": ("lost", 0)}
    assert board.states("x") == ["processing"]
    assert board.rest() == ["AssignTasks"]


def test_a_worker_that_leaves_by_itself_answers_an_order_for_it(board):
    client = board.client()
    worker = board.worker("w")
    board.send(client, graph("x"))
    board.send(worker, m.WorkerLeaving(reason="SIGTERM"))
    assert not leaving(retire(board, client, workers=["id of w"]))
    board.finish(worker, "x")
    assert ends(leave(board, worker), client) == {"w": ("left", 0)}


def test_two_orders_may_wait_for_one_worker(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker("w")
    retire(board, alice, "1", n=1)
    retire(board, bob, "2", workers=["id of w"])
    out = leave(board, worker)
    assert ends(out, alice) == ends(out, bob) == {"w": ("left", 0)}


def test_workers_that_are_gone_already_are_no_error(board):
    client = board.client()
    assert ends(retire(board, client, workers=["id of nobody"]), client) == {}
    assert ends(retire(board, client, "2", n=3), client) == {}


def test_a_result_without_recipe_keeps_the_last_worker_and_another_one_goes():
    board = Board(expected=Members(worker_ids=("id of w",), client_ids=("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=3)
    board.send(client, m.WantKeys(keys=["kept"]))
    board.come_back("w", kept={"kept": 5}, last_epoch=3)
    board.send(client, m.Resubmitted())
    board.tick(3.0)
    assert board.states("kept") == ["memory"]
    assert board.task("kept").is_without_recipe
    board.worker("empty")
    out = retire(board, client, n=2)
    assert len(leaving(out)) == 1
    (peer,) = leaving(out)
    assert board.state.workers[peer].name == "empty"
    found = ends(leave(board, peer), client)
    assert found == {"w": ("kept", 0), "empty": ("left", 0)}


def follow_another(**rows: Any) -> tuple[Board, int]:
    """Return a scheduler after its recovery, to which "w" has come back, and its client."""
    board = Board(expected=Members(worker_ids=("id of w",), client_ids=("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client("alice", last_epoch=3)
    for keys in rows.values():
        board.send(client, m.WantKeys(keys=[key for key in keys if key != "of another client"]))
    board.come_back("w", last_epoch=3, **rows)
    board.send(client, m.Resubmitted())
    board.tick(3.0)
    return board, client


def test_results_that_a_client_may_come_back_for_keep_their_worker():
    board, client = follow_another(kept={"of another client": 5})
    out = retire(board, client, workers=["id of w"])
    assert not leaving(out)
    assert ends(out, client) == {"w": ("kept", 0)}


def test_of_two_workers_with_the_only_copies_one_stays():
    board, client = follow_another(kept={"kept": 5})
    other = board.worker("other")
    board.send(other, m.ReplicasAdded(keys=["kept"], attempts=[5]))
    out = retire(board, client, workers=["id of w", "id of other"])
    (peer,) = leaving(out)
    assert not leaving(retire(board, client, "2", n=2))
    leave(board, peer)
    assert board.states("kept") == ["memory"]


def test_another_worker_goes_in_the_place_of_one_that_is_kept():
    board = Board(away_s=5.0)
    client = board.client()
    busy, idle = board.worker("busy"), board.worker("idle")
    board.send(client, graph("x", workers=["busy"]))
    board.close(idle)
    out = retire(board, client, n=1)
    assert leaving(out) == [busy]


def test_copies_cost_nothing_where_another_worker_has_one_too(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"]), graph("b", workers=["two"]))
    board.finish(one, "a", blob=None)
    board.finish(two, "b", blob=None, nbytes=1)
    board.worker("three")
    three = board.state.workers_by_id["id of three"].peer
    board.send(three, m.ReplicasAdded(keys=["a"], attempts=[board.attempt("a")]))
    assert [ws.name for ws in ranked(board.state, [*board.state.staying.values()])] == [
        "three",
        "one",
        "two",
    ]


def test_a_task_that_runs_for_long_keeps_its_worker_longer(board):
    client = board.client()
    new, old = board.worker("new"), board.worker("old")
    board.send(client, graph("a", workers=["old"]))
    for _ in range(4):
        board.send(new, m.Heartbeat())
        board.send(old, m.Heartbeat())
        board.tick(10.0)
    board.send(client, graph("b", workers=["new"]))
    assert [ws.name for ws in ranked(board.state, [*board.state.staying.values()])] == [
        "new",
        "old",
    ]


def test_a_large_argument_of_a_client_that_is_there_keeps_no_worker(board):
    alice, bob = board.client("alice"), board.client("bob")
    worker = board.worker("w")
    put = graph("data-1", function="data", blob=b"")
    put.functions = [m.PUT_FUNCTION]
    board.send(alice, put)
    board.finish(worker, "data-1", blob=None)
    board.send(bob, m.Bye(reason="done"))
    assert leaving(retire(board, alice, workers=["id of w"])) == [worker]
    assert ends(leave(board, worker), alice) == {"w": ("left", 0)}, "alice puts it again"


@pytest.mark.parametrize("losses", ["keep", "wait", "drop"])
def test_a_needed_result_that_no_other_worker_has_room_for(board, losses):
    client = board.client()
    worker, small = board.worker("w"), board.worker("small", memory_limit=9)
    board.send(client, graph("x", workers=["w"]))
    board.finish(worker, "x", blob=None)
    out = retire(board, client, workers=["id of w"], losses=losses)
    if losses == "keep":
        (answer,) = answers(out, client)
        (row,) = answer.info["workers"].values()
        assert row["end"] == "kept"
        assert row["reason"] == (
            "it has the only copy of 1 result (8 B) that is still needed, 'x' for one, and the "
            "workers that stay have no room: release or gather them, or let them be dropped "
            "(drop=True, --drop)"
        )
        return
    assert leaving(out) == [worker]
    out = board.send(worker, *LEAVE)
    assert not any(isinstance(x, m.MayLeave) for x in out.get(worker, []))
    out = board.tick(5.0)
    assert any(isinstance(x, m.MayLeave) for x in out.get(worker, [])) == (losses == "drop")
    if losses == "wait":
        board.send(client, m.ReleaseKeys(keys=["x"]))
        out = board.tick(LOOK_S)
        assert any(isinstance(x, m.MayLeave) for x in out.get(worker, []))
    else:
        (answer,) = answers(board.send(worker, m.Bye(reason="retired")), client)
        (row,) = answer.info["workers"].values()
        assert (row["end"], row["n_recomputed"]) == ("left", 1)
        assert board.where("x") is None
        assert small in board.state.workers
    board.drop_rest()


def test_a_cluster_that_is_scaled_to_zero_keeps_one_worker_with_what_all_have(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    board.send(client, graph("a", workers=["one"]), graph("b", workers=["two"]))
    board.finish(one, "a", blob=None)
    board.finish(two, "b", blob=None)
    (goes,) = leaving(retire(board, client, keep=0))
    assert len(board.state.staying) == 1
    board.send(goes, *LEAVE)
    (kept,) = {one, two} - {goes}
    (message,) = [x for x in board.tick(START_S)[kept] if isinstance(x, m.HoldCopies)]
    board.send(kept, m.ReplicasAdded(keys=message.keys, attempts=message.attempts))
    leave(board, goes)
    assert board.state.counters.tasks_recomputed == 0
    assert leaving(retire(board, client, "2", keep=0, losses="drop")) == [kept]
    board.drop_rest()


def test_a_second_order_may_let_a_leaver_drop_what_holds_it(board):
    client = board.client()
    worker = board.worker("w")
    board.send(client, graph("x"))
    board.finish(worker, "x", blob=None)
    retire(board, client, workers=["id of w"], losses="wait")
    board.send(worker, *LEAVE)
    board.tick(START_S)
    out = retire(board, client, "2", workers=["id of w"], losses="drop")
    assert m.MayLeave(request=1) in out[worker]
    board.drop_rest()


def test_a_worker_whose_connection_is_broken_is_kept():
    board = Board(away_s=5.0)
    client = board.client()
    worker = board.worker("w")
    board.close(worker)
    assert ends(retire(board, client, workers=["id of w"]), client) == {"w": ("kept", 0)}


def test_nothing_is_retired_while_the_scheduler_waits_for_its_workers():
    board = Board(expected=Members(worker_ids=("a", "b")))
    client = board.client()
    board.come_back("a", worker_id="a", last_epoch=3)
    (answer,) = answers(retire(board, client, n=1), client)
    assert isinstance(answer, m.AskFailed)
    assert "ask again" in answer.text


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, "give the workers"),
        ({"n": -1}, "n= is a whole number"),
        ({"n": True}, "n= is a whole number"),
        ({"keep": "3"}, "keep= is a whole number"),
        ({"n": 1, "keep": 1}, "give one of them"),
        ({"workers": "w"}, "workers= is a list"),
        ({"workers": [1]}, "workers= is a list"),
        ({"n": 1, "losses": "some"}, "losses= is keep, wait or drop"),
        ({"n": 1, "order": ""}, "order= is a text"),
        ({"n": 1, "order": "x" * 65}, "order= is a text"),
    ],
)
def test_a_wrong_order_fails(board, arguments, text):
    client = board.client()
    board.worker("w")
    (answer,) = answers(retire(board, client, **arguments), client)
    assert isinstance(answer, m.AskFailed)
    assert text in answer.text
    assert not retiring_of(board.state).orders


def test_a_viewer_may_not_retire_and_a_client_may(board):
    board.worker("w")
    viewer = board.connect(Role.VIEWER)
    (answer,) = answers(retire(board, viewer, n=1), viewer)
    assert isinstance(answer, m.Denied)
    assert answer.needed == "client"
    shell = board.connect(Role.VIEWER, Level.CLIENT)
    assert len(leaving(retire(board, shell, n=1))) == 1


def test_a_viewer_may_not_see_the_order_of_leaving_and_a_client_may(board):
    board.worker("w")
    viewer = board.connect(Role.VIEWER)
    question = m.Ask(request=1, name="leaving_order")
    assert board.send(viewer, question)[viewer] == [
        m.Denied(request=1, needed="client", level="view")
    ]
    (answer,) = board.send(board.client(), question).popitem()[1]
    assert answer.info == {"names": ["w"]}


def test_each_supervisor_is_sent_once_which_of_its_workers_were_retired(board):
    client = board.client()
    one, other = board.supervisor("one"), board.supervisor("other")
    again = board.supervisor("one")  # its old connection is not over yet
    for name in "abc":
        board.worker(name, supervisor_id="other" if name == "c" else "one")
    board.worker("alone")
    out = retire(board, client, n=4)
    retired = {
        peer: [sorted(x.worker_ids) for x in box if isinstance(x, m.WorkersRetired)]
        for peer, box in out.items()
    }
    assert {peer: ids for peer, ids in retired.items() if ids} == {
        one: [["id of a", "id of b"]],
        again: [["id of a", "id of b"]],
        other: [["id of c"]],
    }


def test_orders_are_few_and_the_oldest_finished_one_goes(board):
    client = board.client()
    for i in range(MAX_ORDERS + 5):
        retire(board, client, str(i), n=0)
    assert list(retiring_of(board.state).orders) == [str(i) for i in range(5, MAX_ORDERS + 5)]


def test_orders_that_are_all_under_way_leave_no_room_for_another(board):
    client = board.client()
    board.worker("w")
    board.send(client, graph("x"))
    for i in range(MAX_ORDERS):
        retire(board, client, str(i), workers=["id of w"])
    (answer,) = answers(retire(board, client, "more", workers=["id of w"]), client)
    assert isinstance(answer, m.AskFailed)
    assert "under way" in answer.text


def test_a_worker_with_an_actor_is_kept(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    message = graph("a")
    message.functions = [m.ACTOR_FUNCTION]
    board.send(client, message)
    home = board.where("a")
    workers = board.state.workers
    assert "1 actor, 'a' for one" in why_kept(board.state, workers[home]), "it is being made"
    board.finish(home, "a", blob=None, nbytes=1 << 20)
    assert "1 actor, 'a' for one" in why_kept(board.state, workers[home])
    assert why_kept(board.state, workers[two if home == one else one]) == ""
