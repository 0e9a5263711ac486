"""Tasks whose value a client puts here: they wait for it, and no function of theirs runs.

The value may come before the assignment, because the two come over different connections. It is
kept then until the assignment comes, or a later one, or its time is over (`ValueExpired`). If its
time is over when the assignment comes, the task is given back, so that the value is sent again. A
value for which there is no use is forgotten; the scheduler knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from ....protocol.wire.failure import Failure
from ....protocol.wire.messages import (
    INDEX_FUNCTION,
    PUT_FUNCTION,
    AssignTasks,
    AttemptsErred,
    AttemptsFinished,
    AttemptsReturned,
)
from ..drops import supersede
from ..events import WorkerEvent
from ..feature import WorkerFeature
from ..inputs import is_awaited, move_waiters, placeholder, wake
from ..tasks import FORGOTTEN, MEMORY, WAITING, WorkerTask
from ..transitions import move

if TYPE_CHECKING:
    from ..state import WorkerState

_NAME: Final = "puts"
#: Values that came before their assignments: the oldest is forgotten beyond that.
MAX_EARLY: Final = 16
#: Attempts whose value came too early, or was refused: the oldest is forgotten beyond that.
MAX_LAPSED: Final = 1024


@dataclass(slots=True)
class ValuePut(WorkerEvent):
    """A client has put the value of `attempt`: it is in the store."""

    key: str
    attempt: int
    nbytes: int


@dataclass(slots=True)
class ValueExpired(WorkerEvent):
    """The value of `attempt`, which a client has put, has been here for a long time."""

    attempt: int


@dataclass(slots=True)
class ValueRefused(WorkerEvent):
    """A client has sent the value of `attempt`, which this worker cannot take."""

    key: str
    attempt: int
    failure: Failure


class EarlyValues(dict[int, "int | Failure | None"]):
    """{attempt: bytes of the value} that a client has put before the assignment.

    For a value that was refused its failure, for one that was forgotten None.
    """


def _await_values(state: WorkerState, message: AssignTasks) -> Callable[[], None] | None:
    """File the rows of a message whose values clients put. The other rows may read them.

    Returns:
        What ends those whose value was here already, and is not any more.
    """
    early = state.record(EarlyValues)
    lapsed: list[WorkerTask] = []
    for row, place in enumerate(message.function_of):
        attempt = message.attempts[row]
        function = state.functions[message.functions[place]]
        if function.filing is None or _is_known(state, attempt):
            continue
        key = message.keys[row]
        task = WorkerTask(
            key,
            attempt,
            message.priorities[row],
            function,
            b"",
            0,
            message.function_clients[place],
        )
        task.arrived = state.now
        old = state.by_key.get(key)
        if old is not None:
            supersede(state, old, task)
        move(state, task, WAITING)
        task.n_waiting_on = 1
        if attempt in early:
            nbytes = early[attempt]
            if isinstance(nbytes, int):
                del early[attempt]
                _finish(state, task, nbytes)
            else:
                lapsed.append(task)
    return partial(_end_lapsed, state, lapsed) if lapsed else None


def _end_lapsed(state: WorkerState, tasks: list[WorkerTask]) -> None:
    """Fail the tasks whose values were refused before they were assigned; give the others back."""
    returned: list[int] = []
    for task in tasks:
        failure = state.record(EarlyValues)[task.attempt]
        if isinstance(failure, list):
            _refuse(state, task, failure)
        else:
            _give_up(state, task)
            returned.append(task.attempt)
    if returned:
        state.to_scheduler.append(AttemptsReturned(attempts=returned))


def _is_known(state: WorkerState, attempt: int) -> bool:
    """Return whether there is a record of an attempt."""
    return attempt in state.by_attempt or attempt in state.cancelled or attempt in state.released


def _forget_early(state: WorkerState, last_attempt: int) -> None:
    """Forget the values up to an attempt, which were not assigned and will not be."""
    early = state.record(EarlyValues)
    for attempt in [attempt for attempt in early if attempt <= last_attempt]:
        if isinstance(early.pop(attempt), int):
            state.forget.append(attempt)
    state.set_busy(_NAME, bool(early))


def _on_assigned(state: WorkerState, message: AssignTasks) -> None:
    _forget_early(state, state.last_attempt)


def _on_value_put(state: WorkerState, event: ValuePut) -> None:
    """Finish the task whose value is in the store now, or keep the value for its assignment."""
    attempt = event.attempt
    task = state.by_attempt.get(attempt)
    if task is not None and is_awaited(task) and task.key == event.key:
        _finish(state, task, event.nbytes)
    elif (task is not None and task.state == MEMORY) or attempt in state.released:
        return  # it was put twice
    elif attempt <= state.last_attempt:
        state.forget.append(attempt)
    else:
        early = state.record(EarlyValues)
        early[attempt] = event.nbytes
        state.set_busy(_NAME, True)
        values = [other for other, nbytes in early.items() if isinstance(nbytes, int)]
        if len(values) > MAX_EARLY:
            _lapse(state, values[0])


def _on_value_expired(state: WorkerState, event: ValueExpired) -> None:
    """Forget a value that came long ago, and whose assignment has not come."""
    if isinstance(state.record(EarlyValues).get(event.attempt), int):
        _lapse(state, event.attempt)


def _lapse(state: WorkerState, attempt: int) -> None:
    state.forget.append(attempt)
    _note_lapsed(state, attempt, None)


def _note_lapsed(state: WorkerState, attempt: int, failure: Failure | None) -> None:
    early = state.record(EarlyValues)
    early[attempt] = failure
    state.set_busy(_NAME, True)
    if len(early) > MAX_LAPSED:
        _forget_early(state, min(early))


def _on_value_refused(state: WorkerState, event: ValueRefused) -> None:
    """Fail the task whose value this worker cannot take."""
    task = state.by_attempt.get(event.attempt)
    if task is not None and is_awaited(task) and task.key == event.key:
        _refuse(state, task, event.failure)
    elif event.attempt > state.last_attempt:
        _note_lapsed(state, event.attempt, event.failure)


def _refuse(state: WorkerState, task: WorkerTask, failure: Failure) -> None:
    state.failures.keep(task, failure)
    duration_us = int((state.now - task.arrived) * 1e6)
    _give_up(state, task)
    state.to_scheduler.append(
        AttemptsErred(
            attempts=[task.attempt],
            durations_us=[duration_us],
            failures=[failure],
            queued_us=[0],
        )
    )


def _give_up(state: WorkerState, task: WorkerTask) -> None:
    """Wait for a value no longer. The scheduler decides about the tasks that read it."""
    move(state, task, FORGOTTEN)
    if task.pins:
        move_waiters(task, placeholder(state, task.key))


def _give_up_all(state: WorkerState) -> None:
    """Wait for no value any more: a new session begins, in which each is assigned again."""
    for task in [task for task in state.waiting.values() if is_awaited(task)]:
        _give_up(state, task)


def _finish(state: WorkerState, task: WorkerTask, nbytes: int) -> None:
    move(state, task, MEMORY)
    task.nbytes = nbytes
    duration_us = int((state.now - task.arrived) * 1e6)
    state.to_scheduler.append(
        AttemptsFinished(
            attempts=[task.attempt],
            nbytes=[nbytes],
            durations_us=[duration_us],
            results=[None],
            queued_us=[0],
        )
    )
    wake(state, task)


FEATURE: Final = WorkerFeature(
    name=_NAME,
    records=(EarlyValues,),
    events={
        ValuePut: _on_value_put,
        ValueExpired: _on_value_expired,
        ValueRefused: _on_value_refused,
    },
    invariants={
        "early values are of attempts to come": lambda state: (
            attempt
            for attempt in state.record(EarlyValues)
            if attempt <= state.last_attempt or attempt in state.by_attempt
        ),
    },
    filing={PUT_FUNCTION: _await_values, INDEX_FUNCTION: _await_values},
    assigned=((_NAME, _on_assigned),),
    session_opening=(_give_up_all,),
)
