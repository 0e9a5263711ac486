"""Why a task has no result: plain lists, which the scheduler makes and forwards without unpickling.

A failure is `[kind, key, ...]`, where `key` is the task that failed first; tasks that depend on it
carry the same failure. Kinds and their fields:

- `exception`: key, then what `exceptions.pack_exception` made on the worker (opaque here), then, if
  the task was run again, how many attempts raised
- `worker-died`: key, number of deaths, last worker, reason
- `data-lost`: key, text
- `cancelled`: key, reason
- `key-conflict`: key
"""

from __future__ import annotations

from typing import Any

Failure = list[Any]


def after_attempts(failure: Failure, attempts: int) -> Failure:
    """Add to an `exception` that it was raised by the last of several attempts."""
    return [*failure, attempts]


def worker_died(key: str, attempts: int, last_worker: str, reason: str) -> Failure:
    """Make the failure of a task whose workers died under it."""
    return ["worker-died", key, attempts, last_worker, reason]


def cancelled(key: str, reason: str) -> Failure:
    """Make the failure of a task that depends on a cancelled one."""
    return ["cancelled", key, reason]


def data_lost(key: str, text: str) -> Failure:
    """Make the failure of a key whose data is gone and cannot be computed again."""
    return ["data-lost", key, text]


def key_conflict(key: str) -> Failure:
    """Make the answer to a submission of other content under the name of a task that is alive."""
    return ["key-conflict", key]
