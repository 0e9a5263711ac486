"""What tests of `weft.ThreadPool` ask about a pool."""

from __future__ import annotations


def fail(error):
    raise error


def n_threads(pool):
    return len(pool._crew.workers)


def is_idle(pool):
    return len(pool._crew.idle) == n_threads(pool) and not pool._crew.tasks
