"""The functions that the benchmarks run as tasks: importable by name in every worker, and light,
because worker processes import this module while a clock runs.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any


def inc(x: int) -> int:
    return x + 1


def add(a: int, b: int) -> int:
    return a + b


def add3(a: int, b: int, c: int) -> int:
    return a + b + c


class Counter:
    """The object of the workloads of actors."""

    def __init__(self) -> None:
        self.n = 0

    def increment(self) -> int:
        self.n += 1
        return self.n


def map_inside(module: str, n: int) -> int:
    """Submit n times `inc` in a task, with the client of this system, and add the results."""
    client = importlib.import_module(module).get_client()
    return sum(client.gather(client.map(inc, range(n), pure=False)))


def spin(n: int) -> int:
    """Compute for a while in pure Python, without letting go of the interpreter lock."""
    total = 0
    for i in range(n):
        total += i * i % 7
    return total


def work(seconds: float) -> None:
    """Compute in pure Python until this thread has used so much time of a processor."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def inc_in(seconds: float, x: int) -> int:
    work(seconds)
    return x + 1


def add_in(seconds: float, a: int, b: int) -> int:
    work(seconds)
    return a + b


def total_in(seconds: float, *values: int) -> int:
    """Return one more than the sum, kept small."""
    work(seconds)
    return (sum(values) + 1) % 1_000_003


def inc_after(seconds: float, x: Any) -> Any:
    """Wait, as for a device that is not a processor, and add one."""
    time.sleep(seconds)  # workload
    return x + 1


def add_after(seconds: float, a: int, b: int) -> int:
    time.sleep(seconds)  # workload
    return a + b


def sum_after(seconds: float, *values: int) -> int:
    time.sleep(seconds)  # workload
    return sum(values)


def sum_in(seconds: float, *values: int) -> int:
    work(seconds)
    return sum(values)


def ends_of(array: Any) -> float:
    return float(array[0]) + float(array[-1])


def second_of(_first: Any, second: Any) -> Any:
    return second


def record(path: str, number: int) -> None:
    """Append a number to a file, in one step for all processes that do."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, number.to_bytes(8, "big"))
    finally:
        os.close(file)


def recorded(path: str, number: int) -> list[int]:
    """Return how often each of the numbers below `number` is in a file of `record`."""
    counts = [0] * number
    with open(path, "rb") as file:
        while data := file.read(8):
            counts[int.from_bytes(data, "big")] += 1
    return counts


def recorded_inc(path: str, seconds: float, x: int) -> int:
    work(seconds)
    record(path, x)
    return x + 1


def recorded_block(path: str, number: int, n_bytes: int) -> bytes:
    """Return bytes that begin with the number."""
    record(path, number)
    return number.to_bytes(8, "big") + bytes(n_bytes - 8)


def number_of(block: bytes) -> int:
    return int.from_bytes(block[:8], "big")


def wait_for_file(path: str) -> None:
    """Keep a thread of a worker until there is a file."""
    while not os.path.exists(path):
        time.sleep(0.005)


def block(value: float, n_bytes: int) -> Any:
    """Return an array of 8-byte floats, all of them `value`."""
    import numpy as np

    return np.full(n_bytes // 8, value)


def join_blocks(left: Any, right: Any) -> Any:
    return left + right


def last_of(array: Any) -> float:
    return float(array[-1])


def noted(path: str, value: Any) -> Any:
    """Return `value`, and leave one byte at `path` as a sign that this ran."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, b".")
    finally:
        os.close(file)
    return value
