"""Attempts of an earlier scheduler that wait for inputs which their tasks do not have any more.

Its client has got the result meanwhile, and submits a task that returns it. The worker's attempt
was assigned to compute it once more, because the last copy was lost, and waits for the inputs of
the call. Both cores are here, and pass each other what they send.
"""

from __future__ import annotations

import pytest

from tests.scheduler.core.recovery.recovery_kit import BEFORE
from tests.worker.builders import Hands, assign
from weft.protocol.wire import messages as m
from weft.scheduler.core.recovery.barrier import QUIET_S
from weft.worker.core.events import CopiesNotFetched, SchedulerLost, SessionOpened

from ...builders import Board, graph

GONE = "tcp://gone"


class Pair:
    """A worker that comes back to a new scheduler, with an attempt that waits for "y"."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.hands = Hands()
        self.hands.receive(assign("3 x <- y", located=[("y", 2, 8, [GONE])]))
        self.peer = 0
        self._n_sent = 0

    def lose_input(self) -> None:
        """Let the request to the holder of "y" fail."""
        (request,) = self.hands.fetches
        del self.hands.fetches[request]
        self.hands.handle(CopiesNotFetched(GONE, request))

    def come_back(self) -> None:
        self.hands.handle(SchedulerLost())
        self._n_sent = len(self.hands.messages)
        self.peer = self.board.worker("me", last_epoch=BEFORE)
        self.hands.handle(SessionOpened(is_first=False))
        self.exchange()

    def exchange(self) -> None:
        """Pass on what both have sent, until neither has anything to send."""
        messages = self.hands.messages
        while True:
            known = self.hands.state.messages
            heard = [x for x in self.board.out.get(self.peer, []) if type(x) in known]
            self.hands.receive(*heard)
            sent, self._n_sent = messages[self._n_sent :], len(messages)
            self.board.send(self.peer, *sent or [m.Heartbeat()])
            if not (sent or heard):
                return

    def pass_time(self, seconds: float) -> None:
        while seconds > 0:
            self.board.tick(min(seconds, 2.0))
            self.exchange()
            seconds -= 2.0

    def finish_all(self) -> None:
        self.hands.run_all()
        self.exchange()


@pytest.fixture
def pair(new: Board) -> Pair:
    return Pair(new)


@pytest.mark.parametrize("also", ["", "y"], ids=["input unknown", "input queued"])
@pytest.mark.parametrize("first", ["client", "worker"])
def test_an_attempt_that_waits_for_what_its_task_does_not_read_is_given_back(pair, first, also):
    board = pair.board
    pair.hands.handle(SchedulerLost())
    pair.lose_input()
    if first == "worker":
        pair.come_back()
    client = board.client(last_epoch=BEFORE)
    board.send(client, graph("x -> t"), *([graph(also)] if also else []), m.Resubmitted())
    if first == "client":
        pair.come_back()
    pair.pass_time(QUIET_S + 1.0)
    assert not board.state.awaits_peers
    assert board.state.awaits_owners  # it does not wait for the end of that
    pair.finish_all()
    assert board.states("x", "t") == ["memory", "memory"]
    board.drop_rest()


@pytest.mark.parametrize("ends", [False, True], ids=["in the lease", "after the lease"])
def test_an_attempt_whose_input_is_lost_later_is_given_back_too(pair, ends):
    board = pair.board
    client = board.client(last_epoch=BEFORE)
    board.send(client, graph("x -> t"), m.Resubmitted())
    pair.come_back()
    pair.pass_time(QUIET_S + 1.0)
    if ends:
        pair.pass_time(board.state.settings.client_lease_s + 2.0)
    assert board.state.awaits_owners is not ends
    assert board.attempt("x") == 3
    pair.lose_input()
    pair.exchange()
    pair.finish_all()
    assert board.states("x", "t") == ["memory", "memory"]
    board.drop_rest()


def test_an_attempt_waits_while_another_one_there_may_turn_out_to_read_its_input(pair):
    """A client may come back that has the call of "z", of which nobody knows what it reads."""
    board = pair.board
    pair.hands.receive(assign("4 z <- y"))
    pair.hands.handle(SchedulerLost())
    pair.lose_input()
    client = board.client(last_epoch=BEFORE)
    board.send(client, graph("x -> t"), m.Resubmitted())
    pair.come_back()
    pair.pass_time(QUIET_S + 1.0)
    assert (board.attempt("x"), list(pair.hands.state.waiting)) == (3, [3, 4])
    other = board.client("bob", last_epoch=BEFORE)
    board.send(other, graph("y -> z"))
    pair.exchange()
    pair.finish_all()
    assert board.states("x", "t", "y", "z") == ["memory"] * 4
    board.drop_rest()


@pytest.mark.parametrize("is_there", [True, False], ids=["input there", "input queued"])
def test_an_unstarted_attempt_that_gets_its_recipe_gets_its_input_or_is_given_back(pair, is_there):
    """It went on without a recipe, and nobody knew that it waits."""
    board = pair.board
    pair.hands.handle(SchedulerLost())
    pair.lose_input()
    bob = board.client("bob", last_epoch=BEFORE)
    board.send(bob, m.WantKeys(keys=["x"]), m.Resubmitted())
    pair.come_back()
    pair.pass_time(QUIET_S + 1.0)
    other = board.worker("other")
    client = board.client(last_epoch=BEFORE)
    if is_there:
        board.send(client, graph("y"))
        board.finish(other, "y")
        pair.exchange()
    assert (board.where("x"), board.attempt("x")) == (pair.peer, 3)
    board.send(client, graph(":y -> x") if is_there else graph("y -> x"))
    pair.exchange()
    if is_there:
        (fetch,) = pair.hands.fetches.values()
        assert (fetch.holder, fetch.keys) == ("tcp://other", ["y"])
        assert (board.where("x"), board.attempt("x")) == (pair.peer, 3)
    else:
        assert not pair.hands.state.waiting
        assert board.states("y", "x") == ["processing", "waiting"]
    board.drop_rest()
