"""Tasks that ask for resources, beside workers that are full."""

from __future__ import annotations

from weft.scheduler.core.assignment import assignment as passes
from weft.scheduler.core.memory.records import memory_of

from ...builders import graph
from .test_memory import ballast, hold, worker


def test_a_task_is_not_set_aside_before_a_worker_with_room_was_offered_it(board, monkeypatch):
    monkeypatch.setattr(passes, "MAX_ASKING", 2)
    alice = board.client()
    full = worker(board, resources={"seat": 1.0, "slot": 1.0})
    hold(board, alice, full, "a", function="make")
    ballast(board, alice, full)
    board.send(alice, graph("late", function="make", resources={"seat": 1.0}))
    assert board.states("late") == ["no_worker"]
    other = worker(board, "other", nthreads=8, resources={"gpu": 1.0, "slot": 1.0})
    board.send(alice, graph("holder", resources={"gpu": 1.0}))
    waiting = [graph(f"k{i}", resources={"gpu": 0.9 - i / 10}) for i in range(2)]
    board.send(alice, *waiting, graph("x", function="make", resources={"slot": 1.0}))
    board.tick(0.01)
    assert board.where("x") == other
    assert [*memory_of(board.state).aside] == [board.task("late")]
