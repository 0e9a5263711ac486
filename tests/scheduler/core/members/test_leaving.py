"""membership.py: a worker that leaves finishes its running tasks, and gets no others."""

from __future__ import annotations

from weft.protocol.wire import messages as m

from ...builders import assigned, finished, graph, sent_keys

LEAVING = m.WorkerLeaving(reason="SIGTERM")


def test_unstarted_tasks_of_a_leaving_worker_go_elsewhere_at_once(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a b c"))
    out = board.send(worker, LEAVING)
    assert out[worker] == [m.ReturnAttempts(count=3)]
    other = board.worker("other")
    running, *rest = [board.attempt(key) for key in "abc"]
    out = board.send(worker, m.AttemptsReturned(attempts=rest))
    assert assigned(out, other) == {"b": board.attempt("b"), "c": board.attempt("c")}
    # Running tasks are not placed again, and their results count.
    assert board.where("a") == worker
    out = board.send(worker, finished([running]))
    assert sent_keys(out, client, m.ResultsReady) == ["a"]
    assert board.send(worker, m.Bye(reason="SIGTERM")).get(other) is None
    assert board.state.counters.workers_left == 1
    assert board.state.counters.tasks_recomputed == 0


def test_a_leaving_worker_gets_nothing_more(board):
    client, worker, other = board.client(), board.worker("w"), board.worker("other")
    board.send(worker, LEAVING)
    for i in range(6):
        board.send(client, graph(f"a{i}"))
    assert all(board.where(f"a{i}") == other for i in range(6))
    board.send(worker, LEAVING)  # twice is no harm
    board.send(client, graph("b", workers=["w"]))
    assert board.states("b") == ["no_worker"]


def test_a_chain_that_was_assigned_ahead_goes_elsewhere_with_its_input_left_behind(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a -> b", "b -> c"))
    assert (
        board.where(
            "a",
        )
        == worker
    )
    attempts = [board.attempt(key) for key in "abc"]
    other = board.worker("other")
    board.send(worker, LEAVING)
    board.send(worker, m.AttemptsReturned(attempts=attempts[1:]))
    assert board.states("a", "b", "c") == ["processing", "waiting", "waiting"]
    out = board.send(worker, finished([attempts[0]], blob=None))
    (message,) = [x for x in out[other] if isinstance(x, m.AssignTasks)]
    assert message.keys == ["b", "c"]
    assert message.located_holders == [["tcp://w"]]
    assert board.rest() == ["KeysInMemory"]


def test_a_retry_of_a_task_on_a_leaving_worker_goes_elsewhere(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a", retries=1))
    attempt = board.attempt("a")
    other = board.worker("other")
    board.send(worker, LEAVING)
    board.send(worker, m.AttemptsReturned(attempts=[]))
    failure = ["exception", "a", "type", "text"]
    board.send(worker, m.AttemptsErred(attempts=[attempt], durations_us=[1], failures=[failure]))
    assert board.where("a") == other


def test_clients_do_not_count_a_leaving_worker_and_its_name_is_free(board):
    client, worker = board.client(), board.worker("w", nthreads=2)
    board.tick(1.0)
    out = board.send(worker, LEAVING)
    assert out[client] == [m.ClusterChanged(n_workers=0, nthreads=0)]
    board.worker("w", worker_id="another", address="tcp://another")
    assert [ws.name for ws in board.state.workers.values()] == ["w", "w"]


def test_a_task_of_a_leaving_worker_that_is_lost_is_placed_again(board):
    client, worker, other = board.client(), board.worker("w"), None
    board.send(client, graph("a"))
    board.send(worker, LEAVING)
    board.send(worker, m.AttemptsReturned(attempts=[]))
    other = board.worker("other")
    assert board.where("a") == worker
    board.close(worker)
    assert board.where("a") == other
