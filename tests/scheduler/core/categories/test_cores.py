"""Tasks of categories get as many cores as others with processes of their own have kept busy."""

from __future__ import annotations

import pytest

from weft.protocol.amounts import BESIDE, CORES, MEMORY, announced
from weft.protocol.wire import messages as m
from weft.protocol.wire.options import FIXED, MAX_SEEN, MAX_THROUGHPUT, MIN_WASTE
from weft.scheduler.core.categories.feature import FEATURE
from weft.scheduler.core.categories.records import categories_of
from weft.scheduler.core.insight.explaining import explain

from ...builders import Board
from .builders import MB, asked, exceed, fits, learn, measured, worker


def learn_cores(board: Board, client: int, peer: int, *cores: float, mb: int = 100) -> None:
    """Let programs end one after the other, which have kept so many cores busy."""
    for one in cores:
        learn(board, client, peer, mb, n=1, kind=m.OWN_PROCESS, cores=one)


@pytest.mark.parametrize("mode", [MAX_THROUGHPUT, MIN_WASTE, MAX_SEEN])
def test_later_programs_take_as_many_cores_as_others_have_kept_busy(board, mode):
    client, a = board.client(), worker(board, "a", nthreads=8)
    learn_cores(board, client, a, 2.6, 2.7, 2.9, 2.8)
    board.send(client, fits("early", mode=mode))
    assert asked(board, "early") == {MEMORY: 1024 * MB}
    measured(board, a, "early", mb=100, kind=m.OWN_PROCESS, cores=3.1)
    board.send(client, fits("x", mode=mode))
    assert asked(board, "x") == {CORES: 3, MEMORY: 100 * MB}
    board.drop_rest()


def test_programs_whose_cores_are_taken_wait_for_each_other(board):
    client, a = board.client(), worker(board, "a", nthreads=3)
    learn_cores(board, client, a, *[2.0] * 5)
    board.send(client, fits("x", "y"))
    assert board.states("x", "y") == ["processing", "queued"]
    board.finish(a, "x")
    assert board.states("y") == ["processing"]
    board.drop_rest()


def test_programs_that_were_submitted_before_take_what_is_learned_later(board):
    client, a = board.client(), worker(board, "a")
    keys = [f"t{i}" for i in range(9)]
    board.send(client, fits(*keys))
    for key in keys[:5]:
        measured(board, a, key, mb=100, kind=m.OWN_PROCESS, cores=2.0)
    assert [asked(board, key)[CORES] for key in keys[5:]] == [2] * 4
    assert board.states(*keys[5:]).count("processing") == 2
    board.drop_rest()


@pytest.mark.parametrize("own", [{CORES: 1}, {CORES: 3.0}, {BESIDE: 1}])
def test_a_call_that_names_its_cores_has_these(board, own):
    client, a = board.client(), worker(board, "a")
    learn_cores(board, client, a, *[2.0] * 5)
    board.send(client, fits("x", resources=own))
    assert asked(board, "x") == {**own, MEMORY: 100 * MB}
    worker(board, "b", nthreads=16, mb=4096)
    exceed(board, a, "x", mb=150)
    assert asked(board, "x") == {**own, MEMORY: 4096 * MB}
    board.drop_rest()


@pytest.mark.parametrize("kind", [m.ALONE, m.SHARED])
def test_functions_in_the_process_of_their_worker_teach_no_cores(board, kind):
    client, a = board.client(), worker(board, "a")
    learn(board, client, a, mb=100, kind=kind, cores=3.0)
    board.send(client, fits("x"))
    assert CORES not in asked(board, "x")
    board.drop_rest()


def test_a_fixed_category_gives_a_thread(board):
    client, a = board.client(), worker(board, "a")
    learn_cores(board, client, a, *[2.0] * 5)
    board.send(client, fits("x", mode=FIXED, max_mb=500))
    assert asked(board, "x") == {MEMORY: 500 * MB}
    board.drop_rest()


def test_no_more_is_given_than_a_worker_has_that_has_the_memory_as_well(board):
    client, wide = board.client(), worker(board, "wide", nthreads=8, mb=256)
    large = worker(board, "large", nthreads=2, mb=4096)
    learn_cores(board, client, large, *[12.0] * 5)
    board.send(client, fits("x"))
    assert (board.where("x"), asked(board, "x")) == (wide, {CORES: 8, MEMORY: 100 * MB})
    exceed(board, wide, "x", mb=200)
    assert asked(board, "x") == {CORES: 2, MEMORY: 4096 * MB}
    board.drop_rest()


def test_a_queued_task_takes_fewer_cores_when_the_worker_with_most_has_left(board):
    client, a = board.client(), worker(board, "a", nthreads=2)
    wide = worker(board, "wide", nthreads=8)
    for i in range(5):
        board.send(client, fits(f"first-{i}"))
        measured(
            board, board.where(f"first-{i}"), f"first-{i}", mb=100, kind=m.OWN_PROCESS, cores=6.0
        )
    board.send(client, fits("x", "y"))
    assert [asked(board, key)[CORES] for key in "xy"] == [6, 6]
    board.close(wide)
    board.tick(board.state.settings.away_s + 1)
    assert [asked(board, key)[CORES] for key in "xy"] == [2, 2]
    assert board.where("x") == a
    board.drop_rest()


def test_cores_are_taken_also_where_workers_offer_no_memory(board):
    client, a = board.client(), board.worker("a", 4, resources=announced({}, 4, 0))
    learn_cores(board, client, a, *[2.0] * 5)
    board.send(client, fits("x"))
    assert asked(board, "x") == {CORES: 2}
    board.drop_rest()


def test_no_cores_are_asked_of_workers_that_offer_none(board):
    client, a = board.client(), board.worker("a", 4)
    learn_cores(board, client, a, *[2.0] * 5)
    board.send(client, fits("x"))
    assert (asked(board, "x"), board.where("x")) == ({}, a)
    board.drop_rest()


def test_without_a_worker_no_cores_are_asked_for_until_one_joins(board):
    client, a = board.client(), worker(board, "a")
    learn_cores(board, client, a, *[3.0] * 5)
    board.close(a)
    board.tick(board.state.settings.away_s + 1)
    board.send(client, fits("x", max_mb=500))
    assert asked(board, "x") == {MEMORY: 100 * MB}
    worker(board, "b")
    board.tick()
    board.send(client, fits("y", max_mb=500))
    assert asked(board, "y") == {CORES: 3, MEMORY: 100 * MB}
    board.drop_rest()


@pytest.mark.parametrize(
    ("wall_us", "failed", "learned"), [(50_000, [], 0), (2_000_000, [1], 0), (2_000_000, [], 1)]
)
def test_short_and_failed_attempts_teach_no_cores(board, wall_us, failed, learned):
    client, a = board.client(), worker(board, "a")
    board.send(client, fits("x"))
    numbers = {name: [0] for name in m.AttemptsMeasured.columns}
    numbers |= {"attempts": [board.attempt("x")], "kinds": [m.OWN_PROCESS]}
    numbers |= {"wall_us": [wall_us], "cpu_us": [3 * wall_us]}
    board.send(a, m.AttemptsMeasured(**numbers, failed=failed))
    assert categories_of(board.state).by_name["fits"].peaks[CORES].n_measured == learned
    board.drop_rest()


# -- what is shown ---------------------------------------------------------------------------------
def test_an_explanation_says_what_a_category_gives(board):
    client, a = board.client(), worker(board, "a")
    learn_cores(board, client, a, *[3.0] * 5)
    board.send(client, fits("x", "y"))
    details = explain(board.state, board.task("y"))["details"]
    assert "its category 'fits' gives it 100 MiB of memory and 3 cores" in details
    assert any("cores: 1 of 4 is free, it needs 3; held by x" in line for line in details)
    board.drop_rest()


def test_metrics_have_the_most_cores_that_an_attempt_has_kept_busy(board):
    client, a = board.client(), worker(board, "a")
    learn_cores(board, client, a, 1.0, 2.9)
    (metric,) = [one for one in FEATURE.metrics if one.name == "category_cores_peak"]
    assert metric.read(board.state) == {"fits": 3}
    board.drop_rest()
