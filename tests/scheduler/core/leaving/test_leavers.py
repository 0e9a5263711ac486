"""Workers that leave: when they may go."""

from __future__ import annotations

from weft.protocol.wire import messages as m

from ...builders import Board, Out, graph

LEAVE = (m.WorkerLeaving(reason="SIGTERM"), m.AskToLeave(request=1))


def may_go(out: Out, worker: int) -> bool:
    return m.MayLeave(request=1) in out.get(worker, [])


def test_a_worker_that_runs_nothing_may_go_as_soon_as_it_asks():
    board = Board()
    worker = board.worker("w")
    assert board.send(worker, *LEAVE)[worker] == [m.MayLeave(request=1)]
    assert board.send(worker, *LEAVE) == {}, "it is let go once"


def test_a_worker_may_go_when_what_runs_has_ended_and_the_rest_is_returned():
    board = Board()
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("runs", "waits", "dropped"))
    attempts = {key: board.attempt(key) for key in ("runs", "waits", "dropped")}
    assert not may_go(board.send(worker, *LEAVE), worker)
    board.send(client, m.CancelKeys(keys=["dropped"], force=False, reason=""))
    board.worker("other")
    out = board.send(worker, m.AttemptsReturned(attempts=[attempts["waits"]]))
    assert not may_go(out, worker)
    assert not may_go(board.finish(worker, "runs"), worker)
    out = board.send(worker, m.AttemptsEnded(attempts=[attempts["dropped"]]))
    assert may_go(out, worker)
    assert board.state.counters.tasks_recomputed == 0
    board.drop_rest()


def test_a_worker_that_was_asked_to_leave_asks_for_the_word_itself():
    board = Board()
    client, worker = board.client(), board.worker("w")
    order = m.Ask(request=9, name="retire", arguments={"order": "1", "workers": ["id of w"]})
    assert not may_go(board.send(client, order), worker)
    assert may_go(board.send(worker, *LEAVE), worker)


def test_a_worker_of_an_earlier_release_goes_by_itself():
    board = Board()
    worker = board.worker("w")
    assert board.send(worker, LEAVE[0]) == {}
    board.send(worker, m.Bye(reason="SIGTERM"))
    assert board.state.counters.workers_left == 1


def test_a_worker_that_does_not_leave_gets_no_word():
    board = Board()
    worker = board.worker("w")
    assert board.send(worker, LEAVE[1]) == {}
    assert board.state.counters.reports_stale == 1
