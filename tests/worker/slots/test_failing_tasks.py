"""Tasks that fail: exceptions, results and functions that cannot be pickled."""

from __future__ import annotations

import pytest

from tests.worker.slots.slots_kit import Ref, inc
from weft.protocol.errors import UnpicklableResult
from weft.protocol.values.serialize import dumps_function, loads
from weft.protocol.wire.messages import (
    DropFunctions,
)


def divide(x):
    return 1 / x


def test_an_exception_comes_with_key_worker_and_attempt(bench):
    bench.run(divide, 0, key="x")
    error = bench.error(1)
    assert isinstance(error, ZeroDivisionError)
    assert any("x on worker w1" in note for note in error.__notes__)


def leave():
    raise SystemExit(3)


def test_system_exit_ends_the_task_and_not_the_worker(bench):
    bench.run(leave)
    assert isinstance(bench.error(1).__cause__, SystemExit)
    bench.run(inc, 1)
    bench.listen_for(2)
    assert bench.results == {2: 2}


class Unpackable(Exception):
    """Its text and its reduction end the process that asks for them, if it lets them."""

    def __str__(self):
        raise SystemExit(4)

    def __reduce__(self):
        raise KeyboardInterrupt


def fail_unpackably():
    raise Unpackable


def test_an_exception_whose_own_code_raises_system_exit_ends_the_task_only(bench):
    bench.run(fail_unpackably)
    bench.listen_for(1)
    assert "<its __str__ raised SystemExit>" in bench.failures[1]
    assert bench.crashes == []
    bench.run(inc, 1)
    bench.listen_for(2)
    assert bench.results == {2: 2}


def make_lock():
    import threading

    return [1, {"lock": threading.Lock()}]


def test_a_wanted_result_that_cannot_be_pickled_is_an_error_with_its_type(bench):
    bench.run(make_lock, key="x")
    error = bench.error(1)
    assert isinstance(error, UnpicklableResult)
    assert error.type_name == "_thread.lock"
    assert "result[1]['lock']" in str(error)
    assert len(bench.store) == 0


class LeavesWhenPickled:
    def __reduce__(self):
        raise SystemExit(3)


def test_a_wanted_result_whose_reduction_raises_system_exit_is_an_error(bench):
    bench.run(LeavesWhenPickled, key="x")
    error = bench.error(1)
    assert isinstance(error, UnpicklableResult)
    assert "LeavesWhenPickled): its pickling raised SystemExit: 3" in str(error)


def test_an_unwanted_unpicklable_result_serves_local_tasks_and_fails_where_it_is_fetched(bench):
    bench.run(make_lock, key="x", wanted=0)
    bench.run(len, Ref("x"))
    bench.listen_for(2)
    assert bench.results == {1: None, 2: 2}
    blob = bench.store.pack(1, "x")
    assert blob is not None
    with pytest.raises(UnpicklableResult, match=r"_thread\.lock"):
        loads(blob)


def test_a_function_that_cannot_be_unpickled_fails_its_tasks_and_is_tried_again(bench):
    message = bench.task(inc, 1)
    message.function_blobs = [b"\x80\x05cno_such_module\nf\n."]
    bench.send(message)
    error = bench.error(1)
    assert isinstance(error, ModuleNotFoundError)
    note = "weft: the function of task key-1 could not be unpickled on worker w1; the task has not"
    (said,) = error.__notes__
    assert said.startswith(f"{note} started. Install no_such_module there, send it there with ")
    assert "register_pickle_by_value" in said
    function = bench.state.functions[message.functions[0]]
    assert function.call is None
    function.blob = dumps_function(inc)[1]
    bench.run(inc, 1)
    bench.listen_for(2)
    assert bench.results == {2: 2}


def test_a_function_that_was_never_sent_fails_its_tasks(bench):
    message = bench.task(inc, 1)
    message.function_blobs = [None]
    bench.send(message)
    assert "never sent" in str(bench.error(1))


def test_a_function_is_unpickled_once(bench):
    def count():
        state.append(1)
        return len(state)

    state: list[int] = []
    for _ in range(3):
        bench.run(count)
    bench.listen_for(3)
    assert bench.results == {1: 1, 2: 2, 3: 3}
    bench.send(DropFunctions(functions=list(bench.state.functions)))
    bench.run(count)
    bench.listen_for(4)
    assert bench.results[4] == 1
