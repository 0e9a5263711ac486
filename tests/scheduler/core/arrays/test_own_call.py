"""The own call of an array, which ends it, needs nothing of what its rows need."""

from __future__ import annotations

from weft.protocol.wire import messages as m

from .acts import array, end


def test_an_array_whose_rows_have_succeeded_is_done_also_in_a_paused_queue(board, disk):
    client, worker = board.client(), board.worker(nthreads=8)
    board.send(client, array(2, job_queue="q"))
    disk.commit(board)
    board.send(client, m.Ask(request=1, name="pause_queue", arguments={"name": "q"}))
    end(board, disk, worker, 0, 1)
    board.tick()
    board.finish(worker, "a")
    disk.commit(board)
    assert disk.ended["a"].state == "done"
    board.drop_rest()


def test_an_array_whose_rows_have_succeeded_needs_no_resources(board, disk):
    client, worker = board.client(), board.worker(nthreads=8, resources={"GPU": 1.0})
    board.send(client, array(1, no_worker_ms=5000, resources={"GPU": 1}, workers=["w"]))
    end(board, disk, worker, 0)
    board.close(worker)
    board.tick(1.0)
    for _ in range(20):
        board.tick(1.0)
    assert board.states("a") == ["no_worker"]
    other = board.worker("v")
    board.tick()
    board.finish(other, "a")
    disk.commit(board)
    assert disk.ended["a"].state == "done"
    board.drop_rest()
