"""Tasks of categories at a scheduler that is started again."""

from __future__ import annotations

import pytest

from weft.protocol.amounts import announced
from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m
from weft.scheduler.core.recovery.barrier import QUIET_S

from ...builders import Board, assignment
from .builders import MB, exceed, fits, given, worker

#: An epoch before that of the board, and an attempt of it.
BEFORE, ATTEMPT = 5, 3


@pytest.fixture
def board() -> Board:
    """A scheduler that follows another one, whose attempts were below 100."""
    board = Board(away_s=5.0)
    board.state.first_attempt = board.state.next_attempt = 100
    return board


@pytest.mark.parametrize("phase", ["assigned", "running"])
@pytest.mark.parametrize("is_first", [True, False], ids=["worker first", "client first"])
def test_an_attempt_that_an_earlier_scheduler_has_assigned_goes_on(board, phase, is_first):
    """Its worker may have begun it by now."""
    client = board.client(last_epoch=BEFORE)
    if not is_first:
        board.send(client, fits("x"))
    peer = board.come_back(
        "a",
        last_epoch=BEFORE,
        nthreads=4,
        resources=announced({}, 4, 1024 * MB),
        facts={"host": "a", QUEUES_RESOURCES: True},
        **{phase: {"x": ATTEMPT}},
    )
    if is_first:
        board.send(client, fits("x"))
    assert (board.where("x"), board.attempt("x")) == (peer, ATTEMPT)
    board.pass_time(QUIET_S + 0.1)
    assert (board.where("x"), board.attempt("x")) == (peer, ATTEMPT)
    board.finish(peer, "x")
    assert board.states("x") == ["memory"]
    board.drop_rest()


def test_an_attempt_of_an_earlier_scheduler_that_is_given_back_is_given_memory_here(board):
    client = board.client(last_epoch=BEFORE)
    board.send(client, fits("x"))
    peer = board.come_back(
        "a",
        last_epoch=BEFORE,
        nthreads=4,
        resources=announced({}, 4, 1024 * MB),
        facts={"host": "a", QUEUES_RESOURCES: True},
        assigned={"x": ATTEMPT},
    )
    board.pass_time(QUIET_S + 0.1)
    board.drop_rest()
    out = board.send(peer, m.AttemptsReturned(attempts=[ATTEMPT]))
    assert assignment(out, peer).allotted_nbytes == [1024 * MB]
    board.drop_rest()


@pytest.mark.parametrize("is_first", [True, False], ids=["worker first", "client first"])
def test_an_attempt_of_an_earlier_scheduler_occupies_memory(board, is_first):
    """Else the next task would be sent to its worker, and would wait there until it ends."""
    client = board.client(last_epoch=BEFORE)
    if not is_first:
        board.send(client, fits("x"))
    peer = board.come_back(
        "a",
        last_epoch=BEFORE,
        nthreads=4,
        resources=announced({}, 4, 1024 * MB),
        facts={"host": "a", QUEUES_RESOURCES: True},
        running={"x": ATTEMPT},
    )
    if is_first:
        board.send(client, fits("x"))
    other = worker(board, "b")
    board.pass_time(QUIET_S + 0.1)
    board.send(client, fits("y"))
    assert (board.where("x"), board.where("y")) == (peer, other)
    board.drop_rest()


def test_an_attempt_of_an_earlier_scheduler_that_was_given_less_is_run_again_with_the_largest(
    board,
):
    """How much that scheduler had given it is not known here."""
    client = board.client(last_epoch=BEFORE)
    board.send(client, fits("x"))
    peer = board.come_back(
        "a",
        last_epoch=BEFORE,
        nthreads=4,
        resources=announced({}, 4, 1024 * MB),
        facts={"host": "a", QUEUES_RESOURCES: True},
        running={"x": ATTEMPT},
    )
    board.pass_time(QUIET_S + 0.1)
    exceed(board, peer, "x", mb=300)
    board.send(peer, m.AttemptsEnded(attempts=[ATTEMPT], ends=[m.INTERRUPTED]))
    out = board.tick()
    assert assignment(out, peer).allotted_nbytes == [1024 * MB]
    assert given(board, "x") == 1024.0
    out = exceed(board, peer, "x", mb=1025)
    assert out.of(client, m.KeysErred)[0].failures[0][0] == "allotment-exceeded"
    board.drop_rest()
