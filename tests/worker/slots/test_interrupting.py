"""interrupting.py: where a thread may be interrupted, and what an exception leaves."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from weft.protocol.wire.failure import RESCHEDULE
from weft.worker.core.events import ChunkDone
from weft.worker.core.features import FEATURES
from weft.worker.core.state import WorkerState
from weft.worker.data.store import Store
from weft.worker.slots.interrupting import Interrupts, SlotGate, TaskInterrupted, mend


class Thread:
    """A thread with a gate, which runs `function(gate)`."""

    def __init__(self, function):
        self.gate = SlotGate()
        self.context = SimpleNamespace(
            attempt=7,
            here=SimpleNamespace(wake=None, stand_in=None),
            seat=SimpleNamespace(slot=0),
        )
        self.ended = None
        self.thread = threading.Thread(target=self._run, args=(function,))
        self.thread.start()

    def _run(self, function):
        try:
            function(self.gate)
        except TaskInterrupted as error:
            self.ended = error

    def interrupt(self, attempt=7):
        return self.gate.interrupt(self.thread.ident, self.context, attempt)


class Timers:
    """Counts what an event loop is asked to do later."""

    n = 0

    def call_later(self, seconds, action, *args):
        self.n += 1


def test_an_open_gate_lets_an_exception_through():
    opened = threading.Event()

    def run(gate):
        gate.open()
        opened.set()
        while True:
            sum(range(10))

    thread = Thread(run)
    opened.wait(60)
    assert not thread.interrupt(attempt=8)  # another task runs
    assert thread.interrupt()
    thread.thread.join(60)
    assert isinstance(thread.ended, TaskInterrupted)


def test_a_closed_gate_lets_none_through():
    closed, go_on = threading.Event(), threading.Event()

    def run(gate):
        gate.open()
        gate.close()
        closed.set()
        go_on.wait(60)

    thread = Thread(run)
    closed.wait(60)
    assert not thread.interrupt()
    go_on.set()
    thread.thread.join(60)
    assert thread.ended is None


def test_an_exception_that_a_task_swallows_has_no_effect_behind_its_gate():
    opened, passed = threading.Event(), []

    def run(gate):
        gate.open()
        try:
            opened.set()
            while True:
                sum(range(10))
        except TaskInterrupted:
            pass
        gate.close()
        passed.extend(str(i) for i in range(1000))

    thread = Thread(run)
    opened.wait(60)
    assert thread.interrupt()
    thread.thread.join(60)
    assert thread.ended is None
    assert len(passed) == 1000
    assert not thread.gate.was_hit  # else that of the next task would be taken for a mistake


def test_an_import_is_not_interrupted():
    """Its lock would be held for ever, and each later import of the module would wait for it."""
    importing, done = threading.Event(), threading.Event()
    names = {"importing": importing, "done": done}
    text = "importing.set()\nwhile not done.is_set():\n    done.wait(0.001)"
    code = compile(text, "<frozen importlib._bootstrap>", "exec")

    def run(gate):
        gate.open()
        exec(code, names)
        gate.close()

    thread = Thread(run)
    importing.wait(60)
    assert not thread.interrupt()
    done.set()
    thread.thread.join(60)
    assert thread.ended is None


def test_an_exception_that_comes_late_is_raised_at_the_gate_or_not_at_all():
    """The thread is in C code when it is interrupted, and closes its gate right after that."""
    for _ in range(200):
        opened, go_on, passed = threading.Event(), threading.Event(), []

        def run(gate, opened=opened, go_on=go_on, passed=passed):
            gate.open()
            opened.set()
            go_on.wait(60)
            gate.close()
            for i in range(100):
                passed.append(i)

        thread = Thread(run)
        opened.wait(60)
        go_on.set()
        thread.interrupt()
        thread.thread.join(60)
        # Behind the gate all or nothing was done.
        assert len(passed) in (0, 100)
        assert (thread.ended is None) == (len(passed) == 100)


def test_a_thread_is_interrupted_once_for_each_time_that_it_is_asked():
    contexts = {}
    state: Any = WorkerState(1, "", FEATURES)
    state.cancelled.update({7: None})
    loop = Timers()
    interrupts = Interrupts(state, contexts, Store(), print, print)
    hits = []

    class Counting(SlotGate):
        def interrupt(self, thread, context, attempt):
            hits.append((thread, attempt))
            return True

    interrupts.gates[0] = Counting()
    contexts[11] = SimpleNamespace(
        attempt=7,
        here=SimpleNamespace(wake=None, stand_in=None),
        seat=SimpleNamespace(slot=0),
    )
    interrupts.ask([7, 9], loop)  # 9 has ended
    interrupts.ask([7], loop)
    assert loop.n == 1
    assert interrupts.step()
    assert hits == [(11, 7)]
    assert interrupts.was_asked(7)
    state.cancelled.clear()
    assert not interrupts.step()
    assert not interrupts.was_asked(7)


def test_tasks_may_call_the_same_function_of_python_with_types_of_their_own():
    call = ctypes.pythonapi.PyThreadState_SetAsyncExc
    assert call(ctypes.c_long(0), ctypes.py_object(TaskInterrupted)) == 0  # no thread has this id


def test_a_task_that_has_looked_at_the_flag_gets_time():
    state: Any = WorkerState(1, "", FEATURES)
    state.cancelled.update({7: None, 8: None})
    interrupts = Interrupts(state, {}, Store(), print, print)
    assert not interrupts.is_asked(7)
    interrupts.ask([7, 8], Timers())
    assert interrupts.is_asked(7)
    due = interrupts._due
    assert due[7] > due[8]


@pytest.mark.parametrize("n_columns", range(6))
def test_rows_that_are_not_whole_are_cut_off_and_their_tasks_placed_again(n_columns):
    """A row of a finished task is appended to five columns, one after the other."""
    report, values = ChunkDone(0, [], [], [], []), []
    order = (values, report.attempts, report.nbytes, report.durations_us, report.results)
    for column in order:
        column.append(1)
    for column in order[:n_columns]:
        column.append(2)

    def task(attempt, slot=0):
        return SimpleNamespace(attempt=attempt, slot=slot, key=f"key-{attempt}")

    state = SimpleNamespace(
        slots=[SimpleNamespace(chunk=[task(4)])],
        by_attempt={n: task(n) for n in (1, 2, 4)} | {5: task(5, slot=1)},
        cancelled={3: task(3)},
    )
    mend(report, values, state, 0)
    assert report.finished
    if n_columns == 5:
        assert report.attempts == [1, 2]
        assert report.failed_attempts == [3]
    else:
        assert report.attempts == values == [1]
        assert report.failed_attempts == [2, 3]
    assert {failure[0] for failure in report.failures} == {RESCHEDULE}
