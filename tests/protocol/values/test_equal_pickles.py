"""A function that was sent to a worker is pickled there to the same bytes: equal calls are one."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

from weft.protocol.values.serialize import dumps_function, loads

#: Functions of a main program, which are sent by value.
PROGRAM = """
import functools, json, sys
from weft.protocol.values.serialize import dumps_function, loads

def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

def even(n):
    return n == 0 or odd(n - 1)

def odd(n):
    return n != 0 and even(n - 1)

def text(x):
    return json.dumps(x)

@functools.lru_cache
def cached(n):
    return cached(n - 1) if n else json.dumps(n)

async def later(n):
    return await later(n)

def make():
    def inner(n):
        return inner(n - 1) if n else json.dumps(n)
    return inner

names = ["factorial", "even", "text", "cached", "later", "make"]
if len(sys.argv) > 1:  # as a worker has them
    blobs = json.load(sys.stdin)
    functions = {name: loads(bytes.fromhex(blobs[name])) for name in names}
else:
    functions = {name: globals()[name] for name in names}
print(json.dumps({name: dumps_function(one)[1].hex() for name, one in functions.items()}))
"""


def run(*arguments, given=""):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        input=given,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_function_is_pickled_in_another_process_to_the_bytes_that_it_came_in():
    there = run()
    again = run("worker", given=json.dumps(there))
    assert [name for name in there if again[name] != there[name]] == []


def local_functions():
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    @functools.lru_cache
    def cached(n):
        return cached(n - 1) if n else json.dumps(n)

    return [factorial, cached, lambda n: json.dumps(n)]


@pytest.mark.parametrize("function", local_functions())
def test_a_function_is_pickled_again_to_the_bytes_that_it_came_in(function):
    blob = dumps_function(function)[1]
    assert dumps_function(loads(blob))[1] == blob


def test_code_that_was_sent_names_its_file_for_tracebacks():
    names = {"__name__": "__main__"}
    exec(compile("def make():\n    return lambda: 1\n", "a cell.py", "exec"), names)
    received = loads(dumps_function(names["make"])[1])
    assert received.__code__.co_filename == received().__code__.co_filename == "a cell.py"


PROGRAM_WITH_TASKS = """
import weft

def ask(name):
    other = "pong" if name == "ping" else "ping"
    return weft.get_client().submit(ask, other, key=other).result()

if __name__ == "__main__":
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        try:
            client.submit(ask, "ping", key="ping").result(60)
        except weft.WaitingCycle:
            print("cycle")
"""


@pytest.mark.slow
def test_the_call_of_a_task_is_the_equal_call_of_its_client(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM_WITH_TASKS)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "cycle\n", done.stderr
