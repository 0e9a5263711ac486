"""Failures of tasks as plain lists, which the scheduler makes and forwards without unpickling.

A failure is `[kind, key, ...]`, where `key` is the task that failed first; tasks that depend on it
carry the same failure. Kinds and their fields:

- `exception`: key, then the fields of `exceptions.pack_exception` (opaque here), then, if the task
  was run again, how many attempts raised
- `worker-died`: key, number of deaths, last worker, reason, then `DeathFacts.to_items`
- `data-lost`: key, text
- `memory-exceeded`: key, text
- `actor-lost`: key, text
- `actor-in-doubt`: key, text; never sent by the scheduler
- `interrupted`: key; only within a worker: a dropped attempt was interrupted, and has ended
- `timed-out`: key, the name of its function, its limit in microseconds, the worker, 1 if its
  process can be ended, how many attempts have failed; and the category whose limit it is, if any
- `allotment-exceeded`: key, the name of its category, the bytes that it might use, those that it
  used, the worker, 1 if the limit is the category's own
- `cancelled`: key, reason
- `key-conflict`: key
- `not-understood`: key, names of options
- `user-limit`: key, the user or "", the setting of the limit, the limit, how many tasks the user
  has, and the bytes of their arguments
- `reschedule`: key, reason; only from workers: the task has asked to be run on another one
- `no-worker`: key, for how many milliseconds none could run it, and why
- `gang-ended`: key, its rank, the size of its gang, then the kind of its failure and that's fields
  behind the key, as far as they fit
- `rows-failed`: key of an array, how many of its rows have not succeeded, how many it has, and the
  numbers of the first of these, in a text
- `unrecorded`: key, why the journal has not taken it
- `not-permitted`: key, what is not permitted, the level of token that permits it, the sender's, and
  the attempt on whose behalf it was, if it was a submission
"""

from __future__ import annotations

from typing import Any, Final

from ..death_facts import DeathFacts

Failure = list[Any]

#: The kind of a report that is no failure: the task is run again, elsewhere if possible.
RESCHEDULE: Final = "reschedule"

_INTERRUPTED: Final = "interrupted"
#: The kind of the failure of a task that took too long.
TIMED_OUT: Final = "timed-out"
#: ... of one that used more memory than its category may.
ALLOTMENT_EXCEEDED: Final = "allotment-exceeded"
#: ... and of a result that did not fit.
MEMORY_EXCEEDED: Final = "memory-exceeded"

#: ... and of those that ended with another one of their gang.
GANG_ENDED: Final = "gang-ended"
#: The kind of the failure of a job that is on no record.
UNRECORDED: Final = "unrecorded"
#: Items of a failure that its decoder takes.
_MAX_FIELDS: Final = 12

#: Data of more than this is not carried through the scheduler; the client has to reach the worker.
MAX_RELAYED_BYTES: Final = 64 << 20


def after_attempts(failure: Failure, attempts: int) -> Failure:
    """Add the number of attempts to an `exception` that the last of them raised."""
    return [*failure, attempts]


def reschedule(key: str, reason: str) -> Failure:
    """Make the report of a task that asks to be run on another worker."""
    return [RESCHEDULE, key, reason]


def interrupted(key: str) -> Failure:
    """Make the report of a dropped attempt that was interrupted; it does not leave the worker."""
    return [_INTERRUPTED, key]


def is_interruption(failure: Failure) -> bool:
    """Return whether a dropped attempt has ended because its thread was interrupted."""
    return failure[0] in (_INTERRUPTED, RESCHEDULE)  # the latter between two tasks


def worker_died(
    key: str, attempts: int, last_worker: str, reason: str, facts: DeathFacts
) -> Failure:
    """Make the failure of a task whose workers died while they ran it."""
    return ["worker-died", key, attempts, last_worker, reason, *facts.to_items()]


def timed_out(
    key: str,
    function: str,
    timeout_us: int,
    worker: str,
    *,
    can_end: bool,
    attempts: int,
    category: str = "",
) -> Failure:
    """Make the failure of a task whose last attempt took too long; a category may say how long."""
    failure: Failure = [TIMED_OUT, key, function, timeout_us, worker, int(can_end), attempts]
    return [*failure, category] if category else failure


def allotment_exceeded(
    key: str, category: str, allotted: int, used: int, worker: str, *, is_own: bool
) -> Failure:
    """Make the failure of a task that used more memory than any of its category may."""
    return [ALLOTMENT_EXCEEDED, key, category, allotted, used, worker, int(is_own)]


def cancelled(key: str, reason: str) -> Failure:
    """Make the failure of a task that depends on a cancelled one."""
    return ["cancelled", key, reason]


def data_lost(key: str, text: str) -> Failure:
    """Make the failure of a key whose data is gone and cannot be computed again."""
    return ["data-lost", key, text]


def memory_exceeded(key: str, text: str) -> Failure:
    """Make the failure of a result for which the workers' memory is not enough."""
    return [MEMORY_EXCEEDED, key, text]


def unknown(key: str) -> Failure:
    """Make the failure of a key that a scheduler does not know, and its client cannot submit."""
    text = "submit its call again, or scatter the data again"
    return data_lost(key, f"the scheduler does not know it (any more); {text}")


def scattered_lost(key: str) -> Failure:
    """Make the failure of scattered data whose last copy is gone."""
    return data_lost(
        key,
        "it was scattered, so nothing can compute it again, and its last copy is gone: it was lost "
        "with a worker, or failed with MemoryExceeded, or its last future was released; scatter it "
        "again, with broadcast=2 to have two copies",
    )


def actor_lost(key: str, text: str) -> Failure:
    """Make the failure of an actor that is gone, and of calls that it has not begun."""
    return ["actor-lost", key, text]


def key_conflict(key: str) -> Failure:
    """Make the failure of a submission of other content under the name of an existing task."""
    return ["key-conflict", key]


def not_understood(key: str, names: list[str]) -> Failure:
    """Make the failure of a submission with options that the scheduler needs to know."""
    return ["not-understood", key, ", ".join(f"{name}=" for name in names)]


def user_limit(key: str, user: str, setting: str, limit: int, n_tasks: int, nbytes: int) -> Failure:
    """Make the failure of tasks whose user has reached a limit; the key is that of the first."""
    return ["user-limit", key, user, setting, limit, n_tasks, nbytes]


def no_worker(key: str, waited_ms: int, reason: str) -> Failure:
    """Make the failure of a task that no connected worker could run for as long as it may wait."""
    return ["no-worker", key, waited_ms, reason]


def gang_ended(failure: Failure, rank: int, size: int) -> Failure:
    """Make the failure of those that ran together with a task that has failed: with its cause."""
    kind, key, *fields = failure
    fields = fields if len(fields) <= _MAX_FIELDS - 5 else []
    return [GANG_ENDED, key, rank, size, kind, *fields]


def rows_failed(key: str, n_failed: int, n_rows: int, first: str) -> Failure:
    """Make the failure of an array with rows that have not succeeded."""
    return ["rows-failed", key, n_failed, n_rows, first]


def unrecorded(key: str, reason: str) -> Failure:
    """Make the failure of a detached job that could not be recorded."""
    return [UNRECORDED, key, reason]


def not_permitted(key: str, attempt: int) -> Failure:
    """Make the failure of a submission from a task that does not run on the sender's worker."""
    what = (
        f"a submission ({key!r}) on behalf of attempt {attempt}, which does not run on the worker "
        "that sends it,"
    )
    return ["not-permitted", key, what, "client", "worker", attempt]


def refused_attempt(failure: Failure) -> int:
    """Return the attempt of a submission that was not permitted; 0 = it is unknown."""
    attempt = failure[5] if len(failure) > 5 else 0
    return attempt if isinstance(attempt, int) else 0
