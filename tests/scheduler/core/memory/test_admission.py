"""Room in bytes: roots wait while what they make would only wait to be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.scheduler.builders import Board, finished, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.insight.explaining import explain
from weft.scheduler.core.memory.admission import N_PER_THREAD
from weft.scheduler.core.memory.records import expected_at, memory_of
from weft.scheduler.core.records.tasks import MEMORY

MB = 1_000_000
SIZE = 5 * MB
LIMIT = 400 << 20
#: {function: (the size of its results, the time it takes, us)}
FUNCTIONS = {"make": (SIZE, 1_000), "read": (24, 200)}


class Played:
    """Workers of one thread that run the first of what they have, and report it, in turns."""

    def __init__(self, nthreads: int = 1) -> None:
        self.board = Board(client_lease_s=60.0, heartbeat_s=1e6)
        self.client = self.board.client()
        self.workers = [self.board.worker(f"w{i}", nthreads, memory_limit=LIMIT) for i in range(2)]
        self.n_results = self.most_later = 0

    def submit(self, *keys: str, function: str) -> None:
        self.board.send(self.client, graph(*keys, function=function))

    def release(self, *keys: str) -> None:
        self.board.send(self.client, m.ReleaseKeys(keys=list(keys)))

    def run_one(self, peer: int) -> bool:
        """Let a worker run the first of its tasks that can run."""
        ws = self.board.state.workers[peer]
        ready = [
            (task.priority, attempt, task)
            for attempt, task in ws.processing.items()
            if all(needed.state == MEMORY for needed in task.dependencies)
        ]
        if not ready:
            return False
        _, attempt, task = min(ready, key=lambda entry: entry[:2])
        nbytes, us = FUNCTIONS[task.group.prefix.name]
        self.board.now += us * 1e-6 / 2
        self.board.send(peer, finished([attempt], nbytes=nbytes, us=us, blob=None))
        self.n_results += 1
        if self.n_results >= 50:
            held = sum(ws.nbytes for ws in self.board.state.workers.values())
            self.most_later = max(self.most_later, held)
        return True

    def run(self) -> None:
        """Let the workers run in turns until nothing is left."""
        while sum(self.run_one(peer) for peer in self.workers):
            pass
        self.board.drop_rest()


def submit_apart(played: Played, roots: list[str], readers: list[str]) -> None:
    """Let the readers come when some roots have run, and much later than these came."""
    played.submit(*roots, function="make")
    for _ in range(5):
        for peer in played.workers:
            played.run_one(peer)
    played.board.now += 1.0
    played.submit(*readers, function="read")
    played.release(*roots)


def submit_at_once(played: Played, roots: list[str], readers: list[str]) -> None:
    played.submit(*roots, function="make")
    played.submit(*readers, function="read")
    played.release(*roots)


@pytest.mark.parametrize("submit", [submit_apart, submit_at_once])
@pytest.mark.parametrize("nthreads", [1, 2])
def test_no_more_is_held_than_two_results_for_each_thread(
    submit: Callable[[Played, list[str], list[str]], None], nthreads: int
) -> None:
    played = Played(nthreads)
    roots = [f"r{i}" for i in range(80)]
    submit(played, roots, [f":{root} -> of_{root}" for root in roots])
    played.run()
    assert played.n_results == 160
    assert SIZE <= played.most_later <= 2 * 2 * nthreads * SIZE + 80 * 24


def test_many_tasks_of_an_unknown_name_start_with_one_for_each_thread():
    played = Played(nthreads=3)
    played.submit(*(f"r{i}" for i in range(100)), function="make")
    assert [len(ws.processing) for ws in played.board.state.workers.values()] == [3, 3]
    played.board.drop_rest()


def test_few_tasks_of_an_unknown_name_go_out_at_once():
    played = Played()
    played.submit(*(f"r{i}" for i in range(10)), function="make")
    assert [len(ws.processing) for ws in played.board.state.workers.values()] == [5, 5]
    played.board.drop_rest()


def stocked() -> tuple[Played, list[str]]:
    """Return workers that have as many roots as they may."""
    played = Played()
    roots = [f"r{i}" for i in range(100)]
    played.submit(*roots, function="make")
    for peer in played.workers:
        played.run_one(peer)
    return played, roots


def test_roots_without_readers_stop_where_they_would_fill_a_part_of_the_memory():
    played, roots = stocked()
    state = played.board.state
    assert len(memory_of(state).stocked) == 2
    assert [expected_at(state, ws).nbytes // SIZE for ws in state.workers.values()] == [5, 5]
    assert "takes about 4.77 MiB" in str(explain(state, played.board.task(roots[-1])))
    played.run()
    assert played.n_results == 100


def test_the_small_call_of_another_client_does_not_wait_for_room_in_bytes():
    played, _ = stocked()
    bob = played.board.client("bob")
    played.board.send(bob, graph("small", function="read"))
    assert played.board.where("small") is not None
    played.board.drop_rest()


def test_large_results_go_two_for_each_thread_however_small_the_memory_is():
    played = Played()
    FUNCTIONS["huge"] = 100 * MB, 1_000
    played.submit(*(f"r{i}" for i in range(20)), function="huge")
    played.run_one(played.workers[0])
    assert len(played.board.state.workers[played.workers[0]].processing) == N_PER_THREAD
    played.board.drop_rest()


def test_readers_follow_what_they_read_to_a_worker_that_has_enough_to_do():
    played, roots = stocked()
    played.submit(*(f":{root} -> of_{root}" for root in roots), function="read")
    there = [
        task.key for ws in played.board.state.workers.values() for task in ws.processing.values()
    ]
    assert {f"of_{key}" for key in there if key[0] == "r"} <= {*there}
    played.run()


def test_roots_whose_inputs_are_at_a_stocked_worker_go_to_one_with_room():
    played = Played()
    first, other = played.workers
    played.board.send(played.client, graph("shared", function="make", workers=["w0"]))
    played.run()
    played.submit(*(f":shared -> r{i}" for i in range(100)), function="make")
    memory = memory_of(played.board.state)
    assert [*memory.stocked] == [played.board.state.workers[peer] for peer in (first, other)]
    assert [len(ws.processing) for ws in memory.stocked] == [5, 5]
    played.run()
    assert played.n_results == 101


def test_a_stocked_worker_that_is_lost_leaves_nothing_behind():
    played, _ = stocked()
    lost = played.workers.pop()
    played.board.close(lost)
    assert all(
        ws in played.board.state.workers.values() for ws in memory_of(played.board.state).stocked
    )
    played.run()
