"""The functions that the benchmarks run as tasks: importable by name in every worker."""

from __future__ import annotations


def inc(x: int) -> int:
    return x + 1


def add(a: int, b: int) -> int:
    return a + b


def add3(a: int, b: int, c: int) -> int:
    return a + b + c
