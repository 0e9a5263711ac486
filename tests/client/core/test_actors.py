"""Actors, which must not be made again."""

from __future__ import annotations

import pytest

from weft.client.core.events import ClientTick, Disconnected
from weft.client.core.tasks import FunctionRecord, FutureState, TaskColumns
from weft.protocol.wire.messages import (
    ACTOR_FUNCTION,
    KeysInMemory,
    KeysUnknown,
    SubmitTasks,
)
from weft.protocol.wire.options import NO_OPTIONS

from .test_state import Bench


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_actor_that_the_scheduler_has_dropped_is_lost_and_not_made_again(is_answered):
    bench = Bench()
    bench.connect()
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    bench.do(bench.task("made", function=maker), bench.task("pending", function=maker))
    bench.hear(KeysInMemory(keys=["made"], nbytes=[1], holder_of=[0], holders=["tcp://w:1"]))
    bench.sent(Disconnected())
    bench.connect()
    if is_answered:
        sent, _ = bench.hear(KeysUnknown(keys=["made", "pending"]))
    else:
        sent = [message for _ in range(100) for message in bench.sent(ClientTick())]
    assert bench.state("made").failure[:2] == ["actor-lost", "made"]
    assert [m.keys for m in sent if isinstance(m, SubmitTasks)] == [["pending"]]


def test_a_task_of_a_graph_that_also_makes_an_actor_is_not_lost_as_one():
    bench = Bench()
    bench.connect()
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
    assert [m.keys for m in sent if isinstance(m, SubmitTasks)] == [["task"]]


def test_actors_are_submitted_to_a_new_scheduler_as_made():
    bench = Bench()
    bench.connect()
    maker = FunctionRecord(ACTOR_FUNCTION, b"<make>", "actor")
    bench.do(bench.task("made", function=maker), bench.task("pending", function=maker))
    bench.hear(KeysInMemory(keys=["made"], nbytes=[1], holder_of=[0], holders=["tcp://w:1"]))
    bench.sent(Disconnected())
    (message,) = [x for x in bench.connect(epoch=2) if isinstance(x, SubmitTasks)]
    options = [message.options[i] for i in message.option_of]
    assert (message.keys, options) == (["made", "pending"], [{"made": True}, {}])
