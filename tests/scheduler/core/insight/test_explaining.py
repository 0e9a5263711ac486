"""explaining.py: why a task is where it is, and where its time went."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.scheduler.builders import Board, finished, graph
from tests.scheduler.callers import Caller
from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m
from weft.protocol.wire.messages import coordination as h
from weft.protocol.wire.roles import Role
from weft.scheduler.core.insight import explaining, timings
from weft.scheduler.core.insight.timings import Timings


def explained(board: Board, key: str) -> dict[str, Any]:
    """Ask as a viewer."""
    viewer = board.connect(Role.VIEWER)
    out = board.send(viewer, m.Ask(request=1, name="explanations", arguments={"keys": [key]}))
    (answer,) = out[viewer]
    assert isinstance(answer, m.Answer)
    (found,) = answer.info["explanations"]
    return found


def reasons(board: Board, key: str) -> list[str]:
    return [f"{one} {state}: {text}" for one, state, text in explained(board, key)["steps"]]


def learn(board: Board, client: int, worker: int, us: int = 10_000_000) -> None:
    board.send(client, graph("known"))
    board.finish(worker, "known", us=us)
    board.send(client, m.ReleaseKeys(keys=["known"]))


def test_a_waiting_task_is_followed_to_the_first_that_it_waits_for(board):
    client = board.client()
    board.send(client, graph("a b -> c", "c -> d", resources={"GPU": 2}))
    found = explained(board, "d")
    assert [step[0] for step in found["steps"]] == ["d", "c", "a"]
    assert found["steps"][1][2] == "it needs a (no_worker), b (no_worker)"
    assert found["steps"][2][2] == "the cluster has no workers"
    board.worker("small", resources={"GPU": 1})
    board.worker("none")
    assert explained(board, "d")["details"] == [
        "worker small offers GPU: 1, and 2 is needed",
        "worker none offers GPU: 0, and 2 is needed",
    ]


def test_amounts_of_memory_have_units(board):
    client = board.client()
    board.send(client, graph("a", resources={"memory": 800e9}))
    board.worker("small", resources={"memory": 4 * 2.0**30})
    found = explained(board, "a")
    assert found["details"] == ["worker small offers memory: 4 GiB, and 745 GiB is needed"]
    assert found["steps"][0][2] == "no worker offers memory: 745 GiB (1 worker is connected)"


def test_a_restriction_to_other_workers_is_named(board):
    client = board.client()
    board.worker("here")
    board.send(client, graph("a", workers=["there", "elsewhere"]))
    assert explained(board, "a")["details"] == ["worker here is not elsewhere or there"]


def test_a_queued_task_has_a_place_and_each_worker_a_reason(board):
    client, other, worker = board.client(), board.client("bob"), board.worker("w")
    learn(board, client, worker)
    board.send(client, graph("a"))
    board.tick(1.0)
    board.send(client, graph("b c d"))
    board.send(client, graph("first", priority=5))
    board.send(other, graph("x y"))
    details = explained(board, "d")["details"]
    assert details[0] == (
        "before it in the queue: 2 of the same client, 1 of a higher priority=; it takes turns "
        "with 2 of other clients"
    )
    assert details[1] == "worker w: it has 1 thread for 1 task, and none has ended for 1 s"


def test_a_resource_names_the_tasks_that_hold_it(board):
    client = board.client()
    worker = board.worker("w", 4, resources={"GPU": 2})
    board.send(client, graph("a", resources={"GPU": 1}))
    board.send(client, graph("b", resources={"GPU": 2}))
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("a")], keys=[["b"]]))
    assert explained(board, "b")["details"][1] == (
        "worker w: GPU: 1 of 2 is free, it needs 2; held by a (processing), of which a "
        "(processing) waits for something"
    )
    assert [step[0] for step in explained(board, "a")["steps"]] == ["a", "b"]


def test_a_task_that_waits_for_a_resource_at_a_worker_names_the_others_there(board):
    client = board.client()
    worker = board.worker("w", 4, resources={"GPU": 1}, facts={QUEUES_RESOURCES: True})
    board.send(client, graph("a b", resources={"GPU": 1}))
    assert explained(board, "a")["steps"][0][2].startswith(
        "worker w runs it, or fetches its inputs"
    )
    board.finish(worker, "a", us=2000)
    board.send(client, graph("c d", resources={"GPU": 1}, blob=None))
    found = explained(board, "d")
    assert found["steps"][0][2] == "worker w runs it, or lets it wait for GPU"
    assert found["details"] == [
        "worker w: GPU: 0 of 1 is free, it needs 1; held or waited for by b (processing), "
        "c (processing), d (processing)"
    ]
    board.drop_rest()


def test_a_task_that_waits_for_a_lock_names_the_holder_and_what_that_does(board):
    alice = Caller(board, "alice")
    worker = board.worker("w", 4)
    board.send(alice.peer, graph("f g"))
    first, second = (h.owner_of_attempt(board.attempt(key)) for key in ("f", "g"))
    alice.acquire(owner=first)
    alice.acquire("2", owner=second, timeout=50.0)
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("g")]))
    board.tick(2.0)
    found = explained(board, "g")
    assert found["steps"][0][2] == (
        "it has begun on worker w, and waits for lock 'x', for at most 50 s, held by task 'f'"
    )
    assert found["steps"][1][0] == "f"
    assert found["details"] == ["the wait has lasted 2 s, and 0 calls are before it"]
    assert found["running_at"] == ["id of w", "w"]
    board.finish(worker, "f")
    assert explained(board, "g")["steps"][0][2].endswith("has ended without releasing it")


def test_a_task_that_waits_for_a_queue_names_it(board):
    alice = Caller(board, "alice")
    worker = board.worker("w")
    board.send(alice.peer, graph("f"))
    alice.get(owner=h.owner_of_attempt(board.attempt("f")))
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("f")]))
    (text,) = reasons(board, "f")
    assert text == "f processing: it has begun on worker w, and waits in get of queue 'x'"
    assert explained(board, "f")["running_at"] == []


def test_a_cycle_is_explained_and_ends(board):
    client = board.client()
    worker = board.worker("w", 4)
    board.send(client, graph("f g"))
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("f")], keys=[["g"]]))
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("g")], keys=[["f"]]))
    board.tick(5.0)
    found = explained(board, "f")
    assert [step[0] for step in found["steps"]] == ["f", "g"]
    assert "task 'f' would wait for ever" in found["details"][-1]


@pytest.mark.parametrize("keys", [[["done"]], [["unknown"]], []])
def test_a_task_whose_wait_is_over_or_not_known(board, keys):
    client = board.client()
    worker = board.worker("w", 2)
    board.send(client, graph("f done"))
    board.finish(worker, "done")
    board.send(worker, m.AttemptsBlocked(attempts=[board.attempt("f")], keys=keys))
    (text,) = reasons(board, "f")
    assert text.startswith("f processing: it has begun on worker w, and waits for ")


def test_a_task_that_pauses_before_a_retry_has_the_time_that_is_left(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a", retries=2, pauses=[4.0, 2.0, 60.0, 0.0]))
    board.raise_(worker, "a")
    board.tick(1.0)
    (text,) = reasons(board, "a")
    assert text.startswith("a no_worker: it has raised, taken too long, used too much")
    assert text.endswith("runs again within 3 s")


def test_a_long_chain_is_followed_for_some_steps(board):
    client = board.client()
    names = [f"t{i}" for i in range(20)]
    board.send(client, graph(*(f"{a} -> {b}" for a, b in itertools.pairwise(names))))
    assert len(explained(board, "t19")["steps"]) == explaining.MAX_STEPS


# --- Times ----------------------------------------------------------------------------------------


def test_the_parts_of_the_time_of_a_finished_task(board):
    client = board.client()
    board.send(client, graph("a -> b"))
    board.tick(1.0)
    worker = board.worker("w")
    board.tick(2.0)
    report = finished([board.attempt("a")], us=1_500_000)
    report.queued_us, report.fetched_us = [300_000], [100_000]
    board.send(worker, report)
    board.tick(4.0)
    assert explained(board, "b")["times"] == pytest.approx(
        {
            "since it was submitted": 7.0,
            "before it was ready: inputs, earlier attempts": 1.0,
            "at the worker": 6.0,
        }
    )
    board.send(client, m.WantKeys(keys=["a"]))
    assert explained(board, "a")["times"] == pytest.approx(
        {
            "since it was submitted": 7.0,
            "in the queue": 1.0,
            "at the worker before it began": 0.3,
            "of that, until its inputs were fetched": 0.1,
            "run": 1.5,
            "since its end was reported": 4.0,
        }
    )


def test_the_time_of_a_failed_task(board):
    client, worker = board.client(), board.worker("w")
    board.send(client, graph("a"))
    board.raise_(worker, "a")
    found = explained(board, "a")
    assert found["times"]["run"] == pytest.approx(0.001)
    assert found["steps"][0][2].startswith("exception: ")


def test_reports_are_remembered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(timings, "MAX_ATTEMPTS", 4)
    ring = Timings()
    for i in range(5):
        ring.note(float(i), "w", finished([2 * i, 2 * i + 1], us=i))
    assert ring.n == 4
    assert ring.of(5) is None
    found = ring.of(9)
    assert found is not None
    assert (found.reported, found.duration_us, found.queued_us) == (4.0, 4, 0)
    ring.note(9.0, "w", finished(range(100, 110)))
    assert ring.n == 10  # one report is kept, however long


# --- The call of a task ---------------------------------------------------------------------------


def call_of(board: Board, peer: int, *keys: str) -> Any:
    (answer,) = board.send(peer, m.Ask(request=1, name="call", arguments={"keys": [*keys]}))[peer]
    return answer


def test_the_call_of_a_task_is_that_of_the_one_that_failed(board):
    client, worker = board.client(), board.worker("w", 2)
    board.send(client, graph("a", "x a -> b", "b -> c"))
    board.finish(worker, "a", "x")
    answer = call_of(board, client, "c")
    assert (answer.info["key"], answer.info["inputs"]) == ("c", ["b"])
    board.raise_(worker, "b")
    answer = call_of(board, client, "c")
    assert answer.info == {"key": "b", "function": "inc", "inputs": ["x", "a"]}
    assert answer.blobs == [b"pickle", b"args of b"]


def test_a_call_that_there_is_not_and_one_that_may_not_be_sent(board):
    client = board.client()
    for keys in ((), ("a", "b"), ("nothing",)):
        assert isinstance(call_of(board, client, *keys), m.AskFailed)
    board.send(client, graph("data", blob=b""))
    assert "is data" in call_of(board, client, "data").text
    assert isinstance(call_of(board, board.connect(Role.VIEWER), "data"), m.Denied)
