"""Copies that nobody wished for, at workers whose memory is short."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, dropped, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.data.surplus import LEAST_BYTES
from weft.scheduler.core.records.presence import Members

from ..actors.test_actors import actors
from .test_copies import answers

MB = 1_000_000


class Two:
    """Two workers that both have x."""

    def __init__(self, nbytes: int = MB) -> None:
        self.board = Board()
        self.alice = self.board.client()
        self.a = self.board.worker("a")
        self.board.send(self.alice, graph("x"))
        self.board.finish(self.a, "x", nbytes=nbytes)
        self.b = self.board.worker("b")
        self.copy(self.b)

    def copy(self, worker: int) -> None:
        attempt = self.board.attempt("x")
        self.board.send(worker, m.ReplicasAdded(attempts=[attempt], keys=["x"]))

    def report(self, worker: int, excess: int = MB) -> bool:
        """Report the excess of a worker; return whether it drops x."""
        status = m.WorkerStatus(
            state="running",
            nthreads=1,
            n_records=0,
            n_ready=0,
            managed_nbytes=0,
            resident_nbytes=0,
            cpu_percent=0,
            excess_nbytes=excess,
        )
        out = self.board.send(worker, status)
        out.of(self.alice, m.KeysInMemory)
        return dropped(out, worker) != []

    @property
    def holders(self) -> list[str]:
        return [ws.name for ws in self.board.task("x").replicas]


@pytest.fixture
def two():
    return Two()


def test_a_worker_with_too_much_drops_a_copy_that_another_has(two):
    assert not two.report(two.b, excess=0)
    assert two.report(two.b)
    assert two.holders == ["a"]


def test_two_holders_never_drop_each_others_copy(two):
    assert two.report(two.a)
    assert not two.report(two.b)
    assert two.holders == ["b"]


def test_no_more_is_dropped_than_should_leave(board):
    alice, a = board.client(), board.worker("a")
    keys = [f"x{i}" for i in range(5)]
    board.send(alice, graph(*keys))
    board.finish(a, *keys, nbytes=MB)
    b = board.worker("b")
    board.send(b, m.ReplicasAdded(attempts=[board.attempt(key) for key in keys], keys=keys))
    two = Two.__new__(Two)
    two.board, two.alice = board, alice
    assert two.report(b, excess=2 * MB)
    assert [len(board.task(key).replicas) for key in keys] == [1, 1, 2, 2, 2]


def test_a_small_copy_stays():
    two = Two(LEAST_BYTES - 1)
    assert not two.report(two.b)


def test_a_copy_that_a_task_there_reads_stays_until_it_has_ended(two):
    two.board.send(two.alice, graph(":x -> y", workers=["b"]))
    assert not two.report(two.b)
    two.board.finish(two.b, "y")
    assert two.report(two.b)


def test_copies_that_are_wished_for_stay(two):
    wish = m.Ask(name="replicate", request=1, arguments={"keys": ["x"], "n": 2})
    assert answers(two.board.send(two.alice, wish), two.alice) == [{"x": 2}]
    assert not two.report(two.b)
    assert two.holders == ["a", "b"]


def test_a_copy_stays_while_the_other_holder_is_away(two):
    two.board.close(two.a)
    assert not two.report(two.b)


@pytest.mark.parametrize("known", ["by its owner", "by a holder"])
@pytest.mark.parametrize("home", ["a", "b"])
def test_an_actor_is_no_surplus_although_a_copy_of_its_handle_counts_after_a_restart(home, known):
    two = Two.__new__(Two)
    two.board = board = Board(expected=Members(("id of a", "id of b"), ("alice",)))
    board.state.first_attempt = board.state.next_attempt = 100
    two.alice = board.client("alice", last_epoch=1)
    if known == "by its owner":
        board.send(two.alice, actors("x", made=True, delivered=True), m.Resubmitted())
    else:
        board.send(two.alice, m.WantKeys(keys=["x"], attempts=[1]), m.Resubmitted())
    row = m.InventoryKept(keys=["x"], attempts=[1], nbytes=[MB], spec_hashes=[])
    workers = {name: board.worker(name, last_epoch=1) for name in "ab"}
    for worker in workers.values():
        board.send(worker, row, m.InventoryEnd(n_rows=1))
    assert two.holders == ["a", "b"]
    assert not two.report(workers[home])
