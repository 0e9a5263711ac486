"""Plugins: all processes get them, new workers before their tasks; failures; losses; restarts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scheduler.core.plugins.plugins_kit import (
    FAILURE,
    answers,
    asked,
    done,
    n_died,
    register,
    unregister,
)
from weft.protocol.values.exceptions import unpack_exception
from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.plugins import plugins
from weft.scheduler.core.plugins.records import plugins_of
from weft.scheduler.core.records.presence import Members

from ...builders import Board, assigned, graph


def test_the_workers_that_are_there_set_it_up_and_then_the_client_is_answered(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    out = register(board, client)
    (first,), (second,) = asked(out, one), asked(out, two)
    assert (first.name, first.plugin, first.blobs) == ("p", "p-1", [b"pickle"])
    assert not first.is_required
    assert not answers(done(board, one, first), client)
    (answer,) = answers(done(board, two, second), client)
    assert answer.request == 9
    assert answer.info == {
        "n_failed": 0, "failures": [], "workers": ["tcp://one", "tcp://two"]
    }  # fmt: skip


def test_a_client_without_workers_is_answered_at_once(board):
    client = board.client()
    (answer,) = answers(register(board, client), client)
    assert answer.info["workers"] == []


def test_the_same_plugin_again_changes_nothing(board):
    client = board.client()
    worker = board.worker()
    done(board, worker, *asked(register(board, client), worker))
    out = register(board, client)
    assert not asked(out, worker)
    assert answers(out, client)


def test_a_new_worker_gets_no_task_before_it_has_set_up_all_plugins(board):
    client = board.client()
    register(board, client, "p")
    register(board, client, "q")
    board.send(client, graph("x"), m.WantKeys(keys=["x"]))
    worker = board.worker()
    assert not assigned(board.out, worker)
    (first,) = asked(board.out, worker)
    board.tick(10)
    out = done(board, worker, first)
    (second,) = asked(out, worker)
    assert (first.name, second.name) == ("p", "q")
    assert first.is_required
    assert not assigned(out, worker)
    assert "x" in assigned(done(board, worker, second), worker)


def test_a_worker_that_is_there_sets_one_up_at_a_time_and_tears_down_at_once(board):
    client = board.client()
    worker = board.worker()
    (first,) = asked(register(board, client, "p"), worker)
    assert not asked(register(board, client, "q"), worker)
    (down,) = asked(unregister(board, client, "p"), worker, m.TearDownPlugin)
    assert not answers(done(board, worker, first), client), "it is torn down meanwhile"
    out = done(board, worker, down)
    assert len(answers(out, client)) == 2
    (second,) = asked(out, worker)
    assert (down.plugin, second.plugin) == ("p-1", "q-1")
    assert len(answers(done(board, worker, second), client)) == 1
    assert board.rest() == ["PluginGone"]


def test_a_worker_that_prepares_and_loses_its_connection_goes_on_to_prepare():
    board = Board(away_s=5.0)
    client = board.client()
    register(board, client)
    board.send(client, graph("x"))
    (first,) = asked((board.worker(), board.out)[1], 2)
    board.close(2)
    back = board.come_back()
    (again,) = plugins_of(board.state).kept.values()
    assert board.state.workers[back] in again.waiting
    assert not assigned(board.out, back)
    request = again.waiting[board.state.workers[back]]
    assert request != first.request
    out = board.send(back, m.PluginDone(request=request, info={}))
    assert "x" in assigned(out, back)
    assert board.rest() == ["Reconciled"]


def test_a_worker_that_was_lost_while_it_prepared_prepares_again_when_it_comes_back():
    board = Board(away_s=5.0)
    client = board.client()
    register(board, client)
    board.send(client, graph("x"))
    board.close(board.worker())
    board.tick(6)
    assert not board.state.workers
    back = board.come_back(is_unused=True)
    assert not assigned(board.out, back)
    (plugin,) = plugins_of(board.state).kept.values()
    request = plugin.waiting[board.state.workers[back]]
    out = board.send(back, m.PluginDone(request=request, info={}))
    assert "x" in assigned(out, back)
    assert board.rest() == ["Reconciled"]


def test_a_new_worker_on_which_it_fails_gets_no_task_and_ends(board):
    client = board.client()
    register(board, client)
    board.send(client, graph("x"))
    worker = board.worker()
    (request,) = asked(board.out, worker)
    assert not assigned(done(board, worker, request, failure=FAILURE), worker)
    board.tick(10)
    assert board.states("x") == ["queued"]
    board.close(worker)
    assert plugins_of(board.state).preparing == {}
    other = board.worker("other")
    assert "x" in assigned(done(board, other, *asked(board.out, other)), other)


def test_a_failure_at_the_registration_ends_the_plugin_everywhere(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    out = register(board, client)
    (first,), (second,) = asked(out, one), asked(out, two)
    done(board, one, first)
    out = done(board, two, second, failure=FAILURE)
    assert not answers(out, client)
    (down,) = asked(out, one, m.TearDownPlugin)
    assert m.PluginGone(plugin="p-1") in out[client]
    done(board, two, *asked(out, two, m.TearDownPlugin))
    (answer,) = answers(done(board, one, down), client)
    assert answer.info == {
        "n_failed": 1, "failures": [{"worker": "tcp://two", "failure": FAILURE}]
    }  # fmt: skip
    assert not plugins_of(board.state).kept
    new = board.worker("new")
    assert not asked(board.out, new)


def test_few_failures_are_passed_on_and_all_are_counted(board):
    client = board.client()
    workers = [board.worker(f"w{i}") for i in range(plugins.MAX_FAILURES + 2)]
    out = register(board, client)
    requests = {worker: asked(out, worker) for worker in workers}
    for worker in workers:
        out = done(board, worker, *requests[worker], failure=FAILURE)
    for worker in workers:
        last = done(board, worker, *asked(out, worker, m.TearDownPlugin))
    (answer,) = answers(last, client)
    assert answer.info["n_failed"] == len(workers)
    assert len(answer.info["failures"]) == plugins.MAX_FAILURES
    assert board.rest() == ["PluginGone"]


def test_an_idempotent_plugin_of_the_name_is_ignored(board):
    client, other = board.client(), board.client("bob")
    worker = board.worker()
    (request,) = asked(register(board, client), worker)
    out = register(board, other, content="2", idempotent=True)
    assert not out.get(worker)
    assert not answers(out, other), "it waits for the first"
    (answer,) = answers(done(board, worker, request), other)
    assert answer.info["was_ignored"]
    assert answer.info["workers"] == ["tcp://w"]
    (answer,) = answers(register(board, client, idempotent=True), client)
    assert "was_ignored" not in answer.info, "it is the same one"
    assert [p.plugin_id for p in plugins_of(board.state).kept.values()] == ["p-1"]
    assert board.rest() == ["Answer"]


def test_an_idempotent_plugin_replaces_one_that_was_set_aside(board):
    client, supervisor = board.client(), board.supervisor()
    register(board, client)
    n_died(board, client, supervisor, plugins.MAX_DEATHS)
    register(board, client, content="2", idempotent=True)
    assert [p.plugin_id for p in plugins_of(board.state).kept.values()] == ["p-2"]


def test_another_plugin_of_the_name_replaces_the_first(board):
    client, other = board.client(), board.client("bob")
    worker = board.worker()
    done(board, worker, *asked(register(board, client), worker))
    out = register(board, other, content="2")
    assert [type(x) for x in out[worker]] == [m.TearDownPlugin, m.SetUpPlugin]
    assert m.PluginGone(plugin="p-1") in out[client]
    down, up = out[worker]
    assert answers(done(board, worker, down, up), other)
    assert [p.plugin_id for p in plugins_of(board.state).kept.values()] == ["p-2"]
    assert board.rest() == ["PluginGone"]


def test_unregistering_is_answered_when_all_have_torn_it_down(board):
    client = board.client()
    worker = board.worker()
    done(board, worker, *asked(register(board, client), worker))
    out = unregister(board, client)
    (down,) = asked(out, worker, m.TearDownPlugin)
    assert not answers(out, client)
    (answer,) = answers(done(board, worker, down), client)
    assert answer.info == {"n_failed": 0, "failures": []}
    (failed,) = answers(unregister(board, client), client)
    assert failed.text == "workers have no plugin 'p'; they have: none"


def test_unregistering_without_workers_is_answered_at_once(board):
    client = board.client()
    register(board, client)
    assert isinstance(answers(unregister(board, client), client)[0], m.Answer)


def test_unregistering_lets_a_worker_work_that_waited_for_it(board):
    client = board.client()
    register(board, client)
    board.send(client, graph("x"))
    worker = board.worker()
    assert "x" in assigned(unregister(board, client), worker)
    assert board.rest() == ["TearDownPlugin", "PluginGone"]


def test_a_worker_that_leaves_is_not_waited_for(board):
    client = board.client()
    one, two = board.worker("one"), board.worker("two")
    out = register(board, client)
    done(board, one, *asked(out, one))
    out = board.send(two, m.Bye(reason="retired"))
    (answer,) = answers(out, client)
    assert answer.info["workers"] == ["tcp://one"]
    assert board.rest() == ["SetUpPlugin"]


def test_a_worker_that_was_away_gets_it_when_it_is_back():
    board = Board(away_s=5.0)
    client = board.client()
    worker = board.worker()
    board.close(worker)
    assert not answers(register(board, client), client)
    back = board.worker(last_epoch=board.state.epoch, is_unused=True)
    (request,) = asked(board.out, back)
    assert not request.is_required
    assert answers(done(board, back, request), client)


def test_a_worker_that_has_it_and_comes_back_is_not_asked_again():
    board = Board(away_s=5.0)
    client = board.client()
    worker = board.worker()
    done(board, worker, *asked(register(board, client), worker))
    board.close(worker)
    back = board.worker(last_epoch=board.state.epoch)
    assert not asked(board.out, back)


def test_before_the_barrier_new_workers_wait_for_the_plugins_of_returning_clients():
    board = Board(expected=Members([], ["alice"]))
    new = board.worker("new")
    client = board.client(last_epoch=3)
    out = register(board, client)
    (request,) = asked(out, new)
    assert request.is_required
    board.send(client, graph("x"), m.Resubmitted())
    board.tick(10)
    assert not board.state.awaits_peers
    assert not assigned(board.out, new)
    assert "x" in assigned(done(board, new, request), new)
    assert board.rest() == ["Answer", "Recovered"]


@pytest.mark.parametrize("has_passed", [False, True])
def test_a_worker_that_prepared_under_the_last_scheduler_prepares_under_the_next(has_passed):
    """It registers before the plugin is stated again, or after the barrier."""
    board = Board(expected=Members([], ["alice"]))

    def join() -> int:
        return board.come_back("late", last_epoch=3, is_unused=True)

    worker = 0 if has_passed else join()
    client = board.client(last_epoch=3)
    register(board, client)
    board.send(client, graph("x"), m.Resubmitted())
    board.tick(10)
    assert not board.state.awaits_peers
    worker = worker or join()
    assert not assigned(board.out, worker)
    (plugin,) = plugins_of(board.state).kept.values()
    request = plugin.waiting[board.state.workers[worker]]
    out = board.send(worker, m.PluginDone(request=request, info={}))
    assert "x" in assigned(out, worker)
    assert board.rest() == (["Reconciled"] if has_passed else ["Recovered"])


def test_a_worker_that_has_served_the_last_scheduler_serves_the_next_while_it_sets_a_plugin_up():
    board = Board(expected=Members([], ["alice"]))
    worker = board.come_back("old", last_epoch=3)
    client = board.client(last_epoch=3)
    (request,) = asked(register(board, client), worker)
    assert not request.is_required
    board.send(client, graph("x"), m.Resubmitted())
    board.tick(10)
    assert "x" in assigned(board.out, worker)
    assert board.rest() == ["Recovered"]


def test_a_worker_that_has_tasks_when_a_barrier_begins_goes_on_while_it_sets_a_plugin_up(board):
    """A scheduler without a record of members learns from the first one that there was another."""
    new, idle = board.worker("new"), board.worker("idle")
    assert "x" in assigned(board.send(board.client("bob"), graph("x")), new)
    alice = board.client(last_epoch=3)
    assert board.state.awaits_peers
    out = register(board, alice)
    (request,) = asked(out, new)
    assert not request.is_required
    done(board, new, request)
    board.finish(new, "x")
    (request,) = asked(board.out, idle) or asked(out, idle)
    assert request.is_required
    done(board, idle, request)
    board.drop_rest()


def test_a_new_worker_whose_connection_breaks_before_the_barrier_still_prepares():
    board = Board(away_s=5.0, expected=Members([], ["alice"]))
    board.close(board.worker())
    worker = board.worker(last_epoch=board.state.epoch, is_unused=True)
    client = board.client(last_epoch=3)
    (request,) = asked(register(board, client), worker)
    assert request.is_required
    assert board.rest() == ["Answer"]


def test_a_client_that_comes_back_gets_what_is_kept_if_something_has_ended(board):
    """What it was sent before the connection ended, it may not have read."""
    client = board.client()
    register(board, client)

    def come_back(epoch: int) -> list[Any]:
        board.close(client)
        back = board.client(last_epoch=epoch)
        return [x for x in board.out[back] if isinstance(x, m.PluginsKept)]

    assert come_back(board.state.epoch) == []
    bob = board.client("bob")
    register(board, bob, "q")
    unregister(board, bob)
    assert come_back(board.state.epoch) == [m.PluginsKept(plugins=["q-1"])]
    assert come_back(3) == []
    assert board.rest() == ["Recovering", "Recovering"]


def test_a_stale_report_is_ignored(board):
    client = board.client()
    worker = board.worker()
    (request,) = asked(register(board, client), worker)
    out = unregister(board, client)
    out = done(board, worker, request)
    assert not answers(out, client)
    board.send(worker, m.PluginDone(request=10**6, info={}))
    assert not board.refused()


def test_a_worker_of_a_version_without_plugins_fails_to_set_one_up(board):
    client = board.client()
    worker = board.worker()
    (request,) = asked(register(board, client), worker)
    out = board.send(worker, m.Unsupported(unknown_code=160, request=request.request))
    (down,) = asked(out, worker, m.TearDownPlugin)
    out = board.send(worker, m.Unsupported(unknown_code=161, request=down.request))
    (answer,) = answers(out, client)
    assert answer.info["n_failed"] == 1
    error = unpack_exception(answer.info["failures"][0]["failure"])
    assert "worker w runs a version of weft that knows no plugins" in str(error)
    assert board.rest() == ["PluginGone"]


def test_the_token_of_a_worker_registers_nothing(board):
    peer = board.connect(Role.VIEWER, Level.WORKER)
    (answer,) = answers(register(board, peer), peer)
    assert isinstance(answer, m.Denied)
    assert answer.needed == "client"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"name": ""}, "name= is a text of 1 to"),
        ({"name": "x" * 501}, "name= is a text of 1 to"),
        ({"plugin": 3}, "plugin= is a text of 1 to"),
    ],
)
def test_arguments_are_checked(board, arguments, text):
    client = board.client()
    (answer,) = answers(register(board, client, **arguments), client)
    assert text in answer.text


def test_plugins_are_bounded(board, monkeypatch):
    client = board.client()
    monkeypatch.setattr(plugins, "MAX_NBYTES", 10)
    assert isinstance(answers(register(board, client), client)[0], m.Answer)
    (answer,) = answers(register(board, client, "q"), client)
    assert "all plugins together" in answer.text
    assert isinstance(answers(register(board, client, content="2"), client)[0], m.Answer)
    monkeypatch.setattr(plugins, "MAX_NBYTES", 1000)
    monkeypatch.setattr(plugins, "MAX_PLUGINS", 1)
    (answer,) = answers(register(board, client, "q"), client)
    assert "there are 1 plugins, which is the limit" in answer.text
    monkeypatch.setattr(plugins, "MAX_RELAYED_BYTES", 5)
    (answer,) = answers(register(board, client, content="3"), client)
    assert "let it read its data where it runs" in answer.text


def test_a_client_that_is_gone_leaves_its_plugins(board):
    client = board.client()
    board.worker()
    register(board, client)
    board.send(client, m.Bye(reason=""))
    assert plugins_of(board.state).kept


def test_plugins_are_listed_with_those_that_are_late():
    board = Board(away_s=5.0)
    client, supervisor = board.client(), board.supervisor()
    one = board.worker("one", supervisor_id="sup")
    board.close(board.worker("two"))
    register(board, client, "p")
    register(board, client, "q")
    given = {"name": "s", "plugin": "s-1"}
    question = m.Ask(request=9, name="register_supervisor_plugin", arguments=given, blobs=[b""])
    board.send(client, question)

    def rows() -> dict[str, dict[str, Any]]:
        (answer,) = answers(board.send(client, m.Ask(request=1, name="plugins")), client)
        return {row["name"]: row for row in answer.info["plugins"]}

    listed = rows()
    away = ["worker two", "its connection is lost"]
    assert listed["p"] == {
        "name": "p", "state": "being set up", "kind": "workers", "n_ready": 0, "n_late": 2,
        "late": [["worker one", ""], away],
    }  # fmt: skip
    assert listed["q"]["late"] == [["worker one", "it is busy with plugin 'p'"], away]
    assert listed["s"]["late"] == [["the supervisor on sup", ""]]
    unregister(board, client, "p")
    assert rows()["p"]["state"] == "being torn down"
    done(board, supervisor, m.SetUpOnSupervisor(request=plugins_of(board.state).kept["s"].waiting[
        board.state.supervisors[supervisor]], plugin="", name="", blobs=[]))  # fmt: skip
    assert (rows()["s"]["state"], rows()["s"]["n_ready"]) == ("kept", 1)
    assert one


def test_the_overview_shows_workers_that_prepare(board):
    client = board.client()
    register(board, client)
    worker = board.worker()
    out = board.send(client, m.Ask(request=1, name="overview"))
    (answer,) = answers(out, client)
    assert "1 new worker sets up plugins" in str(answer.info)
    done(board, worker, *[m.SetUpPlugin(request=p.waiting[w], plugin="", name="", blobs=[])
         for p in plugins_of(board.state).kept.values() for w in p.waiting])  # fmt: skip
    (answer,) = answers(board.send(client, m.Ask(request=1, name="overview")), client)
    assert "sets up plugins" not in str(answer.info)
