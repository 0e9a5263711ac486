"""Plugins of supervisors: workers wait for them, and are replaced after them."""

from __future__ import annotations

from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.records.presence import Members

from ...builders import Board, Out, assigned, graph
from .plugins_kit import FAILURE, answers, asked, done, unregister
from .plugins_kit import register as register_for_workers


def register(board: Board, peer: int, name: str = "p", **arguments: Any) -> Out:
    """Let a peer register a plugin of supervisors."""
    given = {"name": name, "plugin": f"{name}-1", **arguments}
    question = m.Ask(
        request=9, name="register_supervisor_plugin", arguments=given, blobs=[b"pickle"]
    )
    return board.send(peer, question)


def sent(out: Out, peer: int) -> list[Any]:
    """Return the orders about plugins that a supervisor is sent."""
    kinds = (m.SetUpOnSupervisor, m.TearDownOnSupervisor, m.RenewWorkers, m.PluginsKept)
    return [message for message in out.get(peer, []) if isinstance(message, kinds)]


def test_the_supervisors_that_are_there_set_it_up_and_then_the_client_is_answered(board):
    client = board.client()
    one, two = board.supervisor("one"), board.supervisor("two")
    worker = board.worker(supervisor_id="one")
    out = register(board, client)
    assert not asked(out, worker)
    (first,), (second,) = sent(out, one), sent(out, two)
    assert (first.name, first.plugin, first.blobs) == ("p", "p-1", [b"pickle"])
    assert not first.is_required
    assert not answers(done(board, one, first), client)
    (answer,) = answers(done(board, two, second), client)
    assert answer.info == {
        "n_failed": 0, "failures": [], "supervisors": ["one", "two"], "renewed": []
    }  # fmt: skip


def test_workers_are_replaced_when_all_supervisors_have_set_a_plugin_up(board):
    client = board.client()
    one, two = board.supervisor("one"), board.supervisor("two")
    out = register(board, client, restart=True)
    (first,), (second,) = sent(out, one), sent(out, two)
    assert not sent(done(board, one, first), one)
    out = done(board, two, second)
    (renew_one,), (renew_two,) = sent(out, one), sent(out, two)
    assert isinstance(renew_one, m.RenewWorkers)
    assert not answers(done(board, one, renew_one), client)
    (answer,) = answers(done(board, two, renew_two), client)
    assert answer.info["renewed"] == ["one", "two"]
    out = register(board, client, restart=True)
    assert not sent(out, one)
    assert answers(out, client)[0].info["renewed"] == []


def test_a_failure_ends_it_everywhere_and_no_worker_is_replaced(board):
    client = board.client()
    one, two = board.supervisor("one"), board.supervisor("two")
    out = register(board, client, restart=True)
    (first,), (second,) = sent(out, one), sent(out, two)
    done(board, one, first)
    out = done(board, two, second, failure=FAILURE)
    (down,) = sent(out, one)
    assert isinstance(down, m.TearDownOnSupervisor)
    done(board, two, *sent(out, two))
    (answer,) = answers(done(board, one, down), client)
    assert answer.info == {"n_failed": 1, "failures": [{"worker": "two", "failure": FAILURE}]}
    assert board.rest() == ["PluginGone"]


def test_a_later_supervisor_must_have_it_before_its_workers_get_tasks(board):
    client = board.client()
    register(board, client, restart=True)
    board.send(client, graph("x"))
    supervisor = board.supervisor("late")
    (request,) = sent(board.out, supervisor)
    assert request.is_required
    worker = board.worker(supervisor_id="late")
    board.tick(10)
    assert not assigned(board.out, worker)
    out = done(board, supervisor, request)
    assert "x" in assigned(out, worker)
    assert not sent(out, supervisor), "its workers were started after the plugin"


def test_a_worker_that_is_there_before_its_supervisor_waits_for_it_and_then_sets_up_its_own(board):
    client = board.client()
    register(board, client)
    register_for_workers(board, client, "q")
    board.send(client, graph("x"))
    worker = board.worker(supervisor_id="late")
    assert not asked(board.out, worker)
    supervisor = board.supervisor("late")
    (request,) = asked(done(board, supervisor, *sent(board.out, supervisor)), worker)
    assert request.is_required
    assert "x" in assigned(done(board, worker, request), worker)


def test_a_worker_without_a_supervisor_waits_for_none(board):
    client = board.client()
    register(board, client)
    board.send(client, graph("x"))
    worker = board.worker()
    assert "x" in assigned(board.out, worker)


def test_a_later_supervisor_on_which_it_fails_ends_and_its_workers_get_nothing(board):
    client = board.client()
    register(board, client)
    board.send(client, graph("x"))
    supervisor = board.supervisor("late")
    worker = board.worker(supervisor_id="late")
    done(board, supervisor, *sent(board.out, supervisor), failure=FAILURE)
    board.close(supervisor)
    board.tick(10)
    assert board.states("x") == ["queued"]
    assert "x" in assigned(unregister(board, client), worker)
    assert board.rest() == ["PluginGone", "Answer"]


def test_a_supervisor_that_is_back_is_sent_what_is_kept_and_replaces_its_workers_once(board):
    client = board.client()
    supervisor = board.supervisor()
    out = register(board, client, restart=True)
    done(board, supervisor, *sent(done(board, supervisor, *sent(out, supervisor)), supervisor))
    register(board, client, "q", restart=True)
    board.close(supervisor)
    unregister(board, client, "p")
    back = board.supervisor(last_epoch=board.state.epoch)
    kept, set_up = sent(board.out, back)
    assert kept == m.PluginsKept(plugins=["q-1"])
    assert not set_up.is_required
    (renew,) = sent(done(board, back, set_up), back)
    done(board, back, renew)
    board.close(back)
    again = board.supervisor(last_epoch=board.state.epoch)
    _, set_up = sent(board.out, again)
    report = m.PluginDone(request=set_up.request, info={"was_ready": True})
    assert not sent(board.send(again, report), again)


def test_a_supervisor_that_is_lost_is_not_waited_for(board):
    client = board.client()
    supervisor = board.supervisor()
    out = register(board, client, restart=True)
    done(board, supervisor, *sent(out, supervisor))
    (answer,) = answers(board.close(supervisor), client)
    assert answer.info["supervisors"] == []


def test_before_the_barrier_new_supervisors_are_required_to_have_those_of_returning_clients():
    board = Board(expected=Members([], ["alice"]))
    new, old = board.supervisor("new"), board.supervisor("old", last_epoch=3)
    worker = board.worker(supervisor_id="new")
    client = board.client(last_epoch=3)
    out = register(board, client)
    (to_new,), (to_old,) = sent(out, new), sent(out, old)
    assert to_new.is_required
    assert not to_old.is_required
    board.send(client, graph("x"), m.Resubmitted())
    done(board, old, to_old)
    board.tick(10)
    assert not board.state.awaits_peers
    assert not assigned(board.out, worker)
    assert "x" in assigned(done(board, new, to_new), worker)
    assert board.rest() == ["Recovered"]


def test_a_plugin_of_the_other_kind_replaces_it(board):
    client = board.client()
    supervisor, worker = board.supervisor(), board.worker(supervisor_id="sup")
    done(board, supervisor, *sent(register(board, client), supervisor))
    out = register_for_workers(board, client, content="2")
    assert [type(x) for x in sent(out, supervisor)] == [m.TearDownOnSupervisor]
    assert asked(out, worker)
    assert board.rest() == ["PluginGone"]


def test_a_supervisor_of_a_version_without_plugins_fails_to_set_one_up(board):
    client = board.client()
    supervisor = board.supervisor()
    (request,) = sent(register(board, client), supervisor)
    out = board.send(supervisor, m.Unsupported(unknown_code=200, request=request.request))
    (down,) = sent(out, supervisor)
    out = board.send(supervisor, m.Unsupported(unknown_code=201, request=down.request))
    (answer,) = answers(out, client)
    assert answer.info["n_failed"] == 1
    assert board.rest() == ["PluginGone"]


@pytest.mark.parametrize("restart", ["yes", 1, None])
def test_wrong_arguments_are_refused(board, restart):
    client = board.client()
    (failed,) = answers(register(board, client, restart=restart), client)
    assert "restart= is true or false" in failed.text
