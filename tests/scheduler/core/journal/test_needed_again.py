"""Jobs on record whose data is gone, and that are needed again."""

from __future__ import annotations

import pytest

from weft.protocol.values.serialize import dumps
from weft.protocol.wire import messages as m
from weft.protocol.wire.constant_calls import CONSTANT_ID
from weft.scheduler.core.events import SchedulerTick
from weft.scheduler.core.journal.entries import EndsRead, JournalWritten
from weft.scheduler.core.journal.jobs import SubmitsAgain, journal_of

from ...builders import Board, finished, graph
from .test_journal import open_board, recorded
from .test_reading import ENDS, reads


@pytest.mark.parametrize("is_released_first", [False, True])
def test_a_job_on_record_is_read_for_what_is_made_of_it_again(is_released_first):
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.send(client, graph(":a -> d"))
    board.finish(worker, "a", blob=b"result")
    board.send(worker, finished([board.attempt("d")], blob=None))
    keys = [["a"], []]
    board.send(client, m.ReleaseKeys(keys=keys[not is_released_first]))
    for number in (1, 2):
        recorded(board, number)
    board.send(client, m.ReleaseKeys(keys=keys[is_released_first]))
    assert board.states(*"ad") == ["released", "memory"]
    other = board.worker("v")
    board.close(worker)
    (asked,) = reads(board)
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    (sent,) = board.out.of(other, m.AssignTasks)
    assert (sent.keys[0], sent.functions[0]) == ("a", CONSTANT_ID)
    board.finish(other, "a", blob=dumps(7))
    assert board.states("d") == ["processing"]
    board.drop_rest()


def open_lineage(*more: str) -> tuple[Board, int, int]:
    """Return a board with a client and a worker; job a is done and on record, and its data is gone.

    Its task is kept, since d has read it.
    """
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("z", ":z -> a", *more, detached=True))
    board.finish(worker, "z", "a", blob=b"result")
    board.send(client, graph(":a -> d"))
    board.send(worker, finished([board.attempt("d")], blob=None))
    board.send(client, m.ReleaseKeys(keys=["z", "a"]))
    for number in range(1, journal_of(board.state).number):
        recorded(board, number)
    assert board.states(*"zad") == ["released", "released", "memory"]
    return board, client, worker


def read_by_a_task(board: Board, client: int) -> None:
    board.send(client, graph(":a -> e"))


def wanted_by_a_client(board: Board, client: int) -> None:
    board.send(client, m.WantKeys(keys=["a"]))


def submitted_by_another(board: Board, client: int) -> None:
    board.send(board.client("bob"), graph("a"))


def submitted_again_by_its_client(board: Board, client: int) -> None:
    alice = board.state.clients_by_peer[client]
    journal_of(board.state).returning[alice] = SubmitsAgain.ALL
    board.send(client, graph("a", detached=True, delivered=True), graph(":a -> e"))


def needed_by_what_was_lost(board: Board, client: int) -> None:
    (worker,) = board.state.workers
    board.worker("v")
    board.close(worker)


NEEDS = [
    read_by_a_task,
    wanted_by_a_client,
    submitted_by_another,
    submitted_again_by_its_client,
    needed_by_what_was_lost,
]


@pytest.mark.parametrize("need", NEEDS)
def test_a_job_on_record_whose_data_was_dropped_is_read_when_it_is_needed_again(need):
    board, client, _ = open_lineage()
    need(board, client)
    (asked,) = reads(board)
    assert (asked.keys, board.states(*"za")) == (["a"], ["-", "no_worker"])
    board.play(SchedulerTick(journal=[EndsRead(asked, ENDS[:1])]))
    (worker,) = board.state.workers
    (sent,) = board.out.of(worker, m.AssignTasks)
    assert (sent.keys[0], sent.functions[0]) == ("a", CONSTANT_ID)
    board.drop_rest()


def test_a_job_on_record_begins_anew_for_who_submits_it_although_its_task_is_kept():
    board, client, _ = open_lineage()
    board.send(client, graph("a", detached=True))
    assert [asked.keys for asked in reads(board)] == [["z"]]  # and what it reads is not made anew
    assert board.states(*"za") == ["no_worker", "waiting"]
    board.drop_rest()


def test_a_job_whose_result_is_larger_than_the_journal_keeps_runs_again_when_its_data_is_lost():
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.send(worker, finished([board.attempt("a")], nbytes=2 << 20, blob=None))
    recorded(board, 1)
    recorded(board, 2)
    other = board.worker("v")
    board.close(worker)
    board.send(client, graph(":a -> d"))
    assert (reads(board), board.states(*"ad")) == ([], ["processing"] * 2)
    assert board.task("a").worker is board.state.workers[other]
    board.drop_rest()


def test_functions_of_jobs_that_are_read_are_kept_for_the_clients_that_have_sent_them():
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.finish(worker, "a", blob=b"result")
    recorded(board, 1)
    recorded(board, 2)
    board.close(worker)
    board.send(client, graph(":a -> d", function="dec"))
    assert board.states(*"ad") == ["no_worker", "waiting"]
    board.send(client, graph("b", blob=None))
    assert board.states("b") == ["no_worker"]
    board.drop_rest()


def test_a_job_that_has_left_the_record_runs_again_for_what_is_made_of_it():
    board = open_board()
    client, worker = board.client(), board.worker()
    board.send(client, graph("a", detached=True))
    board.send(client, graph(":a -> d"))
    board.finish(worker, "a", blob=b"result")
    board.send(worker, finished([board.attempt("d")], blob=None))
    board.send(client, m.ReleaseKeys(keys=["a"]))
    for number in (1, 2):
        recorded(board, number)
    board.send(client, graph("b", detached=True))
    board.play(SchedulerTick(journal=[JournalWritten(3, dropped=["a"])]))
    board.worker("v")
    board.close(worker)
    assert (board.states(*"ad"), reads(board)) == (["processing"] * 2, [])
    board.drop_rest()
