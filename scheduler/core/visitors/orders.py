"""Orders about tasks that name no client: cancelled for all, or run again for those that want them.

An admin gives them, by way of the pages as a visitor. A client cancels and retries what it wants
(`CancelKeys`, `RetryKeys`); here a keeper stands for it, which wants nothing before and after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.question_arguments import BadArgument, keys_of
from ..moves.reporting import send_states
from ..moves.transitions import ACTIVE
from ..records.peers import ClientHandle
from ..records.tasks import ERRED, RELEASED
from ..requests import wanted_keys
from ..requests.submission import on_cancel, run_again
from .visits import find_visit

if TYPE_CHECKING:
    from ....protocol.wire.message import Message
    from ..records.tasks import SchedulerTask
    from ..state import SchedulerState

#: What became of a key, in the answer: the order was followed, or why not.
DONE: Final = "done"
UNKNOWN: Final = "the scheduler does not have it any more"
ENDED: Final = "it had ended before"
NOT_NEEDED: Final = "no client needs it now, so it does not run"
NOT_FAILED: Final = "it has not failed"
NOT_HERE: Final = "its call is not here; submit it again"


class Orderer:
    """The keeper that stands for a client."""

    __slots__ = ("keeper",)

    def __init__(self) -> None:
        self.keeper = ClientHandle("", "an admin", 0, receive=_receive, is_watcher=True)


def _receive(state: SchedulerState, message: Message) -> None:
    """The answer names what was done; nothing is waited for."""


def _who(state: SchedulerState, message: m.Ask) -> str:
    visit = find_visit(state, message.visit)
    return "an admin" if visit is None else f"a visitor of the pages ({visit.who})"


def on_cancel_tasks(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Cancel tasks for all who want them, also while they run; tell what became of each key.

    Raises:
        BadArgument: the keys are none.
    """
    ends: dict[str, str] = {}
    cancelled = []
    for key in dict.fromkeys(keys_of(message.arguments)):
        task = state.tasks.get(key)
        if task is None:
            ends[key] = UNKNOWN
        elif task.state not in ACTIVE:
            ends[key] = NOT_NEEDED if task.state == RELEASED else ENDED
        else:
            ends[key] = DONE
            cancelled.append(task)
    keeper = state.record(Orderer).keeper
    keeper.name = _who(state, message)
    for task in cancelled:
        wanted_keys.want(keeper, task)
    keys = [task.key for task in cancelled]
    reason = f"cancelled by {keeper.name}"
    on_cancel(state, keeper, m.CancelKeys(keys=keys, force=True, reason=reason, running=True))
    for task in [*keeper.wants]:  # it had failed with another one of them
        wanted_keys.unwant(keeper, task)
    wanted_keys.drop_functions(state, keeper)
    _answer(state, peer, message, ends)


def on_retry_tasks(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Run failed tasks again, with those of their inputs that failed; tell of each key.

    The futures of all clients are pending again.

    Raises:
        BadArgument: the keys are none.
    """
    ends: dict[str, str] = {}
    again: dict[SchedulerTask, None] = {}
    asked: list[str] = []
    for key in dict.fromkeys(keys_of(message.arguments)):
        task = state.tasks.get(key)
        ends[key] = _why_not_again(task, again)
        if task is not None and ends[key] == DONE:
            asked.append(key)
            again.update(dict.fromkeys(run_again(state, task)))
    state.counters.tasks_retried += len(again)
    state.story.note(state.now, f"retried by {_who(state, message)}", asked)
    by_client: dict[ClientHandle, list[str]] = {}
    for task in again:
        for client in task.wanted_by:
            by_client.setdefault(client, []).append(task.key)
    for client, keys in by_client.items():
        # No request of a client has this number.
        state.send_client(client, m.KeysRetried(request=0, keys=keys))
        send_states(state, client, keys)
    _answer(state, peer, message, ends)


def _why_not_again(task: SchedulerTask | None, again: dict[SchedulerTask, None]) -> str:
    """Return why a task cannot be run again, or DONE."""
    if task is None:
        return UNKNOWN
    if task in again:
        return DONE
    if task.state == RELEASED or (task.state == ERRED and not task.wanted_by):
        return NOT_NEEDED
    if task.state != ERRED:
        return NOT_FAILED
    return NOT_HERE if task.args is None else DONE


def _answer(state: SchedulerState, peer: int, message: m.Ask, ends: dict[str, str]) -> None:
    if not ends:
        raise BadArgument("keys= names no task")
    state.send(peer, m.Answer(request=message.request, info={"keys": ends}))
