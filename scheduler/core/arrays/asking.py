"""What users ask of the rows of an array: to run again, to be cancelled, and to wait for one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.messages.questions import NO_ANSWER
from ....protocol.wire.options import CANCELLED
from ....protocol.wire.question_arguments import BadArgument
from ..journal.entries import ReadJobs
from ..journal.feature import answer_when_recorded, why_not_again
from ..journal.jobs import when_written
from ..records.tasks import SchedulerTask
from ..requests.submission import on_cancel
from .records import Array, arrays_of
from .running import answer, begin_again, note_ends, settle, touch

if TYPE_CHECKING:
    from ..state import SchedulerState

#: The most rows that one question names.
MAX_NAMED: Final = 1000
#: Questions that wait for rows of one array. With one more the oldest is answered: its client is
#: gone, or has stopped waiting, or asks again.
MAX_ASKED: Final = 10_000


def on_retry_rows(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Run rows again that have not succeeded, all or some; answer when that is recorded."""
    key, names = _named_in(message)
    task, array = _find(state, key)
    if task is not None and array is not None and not array.is_over:
        positions = None if names is None else array.positions(names)
        if not begin_again(state, task, array, positions):
            _refuse(state, peer, message, f"no such row of {key!r} has ended without success")
            return
        _answer_recorded(state, peer, message, f"rows of {key} are to run again")
    elif text := why_not_again(state, key):
        _refuse(state, peer, message, text)
    else:
        state.after.append(ReadJobs(peer, message.request, key, names))


def on_cancel_rows(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Cancel rows of an array that has not ended; answer when that is recorded."""
    key, names = _named_in(message)
    task, array = _find(state, key)
    reason = message.arguments.get("reason", "")
    if task is not None and array is not None and not array.is_over:
        pending = [p for p in array.positions(names or []) if not array.state_of(p)]
        keys = [array.key_of(p) for p in pending if p in array.live]
        if keys:
            cancel = m.CancelKeys(keys=keys, force=True, reason=str(reason), running=True)
            on_cancel(state, arrays_of(state).keeper, cancel)
        left = [p for p in pending if p not in array.live]
        note_ends(state, task, array, left, CANCELLED, str(reason))
        touch(state, task)
        settle(state)  # so that all of it is in the batch that is waited for
        if pending:
            _answer_recorded(state, peer, message, f"rows of {key} are cancelled")
            return
    answer_when_recorded(state, peer, message)


def on_row_ended(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Answer when the end of a row is recorded; at once if there is nothing to wait for."""
    key, names = _named_in(message)
    task, array = _find(state, key)
    found = [] if array is None or array.is_over else array.positions(names or [])
    waits = [p for p in found if array is not None and array.is_under_way(p)]
    if task is None or array is None or not waits:
        answer(state, [(peer, message.request)])
        return
    if sum(map(len, array.asked.values())) >= MAX_ASKED:
        position, (oldest, *later) = next(iter(array.asked.items()))
        del array.asked[position]
        if later:
            array.asked[position] = later
        answer(state, [oldest])
    array.asked.setdefault(waits[0], []).append((peer, message.request))
    arrays_of(state).awaited[task] = None


def _find(state: SchedulerState, key: str) -> tuple[SchedulerTask | None, Array | None]:
    task = state.tasks.get(key)
    return task, None if task is None else arrays_of(state).get(task)


def _named_in(message: m.Ask) -> tuple[str, list[str] | None]:
    """Return the key of the array, and the numbers of the rows that a question names, or None."""
    key: Any = message.arguments.get("key")
    names: Any = message.arguments.get("rows")
    if type(key) is not str:
        raise BadArgument("key= is that of an array")
    if names is not None and (
        type(names) is not list or len(names) > MAX_NAMED or not set(map(type, names)) <= {str}
    ):
        raise BadArgument(f"rows= are at most {MAX_NAMED} numbers, as texts")
    return key, names


def _answer_recorded(state: SchedulerState, peer: int, message: m.Ask, text: str) -> None:
    """Answer when the entries of this event are recorded, or say that they are not yet."""

    def on_written(state: SchedulerState, error: str) -> None:
        if peer in state.roles and error:
            later = f"{text}, but that is not recorded yet, and is tried again: {error}"
            _refuse(state, peer, message, later)
        else:
            answer(state, [(peer, message.request)])

    when_written(state, on_written)


def _refuse(state: SchedulerState, peer: int, message: m.Ask, text: str) -> None:
    state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
