"""The window of rows is shared by the arrays that can begin some."""

from __future__ import annotations

from weft.protocol.wire import messages as m

from ...builders import graph
from .acts import array, end, live


def test_arrays_whose_conditions_are_not_met_take_nothing_of_the_window(board):
    client = board.client()
    board.send(client, graph("x", detached=True))
    for key in "bc":
        board.send(client, array(key=key, conditions=[["done", "x"]]))
    board.send(client, array())
    assert live(board) == [0, 1, 2, 3]


def test_arrays_of_a_paused_queue_take_nothing_of_the_window(board):
    client = board.client()
    board.send(client, m.Ask(request=1, name="pause_queue", arguments={"name": "q"}))
    for key in "bc":
        board.send(client, array(key=key, job_queue="q"))
    board.send(client, array())
    assert live(board) == [0, 1, 2, 3]
    board.drop_rest()


def test_arrays_whose_last_row_has_begun_take_nothing_of_the_window(board, disk):
    client, worker = board.client(), board.worker()
    for key in "bc":
        board.send(client, array(1, key=key))
    board.send(client, array())
    assert live(board) == [0, 1, 2, 3]
    disk.commit(board)
    end(board, disk, worker, 0, 1)
    assert live(board) == [2, 3, 4, 5]
