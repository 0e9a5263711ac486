"""The simulated network and the serial interpreter themselves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.protocol.wire.messages import GetData, Heartbeat, KeysData
from weft.protocol.wire.payload import Payload

from .graphs import ALWAYS, MAX_RUNS, Graph, Spec
from .links import Link, Timing, copied
from .plan import Plan
from .world import World


class Recorder:
    """An end of a connection that keeps the messages that it got."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.n_closed = 0

    def on_messages(self, link, messages) -> None:
        assert self.n_closed == 0
        self.heard += [message.request for message in messages]

    def on_closed(self, link) -> None:
        self.n_closed += 1


def connected(seed: int, *, wire: bool) -> tuple[World, Link, Recorder, Recorder]:
    world = World(seed)
    left, right = Recorder(), Recorder()
    timing = Timing(latency=0.001, jitter=0.01, p_stall=0.2, stall=1.0)
    return world, Link(world, timing, (left, right), wire=wire), left, right


def run(world: World) -> None:
    while world._heap:
        world.step()


@pytest.mark.parametrize("wire", [False, True])
@given(seed=st.integers(0, 1000), n=st.integers(0, 30))
def test_a_link_delivers_everything_in_order(wire, seed, n):
    world, link, left, right = connected(seed, wire=wire)
    for request in range(n):
        world.at(world.rng.random(), link.send, 0, [GetData(request=request, keys=["k"])])
        world.at(0.5, link.send, 1, [GetData(request=request, keys=[])])
    order = [args[1][0].request for *_, args in sorted(world._heap) if args[0] == 0]
    run(world)
    assert right.heard == order
    assert left.heard == list(range(n))
    assert left.n_closed == right.n_closed == 0


@pytest.mark.parametrize("wire", [False, True])
@given(seed=st.integers(0, 1000), n=st.integers(0, 30), when=st.floats(0, 3))
def test_a_broken_link_delivers_a_prefix_and_both_ends_are_notified_once(wire, seed, n, when):
    world, link, left, right = connected(seed, wire=wire)
    for request in range(n):
        world.at(0.1 * request, link.send, 0, [GetData(request=request, keys=["k"])])
    world.at(when, link.break_)
    run(world)
    assert right.heard == list(range(len(right.heard)))
    assert left.n_closed == right.n_closed == 1


def test_messages_before_a_close_arrive_and_the_closing_end_gets_no_event():
    world, link, left, right = connected(1, wire=True)
    link.send(0, [GetData(request=1, keys=[])])
    link.close(0)
    link.send(0, [GetData(request=2, keys=[])])
    link.send(1, [GetData(request=3, keys=[])])
    run(world)
    assert right.heard == [1]
    assert left.heard == []
    assert (left.n_closed, right.n_closed) == (0, 1)


def test_heartbeats_are_not_work():
    world, link, *_ = connected(1, wire=False)
    link.send(0, [Heartbeat()])
    assert world.n_busy == 0
    link.send(0, [GetData(request=1, keys=[])])
    assert world.n_busy == 1


def test_a_copy_shares_nothing_that_can_change():
    payload = Payload(b"x", [bytearray(b"abc")])
    message = KeysData(request=1, keys=["a"], results=[payload], missing=[])
    copy = copied(message)
    assert copy == message
    message.keys.append("b")
    payload.buffers[0][0] = 0
    assert copy == KeysData(
        request=1, keys=["a"], results=[Payload(b"x", [bytearray(b"abc")])], missing=[]
    )


@given(seed=st.integers(0, 10_000))
def test_the_serial_interpreter_agrees_with_itself(seed):
    rng = Random(seed)
    plan = Plan.draw(rng)
    graph = Graph(plan, rng)
    assert len({spec.key for spec in graph.specs}) == len(graph.specs)
    for spec in graph.specs:
        assert all(dependency.index < spec.index for dependency in spec.dependencies)
        assert spec.key in spec.ancestors
        if spec.n_raises == ALWAYS:
            assert not spec.can_finish
        if not spec.can_finish:
            assert spec.culprits


@given(seed=st.integers(0, 10_000))
def test_a_task_leads_to_a_bounded_number_of_runs_with_all_that_run_again(seed):
    """All levels are submitted again by a task that raises, or asks for another worker."""
    rng = Random(seed)
    plan = Plan.draw(rng)
    plan.p_calls, plan.p_deep, plan.p_flaky, plan.p_reschedule = 0.4, 0.95, 0.5, 0.3
    for spec in Graph(plan, rng).by_key.values():
        assert expected_runs(spec, plan) <= MAX_RUNS


def expected_runs(spec: Spec, plan: Plan) -> float:
    once = 1 + sum(expected_runs(one, plan) for one in spec.called)
    return once * (1 + min(spec.n_raises, spec.retries)) / (1 - plan.p_reschedule)
