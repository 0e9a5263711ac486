"""no_worker_limit.py: tasks that no worker could run fail after the time of the setting."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.conditions.no_worker_limit import no_worker_limit_of

from ...builders import Board, failures, graph
from ..data.test_puts import data
from ..gangs.builders import gang


@pytest.fixture
def board() -> Board:
    """A board whose tasks wait for 10 s for a worker that could run them."""
    return limited_board()


def limited_board(seconds: float = 10.0) -> Board:
    board = Board()
    no_worker_limit_of(board.state).seconds = seconds
    return board


def desired(board: Board, viewer: int, **arguments: object) -> object:
    (answer,) = board.send(viewer, m.Ask(request=1, name="desired", arguments=arguments))[viewer]
    return answer


def test_a_task_fails_when_it_has_waited_for_so_long_and_those_that_read_it(board):
    client = board.client()
    board.worker()
    board.tick(7.0)
    board.send(client, graph("a", "a -> b", resources={"GPU": 1}), graph("c"))
    board.tick(9.9)
    assert board.states("a", "b", "c") == ["no_worker", "waiting", "processing"]
    board.tick(0.2)
    assert board.states("a", "b", "c") == ["erred", "erred", "processing"]
    found = failures(board.out, client)
    assert found["a"][:3] == ["no-worker", "a", 10_000]
    assert "no worker offers GPU: 1" in found["a"][3]
    assert found["b"] == found["a"]
    board.drop_rest()


def test_each_task_has_the_whole_time(board):
    client = board.client()
    board.send(client, graph("a"))
    board.tick(6.0)
    board.send(client, graph("b", function="other"))
    board.tick(4.1)
    assert board.states("a", "b") == ["erred", "no_worker"]
    board.tick(5.8)
    assert board.states("b") == ["no_worker"]
    board.tick(0.2)
    assert board.states("b") == ["erred"]
    board.drop_rest()


def test_a_worker_that_comes_and_goes_begins_the_time_anew(board):
    client = board.client()
    board.send(client, graph("a"))
    board.tick(8.0)
    worker = board.worker()
    board.tick(4.0)
    board.close(worker)
    board.tick(9.0)
    assert board.states("a") == ["no_worker"]
    board.tick(1.1)
    assert board.states("a") == ["erred"]
    board.drop_rest()


def test_a_call_with_a_time_of_its_own_has_that(board):
    client = board.client()
    board.send(client, graph("a", no_worker_ms=2_000), graph("b", no_worker_ms=30_000), graph("c"))
    board.tick(2.1)
    assert board.states("a", "b", "c") == ["erred", "no_worker", "no_worker"]
    board.tick(8.0)
    assert board.states("b", "c") == ["no_worker", "erred"]
    board.tick(20.0)
    assert board.states("b") == ["erred"]
    board.drop_rest()


def test_the_time_does_not_count_while_the_cluster_adapts(board):
    client, viewer = board.client(), board.connect(Role.VIEWER, Level.VIEW)
    board.send(client, graph("a"))
    for _ in range(10):
        answer = desired(board, viewer, adapts_s=70.0)
        assert answer.info["desired_workers"] == 1
        board.tick(60.0)
    desired(board, viewer)  # who only asks does not adapt
    board.tick(10.0)
    board.tick(9.9)
    assert board.states("a") == ["no_worker"]
    board.tick(0.2)
    assert board.states("a") == ["erred"]
    board.drop_rest()


@pytest.mark.parametrize("value", [-1, "1", None, float("inf"), float("nan")])
def test_a_wrong_time_is_refused(board, value):
    viewer = board.connect(Role.VIEWER, Level.VIEW)
    answer = desired(board, viewer, adapts_s=value)
    assert isinstance(answer, m.AskFailed)
    assert "adapts_s= is a number of seconds" in answer.text
    assert no_worker_limit_of(board.state).adapts_until == 0.0


def test_tasks_that_wait_for_something_else_do_not_fail(board):
    client, worker = board.client(), board.worker()
    board.send(client, graph("pauses", retries=1, pauses=[3600.0, 1.0, 3600.0, 0.0]))
    board.send(client, graph("deferred", start_ms=10**9))
    board.raise_(worker, "pauses")
    board.close(worker)
    board.tick(25.0)
    assert board.states("deferred", "pauses") == ["waiting", "no_worker"]
    board.drop_rest()


def test_a_value_of_a_client_waits_for_the_first_worker(board):
    client = board.client()
    board.send(client, data("value", scattered=True))
    board.tick(25.0)
    assert board.states("value") == ["no_worker"]
    worker = board.worker()
    assert board.where("value") == worker
    board.drop_rest()


def test_all_members_of_a_gang_fail(board):
    client = board.client()
    board.worker("a")
    board.send(client, *gang("g", 2))
    board.tick(10.1)
    assert [failure[0] for failure in failures(board.out, client).values()] == ["no-worker"] * 2
    board.drop_rest()


def test_without_the_setting_nothing_is_looked_at():
    board = limited_board(0.0)
    client = board.client()
    board.send(client, graph("a"))
    board.tick(100.0)
    assert board.states("a") == ["no_worker"]
    assert no_worker_limit_of(board.state).look is None
    board.drop_rest()


def test_a_look_visits_the_first_task_of_a_class_that_waits(board, monkeypatch):
    """So a million tasks that wait cost nothing while none has waited for too long."""
    client = board.client()
    board.send(client, graph("first"))
    board.tick(5.0)
    board.send(client, graph(*(f"k{i}" for i in range(1000))))
    board.tick(5.1)
    assert board.states("first", "k0") == ["erred", "no_worker"]
    look = no_worker_limit_of(board.state).look
    assert 4.0 < look.when - board.state.awake_s < 5.0
    board.drop_rest()


@pytest.mark.parametrize("options", [{}, {"no_worker_ms": 10_000}])
def test_the_time_begins_when_the_queue_of_a_task_is_resumed(options):
    board = limited_board(0.0 if options else 10.0)
    client = board.client()
    pause_queue(board, client)
    board.send(client, graph("a", job_queue="q", **options))
    board.tick(3595.0)
    resume_queue(board, client)
    board.tick(9.9)
    assert board.states("a") == ["no_worker"]
    board.tick(10.2)
    assert board.states("a") == ["erred"]
    board.drop_rest()


def test_a_task_whose_queue_is_resumed_does_not_hide_others_that_wait_for_longer(board):
    client = board.client()
    pause_queue(board, client)
    board.send(client, graph("a", job_queue="q"), graph("b"))
    board.tick(9.0)
    resume_queue(board, client)
    board.tick(1.1)
    assert board.states("a", "b") == ["no_worker", "erred"]
    board.tick(9.0)
    assert board.states("a") == ["erred"]
    board.drop_rest()


def pause_queue(board: Board, client: int) -> None:
    board.send(client, m.Ask(request=1, name="pause_queue", arguments={"name": "q"}, page=""))


def resume_queue(board: Board, client: int) -> None:
    board.send(client, m.Ask(request=2, name="resume_queue", arguments={"name": "q"}, page=""))
