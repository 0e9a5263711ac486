"""The moves of a `FutureState`, and the effects of leaving and entering a phase.

    new -> unsent | sent    unsent -> sent    sent -> unsent | kept    kept -> sent | unsent
    any -> gone
    pending <-> finished    pending | finished -> error | cancelled | lost    these -> pending

`TRANSITIONS` is the whole table, of the phases (the scheduler's knowledge) and of the statuses (the
user's view); a move that it lacks is a bug of weft and raises `InvalidTransition`. The hot path is
fused in `submitting`, `answers` and `operations`; a property test proves each fused lane equal to
the moves of this table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.errors import InvalidTransition
from .tasks import (
    CANCELLED,
    ERROR,
    FINISHED,
    GONE,
    KEPT,
    LOST,
    NEW,
    PENDING,
    SENT,
    UNSENT,
    FutureState,
    Phase,
    State,
    Status,
)

if TYPE_CHECKING:
    from .state import ClientState

#: (start, finish) -> why such a move happens
TRANSITIONS: Final[dict[tuple[State, State], str]] = {
    (NEW, UNSENT): "submitted or wanted while there is no connection",
    (NEW, SENT): "submitted or wanted",
    (NEW, GONE): "released, cancelled or failed before anything was sent",
    (UNSENT, SENT): "there is a connection, and the scheduler does not have it",
    (UNSENT, GONE): "released, cancelled or failed before it was sent",
    (SENT, UNSENT): "to be submitted again: the scheduler lost it, or may have an earlier task",
    (SENT, KEPT): "done, and the scheduler does not know it (any more)",
    (SENT, GONE): "released, cancelled, submitted again as another state, not sendable; or it "
    "failed under an earlier scheduler",
    (KEPT, SENT): "a task reads it",
    (KEPT, UNSENT): "another client's task will read it, and there is no connection",
    (KEPT, GONE): "released",
    (PENDING, FINISHED): "its result exists",
    (PENDING, ERROR): "its task failed, or could not be sent",
    (PENDING, CANCELLED): "cancelled, or its last future was released",
    (PENDING, LOST): "the scheduler does not know it, or there is no scheduler any more",
    (FINISHED, PENDING): "its data was lost, and is made again",
    (FINISHED, ERROR): "it cannot be unpickled, or failed when it was made again",
    (FINISHED, CANCELLED): "cancelled or released while its data was elsewhere",
    (FINISHED, LOST): "its data was lost for good",
    (ERROR, PENDING): "the user has it run again, or a task that reads it",
    (CANCELLED, PENDING): "the same: its task had failed because an input was cancelled",
    (LOST, PENDING): "the same",
}


def move(core: ClientState, state: FutureState, finish: Phase) -> None:
    """Leave the present phase, dropping its entries, and enter another one."""
    start = state.phase
    check_move(state, start, finish)
    if start == UNSENT:
        del core.unsent[state]
    elif start == SENT:
        drop(state)
        if core.unanswered:
            core.unanswered.pop(state.key, None)
    elif start == KEPT:
        del core.kept[state]
    state.phase = finish
    if finish == UNSENT:
        core.unsent[state] = None
    elif finish == KEPT:
        core.kept[state] = None
    elif finish == GONE:
        forget_maker(core, state)


def forget_maker(core: ClientState, state: FutureState) -> None:
    """Forget which attempt made a unique result, and the handle if there is no record of the call.

    Tasks that read it keep the state, and a result that is here would be its recipe.
    """
    if core.made.pop(state, None) is not None and state.spec is None:
        state.blob = None


def set_status(state: FutureState, finish: Status) -> None:
    """Change the status that users see, after the content; the same status again is no move."""
    start = state.status
    if start != finish:
        check_move(state, start, finish)
        state.status = finish


def check_move(state: FutureState, start: State, finish: State) -> None:
    """Raise `InvalidTransition` unless the table has this move."""
    if (start, finish) not in TRANSITIONS:
        raise InvalidTransition(state.key, start, finish, state.describe())


def drop(state: FutureState) -> None:
    """Stop counting a state for its function, which the scheduler may then forget."""
    function = state.function
    if function is not None:
        function.n_wanted -= 1
        state.function = None
