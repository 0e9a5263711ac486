"""A disk that fails for a while: no end of an earlier run of a row replaces a later one."""

from __future__ import annotations

import pytest

from weft.scheduler.core.arrays.records import NONE_BLOB
from weft.scheduler.core.journal.feature import RETRY_S

from .acts import array, ask, end, live


def test_a_failure_that_is_recorded_late_does_not_replace_the_result_of_a_later_run(board, disk):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, array())
    disk.commit(board)
    board.raise_(worker, "a/0", "a/1")
    disk.error = "the disk is full"
    disk.commit(board)
    disk.error = ""
    ask(board, disk, client, "retry_rows", rows=["1"])
    end(board, disk, worker, 2, 3)
    assert 1 in live(board)
    board.finish(worker, "a/1", blob=b"result")
    disk.commit(board)
    board.tick(RETRY_S + 0.1)
    disk.commit(board)
    assert disk.states() == "fddd--"
    assert disk.kept["a"][0].failure[:2] == ["exception", "a/0"]
    assert disk.kept["a"][1].result == b"result"
    board.drop_rest()


def test_an_array_ends_when_all_rows_run_again_whose_ends_could_not_be_recorded(board, disk):
    client, worker = board.client(), board.worker()
    board.send(client, array(2))
    disk.commit(board)
    board.finish(worker, "a/0", blob=NONE_BLOB)
    disk.commit(board)
    board.raise_(worker, "a/1")
    disk.error = "the disk is full"
    disk.commit(board)
    disk.error = ""
    ask(board, disk, client, "retry_rows", rows=["1"])
    end(board, disk, worker, 1)
    board.tick(RETRY_S + 0.1)
    board.tick()
    assert board.states("a") == ["processing"]
    board.drop_rest()


def test_rows_that_run_again_are_recorded_later_and_their_user_knows(board, disk):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, array())
    disk.commit(board)
    board.raise_(worker, "a/1")
    disk.commit(board)
    disk.error = "the disk is full"
    (failed,) = ask(board, disk, client, "retry_rows", rows=["1"])
    assert failed.text == (
        "rows of a are to run again, but that is not recorded yet, and is tried again: "
        "the disk is full"
    )
    assert disk.states() == "-f----"
    disk.error = ""
    board.tick(RETRY_S + 0.1)
    disk.commit(board)
    assert disk.states() == "------"
    board.drop_rest()


def test_rows_that_are_cancelled_are_recorded_later_and_their_user_knows(board, disk):
    client = board.client()
    board.send(client, array())
    disk.commit(board)
    disk.error = "the disk is full"
    (failed,) = ask(board, disk, client, "cancel_rows", rows=["0", "5"])
    assert failed.text.startswith("rows of a are cancelled, but that is not recorded yet")
    disk.error = ""
    board.tick(RETRY_S + 0.1)
    disk.commit(board)
    assert disk.states() == "c----c"
    board.drop_rest()


def test_rows_that_run_again_have_ended_on_record_until_that_is_recorded(board, disk):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, array())
    disk.commit(board)
    board.raise_(worker, "a/1")
    disk.commit(board)
    disk.error = "the disk is full"
    ask(board, disk, client, "retry_rows", rows=["1"])
    disk.error = ""
    end(board, disk, worker, 0)
    assert (disk.states(), [*disk.kept["a"]]) == ("df----", [1])
    board.tick(RETRY_S + 0.1)
    disk.commit(board)
    assert (disk.states(), [*disk.kept["a"]]) == ("d-----", [])
    board.drop_rest()


def test_rows_that_have_ended_again_are_left_out_when_it_is_recorded_that_others_run_again(
    board, disk
):
    client, worker = board.client(), board.worker(nthreads=4)
    board.send(client, array(4))
    disk.commit(board)
    for row in range(3):
        board.raise_(worker, f"a/{row}")
        disk.commit(board)
    disk.error = "the disk is full"
    ask(board, disk, client, "retry_rows")
    disk.error = ""
    end(board, disk, worker, 0)
    assert disk.states() == "dff-"
    board.tick(RETRY_S + 0.1)
    disk.commit(board)
    assert disk.states() == "d---"
    assert not disk.kept["a"]
    board.drop_rest()


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "not known yet"])
def test_no_entry_says_of_a_row_that_it_has_ended_whose_end_is_not_recorded(board, disk, is_known):
    client, worker = board.client(), board.worker(nthreads=8)
    board.send(client, array())
    disk.commit(board)
    board.raise_(worker, "a/1")
    disk.commit(board)
    disk.error = "the disk is full"
    ask(board, disk, client, "retry_rows", rows=["1"])
    board.finish(worker, "a/1", blob=b"result")
    if is_known:
        disk.commit(board)
    board.finish(worker, "a/2", blob=b"other")
    disk.commit(board, n=1)
    disk.error = ""
    board.finish(worker, "a/0", blob=b"first")
    disk.commit(board)
    assert disk.states() == ("df----" if is_known else "dfd---")
    assert disk.kept["a"][1].result is None
    board.tick(RETRY_S + 0.1)
    disk.commit(board)
    assert disk.states() == "ddd---"
    results = {row: end.result for row, end in disk.kept["a"].items()}
    assert results == {0: b"first", 1: b"result", 2: b"other"}
    board.drop_rest()
