"""Graphs on the interpreters of an `InterpreterPoolExecutor`, where the Python has it (3.14)."""

from __future__ import annotations

import concurrent.futures
import contextvars
import os
import subprocess
import sys
from operator import add

import pytest

import weft

POOL = getattr(concurrent.futures, "InterpreterPoolExecutor", None)
needs_interpreters = pytest.mark.skipif(POOL is None, reason="needs Python 3.14")


@pytest.fixture(scope="module")
def interpreters():
    with POOL(2) as pool:
        yield pool


@needs_interpreters
@pytest.mark.slow
@pytest.mark.shares_resources
def test_a_graph_runs_in_interpreters_of_this_process(interpreters):
    dsk = {("x", 0): 1, **{("x", i): (add, ("x", i - 1), 1) for i in range(1, 200)}}
    dsk |= {("y", i): (lambda i: [i, os.getpid()], i) for i in range(200)}
    keys = [("x", 199), *[("y", i) for i in range(200)]]
    x, *y = weft.get(dsk, keys, executor=interpreters)
    assert x == 200
    assert y == [[i, os.getpid()] for i in range(200)]


@needs_interpreters
@pytest.mark.slow
@pytest.mark.shares_resources
def test_a_failure_in_an_interpreter_names_the_task(interpreters):
    with pytest.raises(ZeroDivisionError) as caught:
        weft.get({"bad": (lambda: 1 // 0,)}, "bad", executor=interpreters)
    assert "task 'bad'" in caught.value.__notes__[0]


@needs_interpreters
@pytest.mark.slow
@pytest.mark.shares_resources
@pytest.mark.parametrize("engine", ["threaded", "multiprocessing"])
def test_a_task_in_an_interpreter_runs_graphs(interpreters, engine):
    # An interpreter that is not the main one has no daemon threads.
    def nested(n):
        import weft

        dsk = {f"{i}": (pow, i + 10, 2) for i in range(n)}
        return sum(getattr(weft, engine).get(dsk, [*dsk], num_workers=2))

    dsk = dict.fromkeys("ab", (nested, 4))
    assert weft.get(dsk, ["a", "b"], executor=interpreters) == (534, 534)


@needs_interpreters
@pytest.mark.slow
def test_interpreters_end_though_a_pool_of_threads_is_left_in_them():
    def leave():
        import weft

        return weft.threaded.get({"a": (pow, 2, 3)}, "a"), weft.ThreadPool(1).submit(int).result()

    with POOL(1) as pool:
        assert weft.get({"x": (leave,)}, "x", executor=pool) == (8, 0)


INHERITED = """
import contextvars, weft
name = contextvars.ContextVar("name", default="nobody")
pool = weft.ThreadPool(1)
name.set("who came first")
assert pool.submit(name.get).result() == "nobody"
"""


@pytest.mark.slow
def test_threads_of_a_pool_do_not_have_the_context_of_the_submitting_caller():
    # As builds without interpreter lock do by default. Older ones do not know the option.
    option = "thread_inherit_context=1"
    subprocess.run([sys.executable, "-X", option, "-c", INHERITED], check=True, timeout=60)
    name = contextvars.ContextVar("name", default="nobody")
    with weft.ThreadPool(1) as pool:
        name.set("who came first")
        assert pool.submit(name.get).result(60) == "nobody"
