"""Inputs whose attempts still run on other workers, and attempts here that others wait for.

The scheduler names the attempt and its worker with the task that reads it. This worker asks that
one at once, and goes on. What it asks for is a record in state "missing", of which the attempt is
known. What comes is for the tasks that wait for it: the scheduler knows of no copy, so it is
dropped with the last of them, as a released value is.

An answer always comes: the attempt ends, the shell of its worker waits no longer, or the connection
ends. Without a value the key is reported as missing, as one of which no holder is known.

An attempt may be asked for before its assignment has arrived. So one that is above all that were
assigned is waited for, until it is passed over or the session ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import AssignTasks
from ..events import WorkerAction, WorkerEvent
from ..feature import WorkerFeature
from ..inputs import move_waiters, note_missing, settle, wake
from ..tasks import FETCH, FORGOTTEN, MEMORY, MISSING, RELEASED
from ..transitions import UNFINISHED, move

if TYPE_CHECKING:
    from ..state import WorkerState

_NAME: Final = "promises"
#: Above the numbers of all other requests.
_FIRST: Final = 1 << 50


@dataclass(slots=True)
class AskPromised(WorkerAction):
    """Ask a worker for the result of an attempt; answered by exactly one `PromiseEnded`."""

    holder: str
    request: int
    key: str
    attempt: int


@dataclass(slots=True)
class AnswerPromises(WorkerAction):
    """Give these readers the results of the attempts that they have asked for, or say no."""

    asked: list[int]


@dataclass(slots=True)
class PromiseAsked(WorkerEvent):
    """Another worker asks for the result of an attempt; `AnswerPromises` names `asked` once."""

    asked: int
    attempt: int


@dataclass(slots=True)
class PromiseExpired(WorkerEvent):
    """The shell has answered a request that has waited for long."""

    asked: int
    attempt: int


@dataclass(slots=True)
class PromiseEnded(WorkerEvent):
    """The answer to `AskPromised`: the value is in the store, or `nbytes` is None."""

    request: int
    nbytes: int | None
    is_unreachable: bool = False


class Promises:
    """What this worker has asked for, and what it is asked for too early."""

    def __init__(self) -> None:
        #: {request: what is asked for} of all that are not answered
        self.open: dict[int, AskPromised] = {}
        #: {attempt: its request}: the same
        self.requests: dict[int, int] = {}
        #: {attempt: None}: of those in `WorkerState.awaited`, the ones that are not here yet
        self.early: dict[int, None] = {}
        self.last = _FIRST


# --- Of the reader --------------------------------------------------------------------------------


def _on_promised(state: WorkerState, message: AssignTasks) -> None:
    """Ask for the inputs that other workers will have."""
    promises = state.record(Promises)
    for key, attempt, holder in zip(
        message.promised_keys, message.promised_attempts, message.promised_holders, strict=True
    ):
        record = state.by_key.get(key)
        known = state.by_attempt.get(attempt)
        if record is None or attempt in state.cancelled or known not in {None, record}:
            continue
        if record.state == FETCH and record.attempt != attempt:
            move(state, record, MISSING)
            if state.busy:
                # A copy was desired of the attempt before. What is promised is none: it would stay.
                settle(state, record)
        if record.state != MISSING:
            continue
        here = state.released.get(attempt)
        if here is not None:
            if here.key == key:
                move(state, record, FORGOTTEN)
                move_waiters(record, here)
                wake(state, here)
            continue
        if record.attempt != attempt:
            state.by_attempt.pop(record.attempt, None)
            record.attempt = attempt
            state.by_attempt[attempt] = record
        if attempt not in promises.requests:
            promises.last += 1
            asking = AskPromised(holder, promises.last, key, attempt)
            promises.open[promises.last] = asking
            promises.requests[attempt] = promises.last
            state.after.append(asking)


def _on_ended(state: WorkerState, event: PromiseEnded) -> None:
    """Let the tasks that wait for a value begin, or have the scheduler place them again."""
    promises = state.record(Promises)
    asked = promises.open.pop(event.request)
    attempt = asked.attempt
    del promises.requests[attempt]
    record = state.by_attempt.get(attempt)
    if event.nbytes is None:
        if record is not None and record.state == MISSING:
            # One that has not ended in time may end before this is read: it is there, and not lost.
            holder = asked.holder if event.is_unreachable else ""
            note_missing(state, record, holder, unreachable=event.is_unreachable)
        return
    if record is None or record.state != MISSING:
        # Nothing waits for it any more, or it comes by another way.
        if attempt not in state.released and (record is None or record.state != MEMORY):
            state.forget.append(attempt)
        return
    record.nbytes = event.nbytes
    for task in record.waiters or ():
        task.fetched = state.now
    move(state, record, RELEASED)
    wake(state, record)


# --- Of the worker that is asked ------------------------------------------------------------------


def _on_asked(state: WorkerState, event: PromiseAsked) -> None:
    """Answer at once, or when the attempt has ended."""
    record = state.by_attempt.get(event.attempt)
    if record is None and event.attempt > state.last_attempt:
        state.record(Promises).early[event.attempt] = None
    elif record is None or record.state not in UNFINISHED:
        state.after.append(AnswerPromises([event.asked]))
        return
    state.awaited.setdefault(event.attempt, []).append(event.asked)
    state.set_busy(_NAME, True)


def _on_expired(state: WorkerState, event: PromiseExpired) -> None:
    waiting = state.awaited.get(event.attempt, [])
    if event.asked in waiting:
        waiting.remove(event.asked)
        if not waiting:
            _answer(state, (event.attempt,))


def _answer(state: WorkerState, attempts: Sequence[int]) -> None:
    """Answer all that wait for attempts which have ended, or will not come."""
    awaited, early = state.awaited, state.record(Promises).early
    asked: list[int] = []
    for attempt in attempts:
        if attempt in awaited:
            asked += awaited.pop(attempt)
            early.pop(attempt, None)
    if asked:
        last = state.after[-1] if state.after else None
        if isinstance(last, AnswerPromises):
            last.asked += asked
        else:
            state.after.append(AnswerPromises(asked))
    state.set_busy(_NAME, bool(awaited))


def _on_assigned(state: WorkerState, message: AssignTasks) -> None:
    """Answer what was asked for early, and has been passed over; the rest is here, or comes."""
    early = state.record(Promises).early
    for attempt in [one for one in early if one <= state.last_attempt]:
        del early[attempt]
        record = state.by_attempt.get(attempt)
        if record is None or record.state not in UNFINISHED:
            _answer(state, (attempt,))


def _end_early(state: WorkerState) -> None:
    """Begin or end a session: what is not here yet is not on its way."""
    _answer(state, list(state.record(Promises).early))


def _end(state: WorkerState) -> None:
    _answer(state, list(state.awaited))


FEATURE: Final = WorkerFeature(
    name=_NAME,
    records=(Promises,),
    events={PromiseAsked: _on_asked, PromiseEnded: _on_ended, PromiseExpired: _on_expired},
    invariants={
        "awaited attempts are unfinished here, or early": lambda state: (
            attempt
            for attempt in state.awaited
            if attempt not in state.record(Promises).early
            and (
                attempt not in state.by_attempt or state.by_attempt[attempt].state not in UNFINISHED
            )
        ),
        "early attempts are awaited, and above all that were assigned": lambda state: (
            attempt
            for attempt in state.record(Promises).early
            if attempt not in state.awaited or attempt <= state.last_attempt
        ),
        "requests are the open ones by attempt": lambda state: (
            asked
            for asked in state.record(Promises).open.values()
            if state.record(Promises).requests.get(asked.attempt) != asked.request
        ),
        "somebody waits for what is awaited": lambda state: (
            attempt for attempt, asked in state.awaited.items() if not asked
        ),
    },
    columns=(("promised_keys", _on_promised),),
    assigned=((_NAME, _on_assigned),),
    attempts_ended=((_NAME, _answer),),
    session_opening=(_end_early,),
    session_lost=(_end_early,),
    ending=(_end,),
)
