"""The life of a record, as a table: which moves exist, and what each does to the containers.

    tasks    new -> waiting -> ready -> executing -> memory -> released | forgotten
    copies   new -> missing -> fetch -> flight -> memory

A move that `TRANSITIONS` lacks is a bug of weft and raises `InvalidTransition` with a description
of the record and its neighbours. The hot lanes are fused: `assignment.on_assign_tasks` with
`inputs.link` (new -> waiting | ready), `inputs.wake` (waiting -> ready), `slots.fill` (ready ->
executing), `slots.finish` (executing -> memory) and `drops.on_drop_attempts` (memory ->
forgotten). A property test proves each of them equal to the moves of this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from ...protocol.errors import InvalidTransition
from .tasks import (
    CANCELLED,
    EXECUTING,
    FETCH,
    FLIGHT,
    FORGOTTEN,
    MEMORY,
    MISSING,
    NEW,
    NO_ATTEMPT,
    READY,
    RELEASED,
    WAITING,
    State,
    WorkerTask,
)

if TYPE_CHECKING:
    from .state import WorkerState

#: (start, finish) -> why such a move happens
TRANSITIONS: Final[dict[tuple[State, State], str]] = {
    (NEW, WAITING): "assigned, but some inputs are not in memory",
    (NEW, READY): "assigned, and every input is in memory",
    (NEW, MISSING): "a task here reads a key that is unknown here, or was dropped; or the "
    "scheduler wants a copy",
    (WAITING, READY): "the last input is in memory",
    (WAITING, MEMORY): "the event that it waits for has brought its value",
    (WAITING, FORGOTTEN): "dropped, given back, or replaced by a new attempt; its value cannot be "
    "taken, or a new session begins before it came",
    (READY, EXECUTING): "put into the chunk of a slot",
    (READY, FORGOTTEN): "dropped, given back, or replaced by a new attempt",
    (EXECUTING, READY): "taken out of the chunk before it started",
    (EXECUTING, MEMORY): "finished",
    (EXECUTING, CANCELLED): "dropped, or replaced by a new attempt, after it had started",
    (EXECUTING, FORGOTTEN): "raised",
    (CANCELLED, FORGOTTEN): "its function returned or raised; the result is thrown away",
    (MEMORY, RELEASED): "dropped, or replaced by a new attempt, while unfinished tasks use it",
    (MEMORY, FORGOTTEN): "dropped, or replaced by a new attempt",
    (RELEASED, MEMORY): "the scheduler names it as an input again",
    (RELEASED, FORGOTTEN): "the last task that used it has ended",
    (MISSING, FETCH): "the scheduler named holders, or another holder is left",
    (MISSING, RELEASED): "its worker gave it as promised: for the tasks that wait, and no other",
    (MISSING, FORGOTTEN): "no task needs it any more, or its key was assigned",
    (FETCH, FLIGHT): "its holder was asked",
    (FETCH, MISSING): "its holder is out of reach, or the scheduler named another attempt",
    (FETCH, FORGOTTEN): "no task needs it any more, or its key was assigned",
    (FLIGHT, MEMORY): "it arrived",
    (FLIGHT, MISSING): "its holder did not give it",
    (FLIGHT, FORGOTTEN): "dropped, or its key was assigned",
}

#: States of a task that has not ended.
UNFINISHED: Final = frozenset((WAITING, READY, EXECUTING))
#: States of a copy at a peer.
AT_PEER: Final = frozenset((FETCH, FLIGHT))
#: States of the records in `by_key`.
CURRENT: Final = UNFINISHED | AT_PEER | {MEMORY, MISSING}
#: States of records whose value is in the store, or may come into it.
_STORED: Final = frozenset((MEMORY, RELEASED, CANCELLED))
#: States that a record leaves without a trace in any container but the indexes.
_UNLISTED: Final = frozenset((NEW, MEMORY, MISSING))
#: {start: {finish: 1 if the move adds the record to the indexes, -1 if it takes it out, else 0}}
_MOVES: Final[dict[State, dict[State, int]]] = {
    start: {
        finish: (finish in CURRENT) - (start in CURRENT)
        for before, finish in TRANSITIONS
        if before == start
    }
    for start in get_args(State)
}


def move(state: WorkerState, record: WorkerTask, finish: State) -> None:
    """Take a record out of the containers of its present state and put it into those of the next.

    The caller has popped a task that is to be executed, has taken a task that is taken back out of
    its chunk, has ended the request of a copy that was answered, and has set `holders` for a fetch.
    """
    start = record.state
    filing = _MOVES[start].get(finish)
    if filing is None:
        raise InvalidTransition(record.key, start, finish, describe(record))
    record.state = finish
    attempt = record.attempt
    if filing > 0:
        state.by_key[record.key] = record
        if attempt != NO_ATTEMPT:
            state.by_attempt[attempt] = record
    elif filing:
        del state.by_key[record.key]
        if attempt != NO_ATTEMPT:
            del state.by_attempt[attempt]
    if start not in _UNLISTED:
        _leave(state, record, start, finish)
    if finish not in UNFINISHED:
        state.offered.asked.pop(attempt, None)
        if state.busy:
            for name, attempts_ended in state.features.attempts_ended:
                if name in state.busy:
                    attempts_ended(state, (attempt,))
    if finish == FORGOTTEN:
        if start in _STORED:
            state.forget.append(attempt)
    elif finish == FETCH:
        state.fetching.add(record)
    elif finish not in _UNLISTED:
        if finish == WAITING:
            state.waiting[attempt] = record
        elif finish == READY:
            state.offered.push(record)
        elif finish == CANCELLED:
            state.cancelled[attempt] = record
        elif finish == RELEASED:
            state.released[attempt] = record


def _leave(state: WorkerState, record: WorkerTask, start: State, finish: State) -> None:
    if start in AT_PEER:
        if finish != FLIGHT:
            if record.peer is not None:
                state.fetching.remove(record)
            record.holders = ()
    elif start == RELEASED:
        del state.released[record.attempt]
    elif start == WAITING:
        del state.waiting[record.attempt]
        record.n_waiting_on = 0
    elif start == READY:
        if finish != EXECUTING:
            state.offered.removed(record)
    else:
        if start == CANCELLED:
            del state.cancelled[record.attempt]
        if finish != CANCELLED:
            state.slots[record.slot].n_executing -= 1
            record.slot = -1


def describe(record: WorkerTask) -> list[str]:
    """Describe a record and its neighbours, ten of each kind, for an error message.

    No history is kept: a worker keeps no keys of forgotten records, and the scheduler, which
    numbers the attempts, has the story of each.
    """
    peer = None if record.peer is None else record.peer.address
    lines = [
        f"{record!r} in slot {record.slot}, pinned {record.pins} times, waits for "
        f"{record.n_waiting_on} inputs; peer {peer}, holders {list(record.holders)}"
    ]
    lines += [f"reads {other!r}" for other in record.inputs[:10]]
    lines += [f"is waited for by {other!r}" for other in (record.waiters or ())[:10]]
    return lines
