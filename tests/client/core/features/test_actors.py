"""Actors, which must not be made again."""

from __future__ import annotations

import pytest

from tests.client.core.core_kit import Bench, Listener
from weft.client.core.events import ClientTick, Disconnected, Notify, ResultsFetched, Want, Watch
from weft.client.core.features import FEATURES
from weft.client.core.state import ClientState
from weft.client.core.tasks import FunctionRecord, FutureState, TaskColumns
from weft.protocol.values.constants import Constants
from weft.protocol.wire.messages import (
    ACTOR_FUNCTION,
    KeysInMemory,
    KeysUnknown,
    SubmitTasks,
    WantKeys,
)
from weft.protocol.wire.options import NO_OPTIONS


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_actor_that_the_scheduler_has_dropped_is_lost_and_not_made_again(bench, is_answered):
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    bench.do(bench.task("made", function=maker), bench.task("pending", function=maker))
    bench.hear(KeysInMemory(keys=["made"], nbytes=[1], holder_of=[0], holders=["tcp://w:1"]))
    bench.sent(Disconnected())
    bench.connect()
    if is_answered:
        sent, _ = bench.hear(KeysUnknown(keys=["made", "pending"]))
    else:
        (sent,) = [sent for _ in range(100) if (sent := bench.sent(ClientTick()))]
    assert bench.state("made").failure[:2] == ["actor-lost", "made"]
    (message,) = sent
    assert (type(message), message.keys) == (SubmitTasks, ["pending"])


def test_a_task_of_a_graph_that_also_makes_an_actor_is_not_lost_as_one(bench):
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    states = [FutureState("made"), FutureState("task")]
    bench.table.add(states)
    columns = TaskColumns(
        states, maker, [b"1", b"2"], [], NO_OPTIONS,
        functions=[maker, bench.function], function_of=[0, 1],
    )  # fmt: skip
    bench.do(columns)
    bench.hear(
        KeysInMemory(keys=["made", "task"], nbytes=[1, 1], holder_of=[0, 0], holders=["tcp://w:1"])
    )
    bench.sent(Disconnected())
    bench.connect()
    sent, _ = bench.hear(KeysUnknown(keys=["made", "task"]))
    assert bench.state("made").failure[:2] == ["actor-lost", "made"]
    assert bench.state("task").failure is None
    (message,) = sent
    assert (type(message), message.keys) == (SubmitTasks, ["task"])


def test_actors_are_submitted_to_a_new_scheduler_as_made(bench):
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    bench.do(bench.task("made", function=maker), bench.task("pending", function=maker))
    bench.hear(KeysInMemory(keys=["made"], nbytes=[1], holder_of=[0], holders=["tcp://w:1"]))
    bench.sent(Disconnected())
    (message,) = bench.connect(epoch=2).of(SubmitTasks)
    options = [message.options[i] for i in message.option_of]
    assert (message.keys, options) == (["made", "pending"], [{"made": True}, {}])


def in_memory(attempt, holder="tcp://w:1"):
    """Make the message that the actor `made` is at a holder, made by this attempt."""
    return KeysInMemory(
        keys=["made"], nbytes=[1], holder_of=[0], holders=[holder], attempts=[attempt]
    )


def bench_with_an_actor(attempt):
    """Return a client that knows of an actor made by this attempt, and has lost its connection."""
    bench = Bench()
    bench.connect()
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    bench.do(bench.task("made", function=maker))
    bench.hear(in_memory(attempt))
    bench.sent(Disconnected())
    return bench


def test_a_client_that_is_back_asks_for_its_actor_by_the_attempt_that_made_it():
    bench = bench_with_an_actor(7)
    (message,) = bench.connect().of(WantKeys)
    assert (message.keys, message.attempts) == (["made"], [7])
    bench.hear(in_memory(7))
    assert bench.state("made").failure is None


def test_an_actor_of_another_attempt_is_not_taken_for_the_one_that_a_client_had():
    bench = bench_with_an_actor(7)
    bench.connect()
    bench.hear(in_memory(8))
    assert bench.state("made").failure[:2] == ["actor-lost", "made"]


def test_an_actor_that_is_unknown_while_its_handle_is_missing_is_not_made_again(bench):
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    task = bench.task("made", function=maker)
    watcher = Listener(wants_data=True)
    bench.do(task, Watch(watcher, [task.state]))
    _, (fetch,) = bench.hear(in_memory(7))
    bench.handle(ResultsFetched(fetch.request, [], []))
    assert bench.state("made").status == "pending"
    bench.sent(Disconnected())
    bench.connect()
    actions = bench.acted_on(KeysUnknown(keys=["made"]))
    assert actions == [Notify(watcher, [task.state])]
    assert bench.state("made").failure[:2] == ["actor-lost", "made"]


def test_an_actor_that_was_released_leaves_no_attempt_behind(bench):
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    task = bench.task("made", function=maker)
    bench.do(task)
    bench.hear(in_memory(7))
    bench.do(task.state)
    assert not bench.core.made


@pytest.mark.parametrize("is_released", [False, True])
def test_the_handle_of_the_actor_of_another_client_is_no_recipe(is_released):
    """A result that is here is submitted again as itself; an actor would be replaced by that."""
    bench = Bench()
    bench.core = ClientState(bench.table, FEATURES, constants=Constants())
    bench.connect()
    made = bench.table.find_or_make("made")
    bench.do(Want([made]), Watch(Listener(wants_data=True), [made]))
    _, (fetch,) = bench.hear(in_memory(7))
    bench.handle(ResultsFetched(fetch.request, ["made"], [b"<handle>" * 200]))
    bench.do(bench.task("reader", "made"))
    if is_released:
        bench.do(made)
    bench.sent(Disconnected())
    sent = bench.connect(epoch=2)
    assert [message.keys for message in sent.of(SubmitTasks)] == [["reader"]]
    wanted = [(message.keys, message.attempts) for message in sent.of(WantKeys)]
    assert wanted == ([] if is_released else [(["made"], [7])])
