"""Plugins of which workers die: one worker tries each first, and such plugins are set aside."""

from __future__ import annotations

import pytest

from tests.scheduler.core.plugins.plugins_kit import (
    FAILURE,
    answers,
    asked,
    dies,
    done,
    n_died,
    register,
    unregister,
)
from weft.protocol.values.exceptions import unpack_exception
from weft.protocol.wire import messages as m
from weft.scheduler.core.actions import LogLine
from weft.scheduler.core.plugins import plugins
from weft.scheduler.core.plugins.records import plugins_of

from ...builders import Board, assigned, graph, inventory


def logged(board: Board, level: str) -> list[str]:
    return [a.text for a in board.actions if isinstance(a, LogLine) and a.level == level]


def test_a_worker_that_dies_during_the_registration_is_a_failure_and_nobody_else_gets_it(board):
    client, supervisor = board.client(), board.supervisor()
    one, two = (board.worker(name, supervisor_id="sup") for name in ("one", "two"))
    out = register(board, client)
    (first,) = asked(out, one)
    assert asked(done(board, one, first), two)
    out = dies(board, supervisor, two, running=(7, 8))
    text = "its process ended during the set-up while it also ran 2 tasks: exit code 4"
    assert f"plugin 'p' could not be set up on worker two: {text}" in logged(board, "warning")
    (down,) = asked(out, one, m.TearDownPlugin)
    assert m.PluginGone(plugin="p-1") in out[client]
    (answer,) = answers(done(board, one, down), client)
    assert answer.info["n_failed"] == 1
    (failure,) = answer.info["failures"]
    assert (failure["worker"], failure["died"]) == ("tcp://two", ["worker two", text])
    error = str(unpack_exception(failure["failure"]))
    assert error.endswith(f"PluginFailed: plugin 'p': worker two: {text}")
    new = board.worker("new", supervisor_id="sup")
    assert not asked(board.out, new)
    assert not plugins_of(board.state).kept


def test_one_worker_sets_it_up_before_the_others_and_dies_alone(board):
    client, supervisor = board.client(), board.supervisor()
    busy, idle, other = (board.worker(name, supervisor_id="sup") for name in ("b", "i", "o"))
    board.send(client, graph("x", workers=["b"]), m.WantKeys(keys=["x"]))
    out = register(board, client)
    assert asked(out, idle)
    assert not asked(out, busy)
    assert not asked(out, other)
    new = board.worker("new", supervisor_id="sup")
    assert not asked(board.out, new), "neither do those that come meanwhile"
    out = dies(board, supervisor, idle)
    assert not any(asked(out, peer) for peer in (busy, other, new))
    downs = {peer: asked(out, peer, m.TearDownPlugin) for peer in (busy, other, new)}
    for peer, down in downs.items():
        out = done(board, peer, *down)
    (answer,) = answers(out, client)
    assert answer.info["n_failed"] == 1
    assert plugins_of(board.state).preparing == {}
    assert board.rest() == ["PluginGone"]


def test_a_plugin_that_crashes_after_seconds_kills_one_worker_only(board):
    client, supervisor = board.client(), board.supervisor()
    one, two = (board.worker(name, supervisor_id="sup") for name in ("one", "two"))
    assert asked(register(board, client), one)
    assert not asked(board.tick(8), two)
    assert not asked(dies(board, supervisor, one), two)
    assert board.rest() == ["PluginGone"]


@pytest.mark.parametrize("end", ["done", "failed", "left", "late"])
def test_the_others_set_it_up_after_the_first(board, end):
    client = board.client()
    board.supervisor()
    one, two = (board.worker(name, supervisor_id="sup") for name in ("one", "two"))
    out = register(board, client)
    (first,) = asked(out, one)
    assert not asked(out, two)
    if end == "left":
        out = board.send(one, m.Bye(reason="retired"))
    elif end == "late":
        assert not asked(board.tick(plugins.TRIAL_S * 0.9), two)
        out = board.tick(plugins.TRIAL_S * 0.2)
    else:
        out = done(board, one, first, failure=FAILURE if end == "failed" else None)
    (second,) = asked(out, two)
    out = done(board, two, second)
    if end == "late":
        out = done(board, one, first)
    if end == "failed":
        out = done(board, two, *asked(out, two, m.TearDownPlugin))
        out = done(board, one, *asked(board.out, one, m.TearDownPlugin))
        assert not plugins_of(board.state).kept
    else:
        (answer,) = answers(out, client)
        assert answer.info["workers"][-1] == ("tcp://one" if end == "late" else "tcp://two")
    assert not asked(board.tick(5), two)
    assert board.rest() == (["TearDownPlugin", "PluginGone"] if end == "failed" else [])


def test_the_plugin_that_a_worker_was_setting_up_is_the_one_that_fails(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    register(board, client, "p")
    register(board, client, "q")
    (answer, other) = answers(dies(board, supervisor, worker), client)
    assert [a.info["n_failed"] for a in (answer, other)] == [0, 1]
    assert [*plugins_of(board.state).kept] == ["q"]


@pytest.mark.parametrize("supervisor_id", ["", "sup"])
def test_a_worker_that_is_lost_during_the_set_up_is_a_failure_though_nothing_reports_why(
    supervisor_id,
):
    board = Board(away_s=5.0)
    client = board.client()
    worker, other = board.worker("one", supervisor_id=supervisor_id), board.worker("two")
    done(board, other, *asked(register(board, client), other))
    assert not answers(board.close(worker), client)
    (down,) = asked(board.tick(6), other, m.TearDownPlugin)
    (answer,) = answers(done(board, other, down), client)
    (failure,) = answer.info["failures"]
    text = "it was lost during the set-up, and nothing has reported why"
    assert failure["died"] == ["worker one", text]
    assert not plugins_of(board.state).kept
    assert board.rest() == ["SetUpPlugin", "PluginGone"]


def test_a_plugin_during_whose_set_up_several_workers_are_lost_is_set_aside(board):
    client = board.client()
    register(board, client)
    for i in range(plugins.MAX_DEATHS):
        worker = board.worker(f"w{i}")
        assert asked(board.out, worker)
        board.close(worker)
    (line,) = logged(board, "error")
    assert line.endswith("register it again to have it tried anew")
    assert not asked(board.out, board.worker("later"))


@pytest.mark.parametrize("kind", ["requested", "leaves", "is leaving"])
def test_a_worker_that_did_not_die_is_no_failure(board, kind):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    register(board, client)
    if kind == "leaves":
        out = board.send(worker, m.Bye(reason="retired"))
    else:
        if kind == "is leaving":
            board.send(worker, m.WorkerLeaving(reason="retired"))
            out = board.close(worker)
        else:
            out = dies(board, supervisor, worker, kind)
    (answer,) = answers(out, client)
    assert (answer.info["n_failed"], answer.info["workers"]) == (0, [])
    assert plugins_of(board.state).kept


def test_a_worker_that_dies_of_a_teardown_is_no_failure_of_another_plugin(board):
    client, supervisor = board.client(), board.supervisor()
    worker = board.worker(supervisor_id="sup")
    done(board, worker, *asked(register(board, client), worker))
    register(board, client, "q")
    unregister(board, client, "p")
    dies(board, supervisor, worker)
    assert [*plugins_of(board.state).kept] == ["q"]


def health(board: Board, client: int) -> str:
    (answer,) = answers(board.send(client, m.Ask(request=1, name="overview")), client)
    return str(answer.info["health"])


def test_a_plugin_of_which_new_workers_die_is_set_aside(board):
    client, supervisor = board.client(), board.supervisor()
    register(board, client)
    register(board, client, "q")
    board.send(client, graph("x"), m.WantKeys(keys=["x"]))
    n_died(board, client, supervisor, plugins.MAX_DEATHS - 1)
    assert "set aside" not in health(board, client)
    n_died(board, client, supervisor, 1)
    (line,) = logged(board, "error")
    assert line.startswith("plugin 'p' is set aside: 3 workers in a row died while they set it up")
    assert "plugin 'p' is set aside: 3 workers" in health(board, client)
    new = board.worker("new", supervisor_id="sup")
    (other,) = asked(board.out, new)
    assert other.name == "q"
    assert "x" in assigned(done(board, new, other), new)
    (failed,) = answers(unregister(board, client, "none"), client)
    assert "they have: 'p' (set aside), 'q'" in failed.text
    assert answers(unregister(board, client), client)
    assert "set aside" not in health(board, client)


def test_workers_that_wait_for_a_plugin_that_is_set_aside_work_without_it(board):
    client, supervisor = board.client(), board.supervisor()
    register(board, client, "first")
    register(board, client)
    board.send(client, graph("x"), m.WantKeys(keys=["x"]))
    waiting = board.worker("waiting", supervisor_id="sup")
    (first,) = asked(board.out, waiting)
    for i in range(plugins.MAX_DEATHS):
        worker = board.worker(f"new{i}", supervisor_id="sup")
        done(board, worker, *asked(board.out, worker))
        dies(board, supervisor, worker)
    assert "x" in assigned(done(board, waiting, first), waiting)


@pytest.mark.parametrize("is_unused", [False, True])
def test_a_worker_that_was_away_when_a_plugin_was_set_aside_gets_the_others(is_unused):
    """Its answer about that one was lost with its connection, and does not come any more."""
    board = Board(away_s=5.0)
    client, supervisor = board.client(), board.supervisor()
    register(board, client)
    register(board, client, "q")
    board.send(client, graph("x"), m.WantKeys(keys=["x"]))
    away = board.worker("away")
    assert asked(board.out, away)
    board.close(away)
    n_died(board, client, supervisor, plugins.MAX_DEATHS)
    back = board.worker("away", last_epoch=board.state.epoch, is_unused=is_unused)
    (other,) = asked(board.out, back)
    assert other.name == "q"
    out = board.send(back, m.PluginDone(request=other.request, info={}), *inventory())
    assert "x" in assigned(out, back)
    assert not plugins_of(board.state).kept["p"].waiting
    assert board.rest() == ["Reconciled"]


def test_deaths_that_are_not_in_a_row_set_nothing_aside(board):
    client, supervisor = board.client(), board.supervisor()
    register(board, client)
    n_died(board, client, supervisor, plugins.MAX_DEATHS - 1)
    good = board.worker("good", supervisor_id="sup")
    done(board, good, *asked(board.out, good))
    n_died(board, client, supervisor, plugins.MAX_DEATHS - 1)
    assert not plugins_of(board.state).kept["p"].is_aside


def test_a_plugin_that_was_set_aside_is_tried_again_when_it_is_registered_again(board):
    client, supervisor = board.client(), board.supervisor()
    register(board, client)
    n_died(board, client, supervisor, plugins.MAX_DEATHS)
    worker = board.worker("w", supervisor_id="sup")
    assert not asked(board.out, worker)
    out = register(board, client)
    assert not answers(out, client)
    (answer,) = answers(done(board, worker, *asked(out, worker)), client)
    assert answer.info["workers"] == ["tcp://w"]
    later = board.worker("later", supervisor_id="sup")
    assert asked(board.out, later)


def test_a_new_worker_that_ends_because_a_plugin_has_failed_there_has_not_died_of_it(board):
    client, supervisor = board.client(), board.supervisor()
    register(board, client)
    for i in range(plugins.MAX_DEATHS + 1):
        worker = board.worker(f"w{i}", supervisor_id="sup")
        done(board, worker, *asked(board.out, worker), failure=FAILURE)
        assert not asked(register(board, client, f"q{i}"), worker), "nor is it asked again"
        unregister(board, client, f"q{i}")
        dies(board, supervisor, worker)
    assert not plugins_of(board.state).kept["p"].is_aside
    assert board.rest() == ["Answer", "Answer", "Answer", "Answer"]
