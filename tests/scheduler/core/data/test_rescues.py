"""Copies of results whose holders all leave: where they go, and when such a wish is over."""

from __future__ import annotations

from tests.scheduler.core.data.test_copies import Copying
from weft.protocol.wire import messages as m
from weft.scheduler.core.data.copies import MAX_FAILURES, copies_of, is_under_way, rescue

LEAVING = m.WorkerLeaving(reason="SIGTERM")


def rescued(c, *keys):
    """Let the workers of results be rescued from, and return {worker: the keys that it fetches}."""
    rescue(c.board.state, [c.board.task(key) for key in keys])
    return c.to_hold(c.board.tick())


def join(c, name, **options):
    c.workers.append(c.board.worker(name, **options))
    return c.workers[-1]


def test_a_result_is_copied_to_a_worker_that_stays_and_not_to_another_that_leaves():
    c = Copying(3)
    c.board.send(c.workers[0], LEAVING)
    c.board.send(c.workers[1], LEAVING)
    assert rescued(c, "x") == {c.workers[2]: ["x"]}
    assert is_under_way(c.board.state, c.board.task("x"))
    c.report(c.workers[2], "x")
    assert c.holders() == ["w0", "w2"], "the leaver keeps its copy: some may read it"
    assert not copies_of(c.board.state).wishes
    c.board.drop_rest()


def test_a_rescue_without_room_is_over_at_once_and_may_be_tried_again():
    c = Copying(1, "x", "y")
    c.board.send(c.workers[0], LEAVING)
    assert rescued(c, "x") == {}
    assert not is_under_way(c.board.state, c.board.task("x"))
    assert not copies_of(c.board.state).wishes
    late = join(c, "late", memory_limit=10)
    assert rescued(c, "x", "y") == {late: ["x"]}, "8 bytes of 10 may be filled, with what comes"
    c.board.drop_rest()


def test_a_worker_that_cannot_fetch_ends_a_rescue_when_there_is_no_other():
    c = Copying(2)
    c.board.send(c.workers[0], LEAVING)
    assert rescued(c, "x")
    attempt = c.board.attempt("x")
    for i in range(MAX_FAILURES):
        assert is_under_way(c.board.state, c.board.task("x")), i
        c.board.send(
            c.workers[1],
            m.KeysMissing(keys=["x"], holder="tcp://w0", unreachable=True, attempts=[attempt]),
        )
        c.board.tick()
    assert not is_under_way(c.board.state, c.board.task("x"))
    c.board.drop_rest()


def test_a_target_that_leaves_is_replaced_by_one_that_stays():
    c = Copying(3)
    c.board.send(c.workers[0], LEAVING)
    ((target, _),) = rescued(c, "x").items()
    (other,) = {*c.workers[1:]} - {target}
    c.board.send(target, LEAVING)
    assert c.to_hold(c.board.tick()) == {other: ["x"]}
    c.board.drop_rest()


def test_a_wish_for_named_workers_is_kept_and_gives_way_where_they_cannot_hold_it():
    c = Copying(2)
    third = join(c, "w2")
    c.wish("x", n=2, workers=["w0", "w2"])
    c.report(third, "x")
    c.board.send(c.workers[0], LEAVING)
    c.board.send(third, LEAVING)
    assert rescued(c, "x") == {c.workers[1]: ["x"]}
    c.report(c.workers[1], "x")
    assert copies_of(c.board.state).wishes[c.board.task("x")].workers == ("w0", "w2")
    c.board.drop_rest()


def test_a_wish_for_all_of_workers_that_are_not_there_is_none_for_no_copy():
    c = Copying(1)
    c.board.send(c.workers[0], LEAVING)
    c.wish("x", workers=["elsewhere"])
    late = join(c, "late")
    assert rescued(c, "x") == {late: ["x"]}
    c.report(late, "x")
    c.board.drop_rest()
