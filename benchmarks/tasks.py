"""The functions that the benchmarks run as tasks: importable by name in every worker, and light,
because worker processes import this module while a clock runs.
"""

from __future__ import annotations

import os
from typing import Any


def inc(x: int) -> int:
    return x + 1


def add(a: int, b: int) -> int:
    return a + b


def add3(a: int, b: int, c: int) -> int:
    return a + b + c


def spin(n: int) -> int:
    """Compute for a while in pure Python, without letting go of the interpreter lock."""
    total = 0
    for i in range(n):
        total += i * i % 7
    return total


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
