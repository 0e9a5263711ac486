"""What attempts have used, as the scheduler keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.ends import measured
from weft.scheduler.core.ends.measured import latest_use

from ...builders import Board, graph

MB = 1 << 20


def known(board: Board, client: int, *keys: str) -> list[Any]:
    ask = m.Ask(request=9, name="measured", arguments={"keys": list(keys)})
    (answer,) = board.send(client, ask)[client]
    found: list[Any] = answer.info["measured"]
    return found


def report(board: Board, peer: int, key: str, *, cpu_us: int = 5, kind: int = m.SHARED) -> None:
    rows = m.AttemptsMeasured(
        attempts=[board.attempt(key)],
        wall_us=[20],
        cpu_us=[cpu_us],
        peaks_nbytes=[MB],
        read_nbytes=[6],
        written_nbytes=[7],
        kinds=[kind],
    )
    board.send(peer, rows)


@pytest.mark.parametrize("kind", [m.OWN_PROCESS, m.ALONE, m.SHARED])
def test_measured_numbers_are_known_after_the_end(board, kind):
    client, worker = board.client(), board.worker("w1")
    board.send(client, graph("a"))
    report(board, worker, "a", kind=kind)
    board.finish(worker, "a")
    row = [20, 5, MB, 6, 7, kind != m.OWN_PROCESS]
    assert known(board, client, "a") == [["a", row]]


def test_without_the_time_of_cpus_the_bytes_are_not_known(board):
    client, worker = board.client(), board.worker("w1")
    board.send(client, graph("a"))
    report(board, worker, "a", cpu_us=0)
    board.finish(worker, "a")
    row = [20, None, MB, None, None, True]
    assert known(board, client, "a") == [["a", row]]


def test_of_a_task_that_was_not_measured_the_time_is_known(board):
    client, worker = board.client(), board.worker("w1")
    board.send(client, graph("a", "b"))
    board.finish(worker, "a", us=33)
    row = [33, None, None, None, None, True]
    assert known(board, client, "a", "b") == [["a", row]]


def test_a_later_attempt_that_was_not_measured_replaces_what_is_known(board):
    client, worker = board.client(), board.worker("w1")
    board.send(client, graph("a", retries=1))
    report(board, worker, "a")
    board.raise_(worker, "a")
    assert known(board, client, "a")[0][1][0] == 20
    board.finish(worker, "a", us=33)
    assert known(board, client, "a")[0][1][0] == 33


def test_only_the_latest_tasks_are_kept(monkeypatch):
    monkeypatch.setattr(measured, "MAX_TASKS", 2)
    board = Board()
    client, worker = board.client(), board.worker("w1")
    board.send(client, graph("a", "b", "c"))
    for key in "abc":
        report(board, worker, key)
        board.finish(worker, key)
    assert list(latest_use(board.state)) == ["b", "c"]
