"""Copies that clients want: made, spread as a tree, and made again when one is lost."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import Board, graph
from weft.protocol.wire import messages as m
from weft.scheduler.core.data.copies import LOOK_S, MAX_TRIES, copies_of

REQUEST = 77


def replicate(*keys, **arguments):
    return m.Ask(name="replicate", request=REQUEST, arguments={"keys": list(keys), **arguments})


def answers(out, peer):
    return [
        dict(zip(message.info["keys"], message.info["n_copies"], strict=True))
        for message in out.get(peer, [])
        if isinstance(message, m.Answer)
    ]


def refusals(out, peer):
    return [message.text for message in out.get(peer, []) if isinstance(message, m.AskFailed)]


class Copying:
    """A board with a result at the first of its workers, and workers that do as they are asked."""

    def __init__(self, n_workers, *keys, **options):
        self.board = Board(**options)
        self.workers = [self.board.worker("w0")]
        self.alice = self.board.client()
        keys = keys or ("x",)
        self.board.send(self.alice, graph(*keys))
        for key in keys:
            self.board.finish(self.workers[0], key, blob=None)
        self.workers += [self.board.worker(f"w{i}") for i in range(1, n_workers)]

    def to_hold(self, out):
        """Return {worker: keys that it is asked to hold}."""
        return {
            peer: [key for message in messages for key in message.keys]
            for peer in self.workers
            if (messages := [x for x in out.get(peer, []) if isinstance(x, m.HoldCopies)])
        }

    def wish(self, *keys, **arguments):
        return self.board.send(self.alice, replicate(*keys, **arguments))

    def report(self, peer, *keys):
        attempts = [self.board.attempt(key) for key in keys]
        return self.board.send(peer, m.ReplicasAdded(attempts=attempts, keys=list(keys)))

    def holders(self, key="x"):
        return sorted(ws.name for ws in self.board.task(key).replicas)


def test_a_copy_is_fetched_by_another_worker_and_the_order_is_answered_then():
    c = Copying(3)
    out = c.wish("x", n=2)
    ((peer, keys),) = c.to_hold(out).items()
    assert keys == ["x"]
    (message,) = out[peer]
    assert message.holders == [["tcp://w0"]]
    assert answers(out, c.alice) == []
    assert answers(c.report(peer, "x"), c.alice) == [{"x": 2}]
    assert len(c.holders()) == 2


def test_copies_at_all_workers_spread_as_a_tree():
    c = Copying(8)
    out = c.wish("x")
    rounds = []
    while asked := c.to_hold(out):
        rounds.append(len(asked))
        merged: dict = {}
        for peer in asked:
            for one, messages in c.report(peer, "x").items():
                merged.setdefault(one, []).extend(messages)
        out = merged
    assert rounds == [2, 5]
    assert answers(out, c.alice) == [{"x": 8}]


def test_named_workers_get_the_copies():
    c = Copying(4)
    out = c.wish("x", n=1, workers=["w3"])
    assert list(c.to_hold(out)) == [c.workers[3]]
    assert answers(c.report(c.workers[3], "x"), c.alice) == [{"x": 2}]


def test_more_copies_than_workers_are_answered_and_made_when_workers_come():
    c = Copying(2)
    out = c.wish("x", n=3)
    out = c.report(c.workers[1], "x")
    assert answers(out, c.alice) == [{"x": 2}]
    c.workers.append(c.board.worker("late"))
    assert c.to_hold(c.board.tick(0.01)) == {c.workers[2]: ["x"]}


def test_a_copy_that_is_lost_with_its_worker_is_made_again():
    c = Copying(3)
    ((peer, _),) = c.to_hold(c.wish("x", n=2)).items()
    c.report(peer, "x")
    c.board.close(c.workers[0])
    out = c.board.tick(0.01)
    (other,) = [w for w in c.workers[1:] if w != peer]
    assert c.to_hold(out) == {other: ["x"]}
    c.report(other, "x")
    assert c.holders() == ["w1", "w2"]


def test_a_copy_is_made_elsewhere_when_its_worker_leaves():
    c = Copying(3)
    ((peer, _),) = c.to_hold(c.wish("x", n=2)).items()
    c.report(peer, "x")
    c.board.send(c.workers[0], m.WorkerLeaving(reason="SIGTERM"))
    (other,) = [w for w in c.workers[1:] if w != peer]
    assert c.to_hold(c.board.tick(0.01)) == {other: ["x"]}


def test_a_worker_that_dies_while_it_fetches_is_replaced():
    c = Copying(3)
    ((peer, _),) = c.to_hold(c.wish("x", n=2)).items()
    c.board.close(peer)
    out = c.board.tick(0.01)
    (other,) = [w for w in c.workers[1:] if w != peer]
    assert c.to_hold(out) == {other: ["x"]}
    assert answers(c.report(other, "x"), c.alice) == [{"x": 2}]


def test_data_whose_last_copy_is_lost_meanwhile_is_answered_as_gone():
    c = Copying(2)
    c.wish("x", n=2)
    c.board.close(c.workers[0])
    out = c.board.tick(0.01)
    assert answers(out, c.alice) == [{"x": 0}]
    assert not copies_of(c.board.state).wishes


def test_a_worker_that_cannot_get_a_copy_is_asked_a_few_times():
    c = Copying(2)
    out = c.wish("x", n=2)
    n = 0
    while c.to_hold(out):
        n += 1
        c.board.send(
            c.workers[1],
            m.KeysMissing(keys=["x"], holder="tcp://w0", unreachable=True, attempts=[1]),
        )
        out = c.board.tick(0.01)
    assert n == 3
    assert answers(out, c.alice) == [{"x": 1}]


def test_a_worker_that_could_not_get_a_copy_is_forgotten_with_its_end():
    c = Copying(2)
    c.wish("x", n=2)
    c.board.send(
        c.workers[1],
        m.KeysMissing(keys=["x"], holder="tcp://w0", unreachable=True, attempts=[1]),
    )
    (wish,) = copies_of(c.board.state).wishes.values()
    assert len(wish.failed) == 1
    c.board.close(c.workers[1])
    assert not wish.failed  # the wish may last for as long as the cluster


def test_a_worker_that_does_not_report_is_asked_again_and_at_last_no_more():
    c = Copying(2)
    assert c.to_hold(c.wish("x", n=2))
    out = c.board.tick(LOOK_S + 0.1)
    assert c.to_hold(out) == {c.workers[1]: ["x"]}
    n, found = 0, []
    while not found and n < 2 * MAX_TRIES:
        n += 1
        for peer in c.workers:
            c.board.send(peer, m.Heartbeat())
        found = answers(c.board.tick(LOOK_S + 0.1), c.alice)
    assert found == [{"x": 1}]
    assert set(c.board.rest()) == {"HoldCopies"}


def test_released_data_is_wanted_no_more():
    c = Copying(2)
    c.wish("x", n=2)
    c.board.send(c.alice, m.ReleaseKeys(keys=["x"]))
    out = c.board.tick(LOOK_S + 0.1)
    assert answers(out, c.alice) == [{"x": 0}]
    assert not copies_of(c.board.state).open
    assert not copies_of(c.board.state).wishes


def test_wishes_of_released_data_do_not_pile_up():
    c = Copying(2)
    for i in range(300):
        c.board.send(c.alice, graph(f"k{i}"))
        worker = next(ws for ws in c.board.state.workers.values() if ws.processing).peer
        c.board.finish(worker, f"k{i}", blob=None)
        ((peer, keys),) = c.to_hold(c.wish(f"k{i}", n=2)).items()
        c.report(peer, *keys)
        c.board.send(c.alice, m.ReleaseKeys(keys=[f"k{i}"]))
    assert len(copies_of(c.board.state).wishes) <= 65


def test_one_copy_ends_the_wish_and_unknown_keys_are_left_out():
    c = Copying(2)
    ((peer, _),) = c.to_hold(c.wish("x", n=2)).items()
    c.report(peer, "x")
    out = c.wish("x", "never heard of", n=1)
    assert answers(out, c.alice) == [{"x": 2}]
    assert not copies_of(c.board.state).wishes


@pytest.mark.parametrize(
    "arguments",
    [{"n": 0}, {"n": -1}, {"n": "2"}, {"n": True}, {"workers": "w"}, {"workers": [1]}],
)
def test_orders_that_make_no_sense_are_refused(arguments):
    c = Copying(1)
    (text,) = refusals(c.wish("x", **arguments), c.alice)
    assert "n= is" in text or "workers= is" in text


def test_the_refusal_of_too_many_copies_names_the_limit():
    c = Copying(1)
    (text,) = refusals(c.wish("x", n=10**9), c.alice)
    assert "from 1 to 1000000, not 1000000000" in text


def test_the_order_of_a_client_that_is_gone_is_dropped():
    c = Copying(2)
    c.wish("x", n=2)
    bob = c.board.client("bob")
    c.board.send(c.alice, m.Bye(reason=""))
    assert answers(c.board.send(bob, replicate("y")), bob) == [{}]
    assert copies_of(c.board.state).questions == []


def test_the_least_loaded_workers_get_the_copies_in_turns():
    c = Copying(4, "a", "b", "c")
    asked = c.to_hold(c.wish("a", "b", "c", n=2))
    assert sorted(key for keys in asked.values() for key in keys) == ["a", "b", "c"]
    assert len(asked) == 3


def test_a_worker_that_is_away_is_waited_for():
    c = Copying(2, away_s=5.0)
    c.board.close(c.workers[1])
    assert answers(c.wish("x", n=2), c.alice) == []
    assert answers(c.board.tick(2.0), c.alice) == []
    assert answers(c.board.tick(2 * LOOK_S), c.alice) == [{"x": 1}]


def test_a_wish_goes_on_when_its_data_comes_back_after_a_release():
    """A dependent keeps the record of the task, and the wish with it."""
    board = Board(away_s=5.0)
    alice, w0 = board.client(), board.worker("w0")
    board.send(alice, graph("x -> y"))
    board.finish(w0, "x", blob=None)
    board.finish(w0, "y", blob=None)
    w1 = board.worker("w1")
    board.send(alice, replicate("x", n=2))
    attempt = board.attempt("x")
    board.send(w1, m.ReplicasAdded(attempts=[attempt], keys=["x"]))
    board.close(w1)
    board.send(alice, m.ReleaseKeys(keys=["x"]))
    board.send(alice, graph("x"))
    assert board.attempt("x") != attempt
    board.come_back("w1", kept={"x": attempt})
    assert board.attempt("x") == attempt
    assert board.task("x") in copies_of(board.state).open


def test_an_actor_has_no_copies():
    c = Copying(2)
    message = graph("counter", blob=b"")
    message.functions = [m.ACTOR_FUNCTION]
    c.board.send(c.alice, message)
    (maker,) = [ws for ws in c.board.state.workers.values() if ws.processing]
    c.board.finish(maker.peer, "counter", blob=None)
    assert answers(c.wish("counter", n=2), c.alice) == [{"counter": 1}]


def test_a_worker_that_is_asked_again_and_reports_its_copy_twice_has_one():
    c = Copying(2)
    ((peer, _),) = c.to_hold(c.wish("x", n=2)).items()
    assert c.to_hold(c.board.tick(LOOK_S)) == {peer: ["x"]}, "it has not answered"
    ws = c.board.state.workers[peer]
    assert answers(c.report(peer, "x"), c.alice) == [{"x": 2}]
    nbytes = ws.nbytes
    assert c.report(peer, "x") == {}
    assert (c.holders(), ws.nbytes) == (["w0", "w1"], nbytes)
    assert copies_of(c.board.state).open == {}
    c.board.send(c.alice, m.ReleaseKeys(keys=["x"]))
    assert (ws.nbytes, [*c.board.state.tasks]) == (0, [])
    late = m.ReplicasAdded(attempts=[1], keys=["x"])
    assert [x.attempts for x in c.board.send(peer, late).of(peer, m.DropAttempts)] == [[1]]
    c.board.drop_rest()
