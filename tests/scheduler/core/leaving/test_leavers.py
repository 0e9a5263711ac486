"""Workers that leave: what is moved from them first, and when they may go."""

from __future__ import annotations

from collections import Counter

import pytest

from weft.protocol.wire import messages as m
from weft.scheduler.core.leaving import leavers
from weft.scheduler.core.leaving.leavers import LOOK_S, START_S, leavers_of
from weft.scheduler.core.records.presence import Members

from ...builders import Board, Out, graph

LEAVE = (m.WorkerLeaving(reason="SIGTERM"), m.AskToLeave(request=1))


def may_go(out: Out, worker: int) -> bool:
    return m.MayLeave(request=1) in out.get(worker, [])


def test_a_worker_that_runs_nothing_may_go_as_soon_as_it_asks(board):
    worker = board.worker("w")
    assert board.send(worker, *LEAVE)[worker] == [m.MayLeave(request=1)]
    assert board.send(worker, *LEAVE) == {}, "it is let go once"


def test_a_worker_may_go_when_what_runs_has_ended_and_the_rest_is_returned(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("runs", "waits", "dropped"))
    attempts = {key: board.attempt(key) for key in ("runs", "waits", "dropped")}
    assert not may_go(board.send(worker, *LEAVE), worker)
    board.send(client, m.CancelKeys(keys=["dropped"], force=False, reason=""))
    board.worker("other")
    out = board.send(worker, m.AttemptsReturned(attempts=[attempts["waits"]]))
    assert not may_go(out, worker)
    assert not may_go(board.finish(worker, "runs"), worker)
    board.send(client, m.ReleaseKeys(keys=["runs"]))
    out = board.send(worker, m.AttemptsEnded(attempts=[attempts["dropped"]]))
    assert may_go(out, worker)
    assert board.state.counters.tasks_recomputed == 0
    board.drop_rest()


def test_a_worker_that_was_asked_to_leave_asks_for_the_word_itself(board):
    client, worker = board.client(), board.worker("w")
    order = m.Ask(request=9, name="retire", arguments={"order": "1", "workers": ["id of w"]})
    assert not may_go(board.send(client, order), worker)
    assert may_go(board.send(worker, *LEAVE), worker)


def test_a_worker_of_an_earlier_version_goes_by_itself(board):
    worker = board.worker("w")
    assert board.send(worker, LEAVE[0]) == {}
    board.send(worker, m.Bye(reason="SIGTERM"))
    assert board.state.counters.workers_left == 1


def test_a_worker_that_does_not_leave_gets_no_word(board):
    worker = board.worker("w")
    assert board.send(worker, LEAVE[1]) == {}
    assert board.state.counters.reports_stale == 1


class Leaving:
    """A board with results at the first of its workers, which leave in their order."""

    def __init__(self, n_workers: int, *keys: str, **options: object) -> None:
        self.board = Board(**options)
        self.alice = self.board.client()
        self.workers = [self.board.worker("w0")]
        if keys:
            self.board.send(self.alice, graph(*keys), m.WantKeys(keys=list(keys)))
            for key in keys:
                self.board.finish(self.workers[0], key, blob=None)
        self.workers += [self.board.worker(f"w{i}") for i in range(1, n_workers)]

    def leave(self, *numbers: int) -> Out:
        """Let workers begin to leave, and pass the time until their results are moved."""
        for i in numbers:
            self.board.send(self.workers[i], *LEAVE)
        return self.board.tick(2 * START_S)

    def to_hold(self, out: Out) -> dict[int, list[str]]:
        """Return {number of a worker: keys that it is asked to hold}."""
        return {
            i: [key for message in messages for key in message.keys]
            for i, peer in enumerate(self.workers)
            if (messages := [x for x in out.get(peer, []) if isinstance(x, m.HoldCopies)])
        }

    def report(self, i: int, *keys: str) -> Out:
        attempts = [self.board.attempt(key) for key in keys]
        return self.board.send(self.workers[i], m.ReplicasAdded(attempts=attempts, keys=list(keys)))

    def may_go(self, out: Out, i: int = 0) -> bool:
        return may_go(out, self.workers[i])

    def end(self, *numbers: int) -> None:
        """Let workers go; nothing may be computed again."""
        for i in numbers:
            self.board.send(self.workers[i], m.Bye(reason="SIGTERM"))
        assert self.board.state.counters.tasks_recomputed == 0
        self.board.drop_rest()


def test_a_result_that_only_a_leaver_has_is_moved_before_it_may_go():
    c = Leaving(2, "x")
    out = c.leave(0)
    assert c.to_hold(out) == {1: ["x"]}
    assert not c.may_go(out)
    assert c.may_go(c.report(1, "x"))
    c.end(0)
    assert c.board.states("x") == ["memory"]


def test_the_result_of_a_task_that_ends_while_its_worker_leaves_is_moved():
    c = Leaving(1)
    c.board.send(c.alice, graph("x", "y"), m.WantKeys(keys=["x", "y"]))
    c.workers.append(c.board.worker("w1"))
    c.leave(0)
    c.board.send(c.workers[0], m.AttemptsReturned(attempts=[]))
    assert c.to_hold(c.board.finish(c.workers[0], "x", "y", blob=None)) == {1: ["x", "y"]}
    assert not c.may_go(c.report(1, "x"))
    assert c.may_go(c.report(1, "y"))
    c.end(0)


def test_workers_that_leave_one_after_the_other_get_nothing_of_each_other():
    c = Leaving(3, "x")
    c.board.send(c.workers[0], *LEAVE)
    out = c.leave(1)
    assert c.to_hold(out) == {2: ["x"]}
    assert c.may_go(c.report(2, "x"))
    c.end(0, 1)


def test_both_holders_of_two_copies_are_held_until_there_is_a_third():
    c = Leaving(3, "x")
    c.report(1, "x")
    ids = {"workers": ["id of w0", "id of w1"]}
    c.board.send(c.alice, m.Ask(request=9, name="retire", arguments={"order": "1", **ids}))
    out = c.leave(0, 1)
    assert c.to_hold(out) == {2: ["x"]}
    assert not c.may_go(out, 0)
    assert not c.may_go(out, 1)
    out = c.report(2, "x")
    assert c.may_go(out, 0)
    assert c.may_go(out, 1)
    c.end(0, 1)


def test_a_result_whose_other_copy_is_lost_while_the_worker_leaves_is_moved():
    c = Leaving(3, "x")
    c.report(1, "x")
    c.board.send(c.alice, graph("runs", workers=["w0"]))
    assert c.to_hold(c.leave(0)) == {}
    assert c.to_hold(c.board.close(c.workers[1])) == {2: ["x"]}
    c.board.finish(c.workers[0], "runs")
    assert not c.may_go(c.board.out)
    c.report(2, "x")
    c.board.tick(LOOK_S)
    c.end(0)


@pytest.mark.parametrize("way", ["release", "a worker joins", "room"])
def test_a_needed_result_without_room_holds_its_worker_until(way):
    c = Leaving(1, "x")
    if way == "room":
        c.workers.append(c.board.worker("w1", memory_limit=20))
        c.board.send(c.alice, graph("y", "z", workers=["w1"]))
        c.board.finish(c.workers[1], "y", "z", blob=None)
    out = c.leave(0)
    assert not c.may_go(out)
    assert not c.may_go(c.board.tick(5.0))
    if way == "release":
        c.board.send(c.alice, m.ReleaseKeys(keys=["x"]))
        assert c.may_go(c.board.tick(LOOK_S))
    else:
        if way == "room":
            c.board.send(c.alice, m.ReleaseKeys(keys=["y"]))
            out = c.board.tick(LOOK_S)
        else:
            c.workers.append(c.board.worker("w1"))
            out = c.board.out
        assert c.to_hold(out) == {1: ["x"]}
        assert c.may_go(c.report(1, "x"))
    c.end(0)


def test_room_is_for_results_of_leavers_before_copies_that_clients_wish_for():
    """A wish may fill a worker, so it would leave none, and the leaver would wait for ever."""
    c = Leaving(1, "x", "y")
    arguments = {"keys": ["y"], "n": 2}
    c.board.send(c.alice, m.Ask(request=9, name="replicate", arguments=arguments))
    c.leave(0)
    c.workers.append(c.board.worker("w1", memory_limit=10))
    assert c.to_hold(c.board.out) == {1: ["x", "y"]}
    c.report(1, "x")
    assert c.may_go(c.report(1, "y"))
    c.end(0)


def test_a_delivered_result_is_moved_and_holds_no_worker_where_no_room_is():
    c = Leaving(1)
    c.board.send(c.alice, graph("x"), m.WantKeys(keys=["x"]))
    c.board.finish(c.workers[0], "x")
    assert c.may_go(c.leave(0))
    c.end(0)
    c = Leaving(2)
    c.board.send(c.alice, graph("x", workers=["w0"]), m.WantKeys(keys=["x"]))
    c.board.finish(c.workers[0], "x")
    out = c.leave(0)
    assert c.to_hold(out) == {1: ["x"]}
    assert not c.may_go(out)
    assert c.may_go(c.report(1, "x"))
    c.end(0)


def test_a_target_that_dies_or_cannot_fetch_is_replaced():
    c = Leaving(3, "x")
    ((target, _),) = c.to_hold(c.leave(0)).items()
    c.board.close(c.workers[target])
    assert c.to_hold(c.board.tick(LOOK_S)) == {3 - target: ["x"]}
    attempt = c.board.attempt("x")
    missing = m.KeysMissing(keys=["x"], holder="tcp://w0", unreachable=True, attempts=[attempt])
    for _ in range(20):
        c.board.send(c.workers[3 - target], missing)
        assert not c.may_go(c.board.tick(LOOK_S)), "nobody else can, so it is tried for ever"
    assert c.may_go(c.report(3 - target, "x"))
    c.end(0)


def test_a_copy_at_a_leaver_that_may_drop_it_lets_no_other_leaver_go():
    c = Leaving(2, "x")
    c.board.send(c.alice, graph("runs", workers=["w0"]))
    c.leave(0)
    c.report(1, "x")
    arguments = {"order": "1", "workers": ["id of w1"], "losses": "drop"}
    c.board.send(c.alice, m.Ask(request=9, name="retire", arguments=arguments))
    assert not c.may_go(c.board.finish(c.workers[0], "runs"))
    assert not c.may_go(c.board.tick(2 * START_S))
    assert c.may_go(c.board.send(c.workers[1], *LEAVE), 1)
    c.end(1)
    assert not c.may_go(c.board.tick(LOOK_S))


def test_an_actor_holds_its_worker_to_the_end_and_may_not_be_copied():
    c = Leaving(2)
    message = graph("a", workers=["w0"])
    message.functions = [m.ACTOR_FUNCTION]
    c.board.send(c.alice, message)
    c.board.finish(c.workers[0], "a", blob=None)
    out = c.leave(0)
    assert c.to_hold(out) == {}
    assert not c.may_go(c.board.tick(5.0))
    c.board.send(c.alice, m.ReleaseKeys(keys=["a"]))
    assert c.may_go(c.board.tick(LOOK_S))
    c.board.drop_rest()


def test_results_that_clients_may_come_back_for_hold_their_worker():
    board = Board(expected=Members(worker_ids=("id of w",), client_ids=("alice", "bob")))
    board.state.first_attempt = board.state.next_attempt = 100
    board.client("alice", last_epoch=3)
    worker = board.come_back("w", kept={"of bob": 5}, last_epoch=3)
    board.send(worker, *LEAVE)
    assert not may_go(board.tick(3.0), worker)
    board.drop_rest()


def test_of_many_results_only_some_are_under_way_at_once_and_needed_ones_go_first(
    monkeypatch,
):
    monkeypatch.setattr(leavers, "WINDOW", 20)
    monkeypatch.setattr(leavers, "BATCH", 8)
    keys = [f"k{i}" for i in range(30)]
    c = Leaving(2, *keys)
    c.board.send(c.alice, graph(f":{keys[-1]} -> reads", workers=["nowhere"]))
    for key in keys:
        c.board.task(key).delivered = True
    (asked,) = c.to_hold(c.leave(0)).values()
    assert len(asked) == 20
    assert asked[0] == keys[-1]
    (rest,) = c.to_hold(c.report(1, *asked)).values()
    assert sorted([*asked, *rest]) == sorted(keys)
    assert c.may_go(c.report(1, *rest))
    c.end(0)


def test_many_results_without_room_are_tried_in_turns(monkeypatch):
    monkeypatch.setattr(leavers, "BATCH", 4)
    keys = [f"k{i}" for i in range(12)]
    c = Leaving(1, *keys)
    c.leave(0)
    (leaver,) = leavers_of(c.board.state).by_worker.values()
    first = leaver.stuck[0].key
    c.board.tick(LOOK_S)
    assert leaver.stuck[0].key != first
    assert len(leaver.stuck) == len(keys)
    c.board.drop_rest()


def test_a_worker_that_asks_very_often_is_looked_at_no_more_often(monkeypatch):
    c = Leaving(1, *(f"k{i}" for i in range(50)))
    n_looks = Counter()
    what_holds = leavers._what_holds

    def counted(state, ws, leaver):
        n_looks["all"] += 1
        return what_holds(state, ws, leaver)

    monkeypatch.setattr(leavers, "_what_holds", counted)
    c.leave(0)
    n_before = n_looks["all"]
    (leaver,) = leavers_of(c.board.state).by_worker.values()
    sizes = [len(getattr(leaver, name)) for name in ("left", "moving", "stuck")]
    for number in range(2, 500):
        c.board.send(c.workers[0], m.AskToLeave(request=number, left_ms=number))
    c.board.send(c.workers[0], *(m.AskToLeave(request=number) for number in range(2, 500)))
    assert n_looks["all"] <= n_before + 1
    assert sizes == [len(getattr(leaver, name)) for name in ("left", "moving", "stuck")]
    c.workers.append(c.board.worker("w1"))
    keys = c.to_hold(c.board.out)[1]
    out = c.report(1, *keys)
    assert m.MayLeave(request=499) in out[c.workers[0]], "the last question is answered"
    c.end(0)
