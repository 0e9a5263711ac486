"""Traced tasks have a function of their own; all that is measured of it is that of its original."""

from __future__ import annotations

from tests.worker.builders import Hands, assign
from weft.worker.core.features.traces import TracedFunction

TRACE = ["traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]


def traced(*lines: str):
    message = assign(*lines)
    message.traces = [TRACE, *[[] for _ in lines[1:]]]
    return message


def test_a_traced_attempt_has_a_function_of_its_own():
    worker = Hands()
    worker.receive(traced("1 a", "2 b"))
    first, second = (worker.state.by_attempt[attempt].function for attempt in (1, 2))
    assert isinstance(first, TracedFunction)
    assert not isinstance(second, TracedFunction)
    assert first.of is second is worker.state.functions[second.id]
    assert (first.trace, first.task) == (TRACE, ("a", 1))


def test_the_duration_of_a_traced_task_is_that_of_its_function():
    worker = Hands()
    worker.receive(traced("1 a", "2 b"))
    function = worker.state.by_attempt[1].function
    function.estimate_us = 50.0
    assert worker.state.by_attempt[2].function.estimate_us == function.estimate_us == 50.0


def test_a_trace_that_is_sent_again_changes_nothing():
    worker = Hands()
    message = traced("1 a")
    worker.receive(message)
    function = worker.state.by_attempt[1].function
    worker.receive(message)
    assert worker.state.by_attempt[1].function is function
