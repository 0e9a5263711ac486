"""Handlers of signals wait until a section of the main thread is over."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from weft.client.shell.delayed_signals import delay_handlers, has_room_for_calls, run_delayed
from weft.protocol.host.blocking import on_interrupts_here
from weft.worker.slots.interrupting import SlotGate


class Handled(Exception):
    pass


@pytest.fixture
def handled():
    """The signals whose handlers ran; SIGUSR1 raises and SIGUSR2 does not."""
    numbers: list[int] = []

    def note(number, frame):
        assert frame is not None
        numbers.append(number)

    def raise_it(number, frame):
        note(number, frame)
        raise Handled

    before = signal.signal(signal.SIGUSR1, raise_it), signal.signal(signal.SIGUSR2, note)
    yield numbers
    signal.signal(signal.SIGUSR1, before[0])
    signal.signal(signal.SIGUSR2, before[1])


def raise_signal(number):
    os.kill(os.getpid(), number)


def test_the_gate_of_a_task_stays_closed_where_a_finalizer_has_a_section():
    """It runs in weft's own code, whose thread must not be interrupted after the section."""
    seen = []

    def run():
        gate = SlotGate()
        on_interrupts_here(gate)
        for is_open in (False, True):
            if is_open:
                gate.open()
            delayed = delay_handlers()
            seen.append(gate.is_open)
            run_delayed(delayed)
            seen.append(gate.is_open)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [False, False, False, True]


def test_a_handler_runs_once_after_the_section_and_then_as_usual(handled):
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    delayed = delay_handlers()
    raise_signal(signal.SIGUSR2)
    raise_signal(signal.SIGUSR2)
    assert handled == []
    run_delayed(delayed)
    assert handled == [signal.SIGUSR2]
    raise_signal(signal.SIGUSR2)
    assert handled == [signal.SIGUSR2] * 2
    assert [signal.getsignal(number) for number in signal.valid_signals()] == handlers


def test_the_exception_of_a_handler_is_raised_after_the_section(handled):
    delayed = delay_handlers()
    raise_signal(signal.SIGUSR1)
    assert handled == []
    with pytest.raises(Handled):
        run_delayed(delayed)
    assert handled == [signal.SIGUSR1]


def test_an_interrupt_is_delayed_although_its_handler_is_not_a_python_function():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        delayed = delay_handlers()
        raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            run_delayed(delayed)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_handlers_that_change_between_two_sections_are_found(handled):
    run_delayed(delay_handlers())
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    delayed = delay_handlers()
    raise_signal(signal.SIGUSR1)
    raise_signal(signal.SIGUSR2)
    run_delayed(delayed)
    assert handled == [signal.SIGUSR2]
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN


def test_other_threads_are_left_alone(handled):
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(delay_handlers()))
    thread.start()
    thread.join()
    assert found == [[]]
    run_delayed([])


def test_a_caller_deep_in_a_recursion_has_no_room():
    def ask(depth):
        return ask(depth - 1) if depth else has_room_for_calls()

    assert ask(1)
    assert not ask(400)
