"""What the core hears and says: the check of an assignment, and reports that grow while they wait.

A report is extended as long as it is the last message in the out-box, which the shell takes whole:
so what many small events have to say becomes one message with long columns.
"""

from __future__ import annotations

from collections.abc import Container

from ...protocol.errors import RemoteProtocolError
from ...protocol.wire.message import MAX_ITEMS, Message
from ...protocol.wire.messages import AssignTasks, AttemptsFinished, KeysMissing, ReplicasAdded
from .events import ChunkDone
from .tasks import WorkerTask


def check_assignment(message: AssignTasks) -> None:
    """Check what the columns' own checks cannot see, before anything is changed."""
    n_functions = len(message.functions)
    if not n_functions == len(message.function_blobs) == len(message.function_clients) or (
        message.function_of and max(message.function_of) >= n_functions
    ):
        raise RemoteProtocolError("AssignTasks refers to functions that it does not list")
    if None in message.args:
        raise RemoteProtocolError("AssignTasks has tasks without arguments")
    for key, dependencies in zip(message.keys, message.dependencies, strict=False):
        if key in dependencies:
            raise RemoteProtocolError(f"AssignTasks lets {key!r} depend on itself")
    n_located = len(message.located_keys)
    for column in (message.located_attempts, message.located_nbytes, message.located_holders):
        if len(column) != n_located:
            raise RemoteProtocolError("AssignTasks has located columns of different lengths")


def take_out(event: ChunkDone, cancelled: Container[int]) -> list[int]:
    """Take the attempts that are in `cancelled` out of the event's columns, and return them."""
    attempts, failed = event.attempts, event.failed_attempts
    ended = [attempt for attempt in (*attempts, *failed) if attempt in cancelled]
    if ended:
        rows = [i for i, attempt in enumerate(attempts) if attempt not in cancelled]
        event.attempts = [attempts[i] for i in rows]
        event.nbytes = [event.nbytes[i] for i in rows]
        event.durations_us = [event.durations_us[i] for i in rows]
        event.results = [event.results[i] for i in rows]
        rows = [i for i, attempt in enumerate(failed) if attempt not in cancelled]
        event.failed_attempts = [failed[i] for i in rows]
        event.failed_durations_us = [event.failed_durations_us[i] for i in rows]
        event.failures = [event.failures[i] for i in rows]
    return ended


def tell_finished(to_scheduler: list[Message], event: ChunkDone) -> None:
    """Say what is in the store now. The event's columns become the message's."""
    last = to_scheduler[-1] if to_scheduler else None
    if last.__class__ is AttemptsFinished and len(last.attempts) + len(event.attempts) <= MAX_ITEMS:
        last.attempts += event.attempts
        last.nbytes += event.nbytes
        last.durations_us += event.durations_us
        last.results += event.results
        return
    to_scheduler.append(
        AttemptsFinished(
            attempts=event.attempts,
            nbytes=event.nbytes,
            durations_us=event.durations_us,
            results=event.results,
        )
    )


def tell_replica(to_scheduler: list[Message], copy: WorkerTask) -> None:
    """Say that a copy is here."""
    last = to_scheduler[-1] if to_scheduler else None
    if last.__class__ is ReplicasAdded and len(last.attempts) < MAX_ITEMS:
        last.attempts.append(copy.attempt)
        last.keys.append(copy.key)
    else:
        to_scheduler.append(ReplicasAdded(attempts=[copy.attempt], keys=[copy.key]))


def tell_missing(to_scheduler: list[Message], missing: dict[tuple[str, bool], list[str]]) -> None:
    """Say which keys their holders could not give, and whether they could be asked at all."""
    to_scheduler += [
        KeysMissing(keys=keys, holder=holder, unreachable=unreachable)
        for (holder, unreachable), keys in missing.items()
    ]
