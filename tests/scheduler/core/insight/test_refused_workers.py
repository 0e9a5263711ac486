"""refused_workers.py: workers that can never join, and why tasks find no worker."""

from __future__ import annotations

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight import refused_workers as refusals
from weft.scheduler.core.insight.info import describe_cluster
from weft.scheduler.core.insight.overview import overview

from ...builders import Board, graph, sent_keys


@pytest.fixture
def board() -> Board:
    board = Board()
    board.worker("good", facts={"python": "3.11.2", "host": "h"})
    return board


def register(board: Board, name: str, python: str, nthreads: int = 1) -> m.Message:
    """Let a worker ask for a session; return the answer."""
    peer = board.connect(Role.WORKER)
    out = board.send(
        peer,
        m.RegisterWorker(
            worker_id=f"id-{peer}", name=name, session=1, last_epoch=0, address=f"tcp://{peer}",
            nthreads=nthreads, memory_limit=0, resources={}, supervisor_id="",
            facts={"python": python, "host": "h"},
        ),
    )  # fmt: skip
    return out[peer][0]


def test_a_worker_of_another_python_is_refused_for_good_and_logged_once(board):
    answer = register(board, "odd", "3.12.1")
    assert isinstance(answer, m.Refused)
    assert answer.is_final
    assert "Python 3.12 here, Python 3.11 on the cluster" in answer.reason
    assert board.refused() == ["worker odd on h is refused: Python 3.12, the cluster has 3.11"]
    register(board, "odd", "3.12.1")
    assert board.refused() == [""]
    register(board, "even", "3.12.1")
    assert len(board.refused()[0]) > 0


def test_refused_workers_are_described_until_they_can_join(board):
    register(board, "odd", "3.12.1")
    register(board, "odd", "3.12.1")
    (refused,) = describe_cluster(board.state)["refused_workers"]
    assert (refused["name"], refused["host"], refused["n_times"]) == ("odd", "h", 2)
    assert refused["why"] == "Python 3.12, the cluster has 3.11"
    assert isinstance(register(board, "odd", "3.11.9"), m.Welcome)
    assert describe_cluster(board.state)["refused_workers"] == []


def test_refusals_are_bounded_and_forgotten_with_time(board, monkeypatch):
    monkeypatch.setattr(refusals, "MAX_REFUSED", 3)
    for i in range(5):
        register(board, f"odd-{i}", "3.12.1")
    assert [r.name for r in refusals.refusals_of(board.state).values()] == [
        "odd-2",
        "odd-3",
        "odd-4",
    ]
    board.now += refusals.REMEMBERED_S + 1
    board.send(board.client(), m.Heartbeat())
    assert describe_cluster(board.state)["refused_workers"] == []


def refused_now(board: Board) -> tuple[list[str], list[str]]:
    """Return the names of refused workers that are described, and the codes of the health."""
    names = [worker["name"] for worker in describe_cluster(board.state)["refused_workers"]]
    return names, [line["code"] for line in overview(board.state)["health"]]


def live_on(board: Board, seconds: float) -> None:
    """Let time pass, in which all workers send heartbeats."""
    end = board.now + seconds
    while board.now < end:
        board.tick(min(5.0, end - board.now))
        for peer in list(board.state.workers):
            board.send(peer, m.Heartbeat())


def test_a_worker_that_was_refused_and_has_not_tried_for_a_while_is_over(board):
    register(board, "odd", "3.12.1")
    live_on(board, refusals.CURRENT_S - 1)
    assert refused_now(board) == (["odd"], ["refused-workers"])
    register(board, "odd", "3.12.1")
    live_on(board, 2.0)
    assert refused_now(board) == (["odd"], ["refused-workers"])
    live_on(board, refusals.CURRENT_S)
    assert refused_now(board) == ([], ["ok"])


def test_a_worker_that_joins_after_all_ends_the_line_of_its_refusal(board):
    register(board, "odd", "3.12.1")
    assert refused_now(board) == (["odd"], ["refused-workers"])
    register(board, "odd", "3.11.9")
    assert refused_now(board) == ([], ["ok"])


def test_a_refusal_is_current_for_longer_while_tasks_find_no_worker(board):
    register(board, "odd", "3.12.1")
    client = board.client()
    board.send(client, graph("a", resources={"P312": 1.0}))
    live_on(board, refusals.CURRENT_S + 1)
    assert refused_now(board) == (["odd"], ["unrunnable", "refused-workers"])
    board.send(client, m.ReleaseKeys(keys=["a"]))
    assert refused_now(board) == ([], ["ok"])


def test_too_many_threads_are_a_final_refusal(board):
    answer = register(board, "huge", "3.11.1", nthreads=1 << 17)
    assert isinstance(answer, m.Refused)
    assert answer.is_final


def reason(board: Board, **options: object) -> str:
    client = board.client()
    board.send(client, graph("a", **options))
    board.tick(5.0)
    (message,) = [x for x in board.out[client] if isinstance(x, m.KeysUnrunnable)]
    assert sent_keys(board.out, client, m.KeysUnrunnable) == ["a"]
    return message.reason


def test_the_warning_about_pending_tasks_names_refused_workers(board):
    register(board, "odd", "3.12.1")
    assert reason(board, resources={"P312": 1.0}) == (
        "no worker offers P312: 1 (1 worker is connected); "
        "1 worker was refused: Python 3.12, the cluster has 3.11"
    )


def test_a_wanted_worker_that_is_not_there_is_named_beside_those_that_are(board):
    board.worker("vm-1")
    text = reason(board, workers=["tmpw"])
    assert text == "no connected worker is named tmpw; there are good, vm-1"


def test_only_some_of_many_workers_are_named():
    board = Board()
    for i in range(13):
        board.worker(f"vm-{i}")
    text = reason(board, workers=["tmpw", "other"])
    assert text.startswith("no connected worker is named other or tmpw; there are vm-0, vm-1, ")
    assert text.endswith("vm-9 and 3 more")


def test_a_wanted_worker_that_is_there_lacks_resources(board):
    text = reason(board, workers=["good"], resources={"gpu": 1.0})
    assert text == "no worker offers workers good; gpu: 1 (1 worker is connected)"
