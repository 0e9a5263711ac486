"""The rows of TRANSITIONS that lead to erred name each cause of such a move, and no other."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.session import MISSED_HEARTBEATS
from weft.scheduler.core.moves import transitions
from weft.scheduler.core.moves.transitions import TRANSITIONS
from weft.scheduler.core.records.tasks import ERRED
from weft.scheduler.core.recovery.barrier import QUIET_S
from weft.scheduler.core.recovery.recipes import RESUBMIT_S

from ...builders import Board, graph

#: {function that calls `err`: why it fails the task}
CAUSES = {
    "on_erred": "raised",
    "_fail": "took too long",
    "blame": "too many workers died under it",
    "give_up_unreachable": "its inputs are at workers that cannot reach each other",
    "_fail_unlinked": "an input is unknown or needs this task",
    "cancel_dependents": "an input was cancelled",
    "merge_failed": "a worker that came back has its failure",
    "forget_unknown": "no peer has come back with it",
    "_fail_made": "its result is not made again, and has not come back",
    "fail_lost": "its result was unique, and its worker is lost",
    "_give_way": "it gave way in a full memory",
    "_give_up_without_recipe": "its only copy was lost, and no client has submitted it",
}


class Deadly(Board):
    """A board with a client and a supervisor, on which one death is too many."""

    def __init__(self) -> None:
        super().__init__(allowed_deaths=0)
        self.alice = self.client("alice")
        self.boss = self.supervisor("sup")


@pytest.fixture
def found(monkeypatch) -> set[tuple[str, str]]:
    pairs: set[tuple[str, str]] = set()
    move = transitions.move

    def noted(state: Any, task: Any, finish: Any) -> None:
        if finish == ERRED:
            err = sys._getframe(1)
            caller = err.f_back
            assert err.f_code.co_name == "err"
            assert caller is not None
            if err.f_locals["keys"] or err.f_locals["inherited"]:
                cause = "an input failed"
            elif caller.f_code.co_name == "activate":
                cause = "it was submitted without its inputs"
            else:
                cause = CAUSES[caller.f_code.co_name]
            pairs.add((task.state, cause))
        move(state, task, finish)

    monkeypatch.setattr(transitions, "move", noted)
    return pairs


def raise_with_waiting_and_ahead() -> None:
    board = Deadly()
    worker = board.worker(nthreads=2)
    board.send(board.alice, graph("a -> ahead", "b -> ahead2"), graph("a2", function="g"))
    board.send(board.alice, graph(":a -> waits", resources={"r": 1.0}))
    assert board.states("ahead", "waits") == ["processing", "waiting"]
    board.raise_(worker, "a")
    board.send(board.alice, graph(":a -> late"))


def take_too_long() -> None:
    board = Deadly()
    worker = board.worker()
    board.send(board.alice, graph("a", timeout_us=1))
    board.send(worker, m.AttemptsOverdue(attempts=[board.attempt("a")], timeouts_us=[1]))


def cancel_inputs() -> None:
    board = Deadly()
    board.worker()
    board.send(board.alice, graph("a -> ahead"))
    board.send(board.alice, graph(":a -> waits", resources={"r": 1.0}))
    board.send(board.alice, m.CancelKeys(keys=["a"], force=True, reason=""))


def submit_without_inputs() -> None:
    board = Deadly()
    board.send(board.alice, graph(":gone -> t", "t -> below"))
    board.send(board.alice, m.ReleaseKeys(keys=["t"]))
    assert board.states("t", "below") == ["released", "erred"]
    board.send(board.alice, graph(":t -> below"))


def die_while_placed_again(state: str) -> None:
    """A task is in `state` when the death under it is reported."""
    board = Deadly()
    resources = {"r": 1.0}
    one = board.worker("one", supervisor_id="sup", resources=resources)
    if state == "waiting":
        board.send(board.alice, graph("in"))
        board.finish(one, "in", blob=None)
    board.send(board.alice, graph(":in -> t" if state == "waiting" else "t", resources=resources))
    if state == "processing":
        board.worker("two", resources=resources)
    elif state == "queued":
        two = board.worker("two", resources=resources)
        board.send(board.alice, graph("other", resources=resources))
        assert board.where("other") == two
    attempt = board.attempt("t")
    board.close(one)
    assert board.states("t") == [state]
    exited = m.WorkerExited(worker_id="id of one", reason="SIGKILL", running=[attempt])
    board.send(board.boss, exited)
    assert board.states("t") == ["erred"]


def keep_apart(state: str) -> None:
    """Task t may run on "two" only, and needs data that only "one" has."""
    board = Deadly()
    one, two, three = board.worker("one"), board.worker("two"), board.worker("three")
    board.send(board.alice, graph("in", workers=["one"]), graph("x", workers=["three"]))
    board.finish(one, "in", blob=None)
    board.finish(three, "x", blob=None)
    board.send(board.alice, graph(":in :x -> t", workers=["two"]))
    start = board.now
    while board.states("t") != ["erred"]:
        is_patient = board.now - start <= board.state.settings.heartbeat_s * (MISSED_HEARTBEATS + 1)
        while board.states("t") == ["processing"]:
            attempt = board.attempt("t")
            if state == "waiting" and not is_patient:
                board.close(three)  # its other input is lost as well
            unreachable = m.KeysMissing(keys=["in"], holder="tcp://one", unreachable=True)
            board.send(two, unreachable, m.AttemptsEnded(attempts=[attempt]))
        for peer in (one, two, three):
            board.send(peer, m.Heartbeat())
        board.tick(2.0)
        assert board.now - start < 1000


def come_back_with_a_failure(state: str) -> None:
    """Let a worker come back with the failure of a task that is in this state."""
    board = Board()
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client(last_epoch=5)
    if state != "no_worker":
        board.come_back("other", last_epoch=5)
    if state == "waiting":
        board.send(client, graph("in -> t"))
    else:
        board.send(client, graph("t", workers=["nowhere"] if state == "no_worker" else []))
    assert board.states("t") == [state]
    board.come_back("w", last_epoch=5, failed={"t": 9})
    assert board.states("t") == ["erred"]


def come_back_without() -> None:
    board = Board()
    client = board.client(last_epoch=5)
    board.send(client, m.WantKeys(keys=["t"]), graph(":t -> u"))
    assert board.states("t", "u") == ["no_worker", "waiting"]
    board.pass_time(QUIET_S)
    assert board.states("t", "u") == ["released", "erred"]


def lose_without_recipe() -> None:
    board = Board()
    board.state.first_attempt = board.state.next_attempt = 100
    client = board.client(last_epoch=5)
    worker = board.come_back("w", last_epoch=5, kept={"t": 1})
    board.send(client, m.WantKeys(keys=["t"]))
    board.pass_time(QUIET_S)
    assert board.states("t") == ["memory"]
    board.send(client, graph(":t -> u", workers=["nowhere"]))
    board.close(worker)
    board.pass_time(RESUBMIT_S + 1)
    assert board.states("u") == ["erred"]


def lose_an_actor() -> None:
    board = Board()
    client, worker = board.client(), board.worker()
    message = graph("a")
    message.functions = [m.ACTOR_FUNCTION]
    board.send(client, message)
    board.finish(worker, "a", blob=None, nbytes=1 << 20)
    board.close(worker)
    assert board.states("a") == ["erred"]


def miss_an_actor(state: str) -> None:
    board = Board()
    client = board.client()
    if state != "no_worker":
        board.worker()
    board.send(client, graph("x"))
    message = graph(
        ":x -> a" if state == "waiting" else "a", made=True, delivered=state == "released"
    )
    message.functions = [m.ACTOR_FUNCTION]
    board.send(client, message)
    assert board.states("a") == ["erred"]


def give_way_to_kills(state: str) -> None:
    """Three workers are killed, each with a result; the newer ones are in `state` then."""
    board = Deadly()
    resources = {"r": 1.0}
    options = {"supervisor_id": "sup", "memory_limit": 400_000_000}
    workers = [board.worker(f"w{i}", resources=resources, **options) for i in range(3)]
    if state == "waiting":
        board.send(board.alice, graph("in"))
        board.finish(workers[0], "in")
    keys = ["a", "b", "c"]
    rows = [f":in -> {key}" for key in keys] if state == "waiting" else keys
    board.send(board.alice, graph(*rows, resources=resources), m.ReleaseKeys(keys=["in"]))
    for key in keys:
        peer = board.where(key)
        assert peer is not None
        board.finish(peer, key, nbytes=300_000_000, blob=None)
    if state in ("queued", "processing"):
        board.worker("other", resources={"r": 9.0})
    if state == "queued":
        board.send(board.alice, graph("other", resources={"r": 9.0}))
    for i, peer in enumerate(workers):
        reason = "memory limit: 0.39 of 0.37 GiB, killed by the supervisor"
        exited = m.WorkerExited(worker_id=f"id of w{i}", reason=reason, running=[])
        board.send(board.boss, exited)
        board.close(peer)
    states = board.states(*keys)
    assert sorted(states) == sorted([state, "erred", "erred"])


def give_way_in_memory() -> None:
    """A result of a client gives way to what another one wants; two tasks were to read it."""
    board = Deadly()
    bob = board.client("bob")
    resources = {"r": 1.0}
    worker = board.worker("w", nthreads=2, memory_limit=400_000_000, resources=resources)
    board.send(board.alice, graph("a", function="make"))
    board.finish(worker, "a", nbytes=330_000_000, blob=None)
    board.send(board.alice, graph("holds", resources=resources))
    board.send(board.alice, graph(":a -> queued", function="read", resources=resources))
    board.send(board.alice, graph(":a -> aside", function="read", workers=["nowhere"]))
    board.send(bob, graph("b", function="make"))
    assert board.states("queued", "aside", "b") == ["queued", "no_worker", "no_worker"]
    board.tick(10.0)
    assert board.states("a", "queued", "aside") == ["erred"] * 3
    assert board.where("b") == worker


def give_way_under_an_index() -> None:
    """A result gives way of which an index in memory says where its parts are."""
    board = Deadly()
    bob = board.client("bob")
    worker = board.worker("w", memory_limit=400_000_000)
    board.send(board.alice, graph("a", function="make"))
    board.finish(worker, "a", nbytes=330_000_000, blob=None)
    index = graph(":a -> index", part_index=True)
    index.functions = [m.INDEX_FUNCTION]
    board.send(board.alice, index, graph(":index -> reader", workers=["nowhere"]))
    board.send(board.alice, m.ReleaseKeys(keys=["index"]))
    board.finish(worker, "index", nbytes=100, blob=None)
    assert board.states("index", "reader") == ["memory", "no_worker"]
    board.send(bob, graph("b", function="make"))
    board.tick(10.0)
    assert board.states("a", "index", "reader") == ["erred", "released", "erred"]


def test_the_table_names_each_cause_of_a_failure(found):
    raise_with_waiting_and_ahead()
    take_too_long()
    cancel_inputs()
    submit_without_inputs()
    for state in ("waiting", "queued", "no_worker", "processing"):
        die_while_placed_again(state)
    keep_apart("no_worker")
    keep_apart("waiting")
    for state in ("waiting", "queued", "no_worker"):
        come_back_with_a_failure(state)
    come_back_without()
    lose_without_recipe()
    lose_an_actor()
    for state in ("waiting", "queued", "no_worker", "processing"):
        give_way_to_kills(state)
    give_way_in_memory()
    give_way_under_an_index()
    for state in ("released", "waiting", "queued", "no_worker"):
        miss_an_actor(state)
    listed = {
        (start, cause)
        for (start, finish), why in TRANSITIONS.items()
        if finish == ERRED
        for cause in why.split("; ")
    }
    assert found == listed
