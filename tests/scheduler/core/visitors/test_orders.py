"""Tasks that an admin cancels and runs again, without a client."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.visitors import orders
from weft.scheduler.core.visitors.orders import Orderer

from ...builders import graph


def ask(board, name, *keys):
    peer = board.connect(Role.VIEWER, Level.ADMIN)
    out = board.send(peer, m.Ask(request=9, name=name, arguments={"keys": [*keys]}))
    (answer,) = out[peer]
    return out, answer.info["keys"] if isinstance(answer, m.Answer) else answer.text


def test_tasks_are_cancelled_for_all_also_while_they_run(board):
    worker = board.worker(nthreads=1)
    ann, bob = board.client("ann"), board.client("bob")
    board.send(ann, graph("a -> b", "c"))
    board.send(bob, graph("a"))
    out, ends = ask(board, "cancel_tasks", "a", "c", "gone")
    assert ends == {"a": orders.DONE, "c": orders.DONE, "gone": orders.UNKNOWN}
    (for_ann,) = out.of(ann, m.KeysCancelled)
    assert for_ann.keys == ["a", "c"]
    assert for_ann.reason == "cancelled by an admin"
    assert [x.keys for x in out.of(bob, m.KeysCancelled)] == [["a"]]
    (erred,) = out.of(ann, m.KeysErred)
    assert erred.keys == ["b"]
    assert board.task("b").state == "erred"
    assert not board.state.record(Orderer).keeper.wants
    interrupted = out.of(worker, m.InterruptAttempts) + out.of(worker, m.DropAttempts)
    assert len(interrupted) == 2
    assert "cancelled by an admin" in board.state.story.of("a")[-1]


def test_tasks_that_have_ended_are_not_cancelled(board):
    worker, client = board.worker(), board.client()
    board.send(client, graph("a -> b"))
    board.finish(worker, "a")
    board.finish(worker, "b")
    _, ends = ask(board, "cancel_tasks", "a", "b")
    assert ends == {"a": orders.ENDED, "b": orders.ENDED}
    assert board.state.tasks["b"].wanted_by == (board.state.clients_by_peer[client],)
    board.drop_rest()


def test_failed_tasks_run_again_for_all_clients(board):
    worker = board.worker(nthreads=1)
    ann, bob = board.client("ann"), board.client("bob")
    board.send(ann, graph("a -> b", "c"))
    board.send(bob, graph("a"))
    board.raise_(worker, "a")
    board.finish(worker, "c")
    out, ends = ask(board, "retry_tasks", "b", "c", "gone")
    assert ends == {"b": orders.DONE, "c": orders.NOT_FAILED, "gone": orders.UNKNOWN}
    (again,) = out.of(ann, m.KeysRetried)
    assert (again.request, sorted(again.keys)) == (0, ["a", "b"])
    (pending,) = out.of(ann, m.KeysPending)
    assert sorted(pending.keys) == ["a", "b"]
    assert [x.keys for x in out.of(bob, m.KeysRetried)] == [["a"]]
    assert [x.keys for x in out.of(bob, m.KeysPending)] == [["a"]]
    assert out[worker]
    assert board.state.counters.tasks_retried == 2
    assert "retried by an admin" in board.state.story.of("b")[-2]


def test_a_task_that_no_client_needs_is_neither_cancelled_nor_run_again(board):
    worker, client = board.worker(), board.client()
    board.send(client, graph("a -> b"))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    board.raise_(worker, "a")
    for name in ("cancel_tasks", "retry_tasks"):
        assert ask(board, name, "a")[1] == {"a": orders.NOT_NEEDED}
    board.drop_rest()


@pytest.mark.parametrize("name", ["cancel_tasks", "retry_tasks"])
def test_an_order_that_names_nothing_fails(board, name):
    _, text = ask(board, name)
    assert text == "keys= names no task"
