"""Blocked workers: hosts and workers that are given no tasks, for a time or until later.

Users name them, and hosts that fail again and again are blocked by themselves (`failing.py`).

A blocked worker is *barred* for the kernel, by the one predicate of `moves/taking.py`: what it has
not begun is asked back, what it runs goes on, and its results can be read. A block is a name, so it
counts also for workers of that name, address or host that join later; it ends when it is taken
back, or with its time. A scheduler that is started again knows of no block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.columns import MAX_TAG_CHARS
from ....protocol.wire.levels import Level
from ....protocol.wire.messages.questions import NO_ANSWER
from ....protocol.wire.question_arguments import BadArgument
from ....protocol.wording import counted
from ..assignment.asking_back import ask_all_back
from ..feature import Feature, LateQuestion, Question
from ..invariants.checking import differences
from ..moves.taking import close, reopen
from ..records.peers import BARRED, LEAVING, WorkerHandle

if TYPE_CHECKING:
    from ....protocol.wire.question_arguments import Info, Page
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: Names that are blocked at a time.
MAX_BLOCKED: Final = 1000
#: The longest time of a block: 10 years, in ms.
MAX_FOR_MS: Final = 10 * 366 * 86_400_000
MAX_REASON_CHARS: Final = 200


class WorkerBlock:
    """One name that is blocked: by whom, and why ("" = that was not said)."""

    __slots__ = ("by", "is_automatic", "reason", "until")

    def __init__(self, by: str, reason: str, *, is_automatic: bool = False) -> None:
        self.by = by
        self.reason = reason
        #: no user has set it, so it ends when tasks have no other worker left
        self.is_automatic = is_automatic
        #: its end; None = it lasts until it is taken back
        self.until: Deadline | None = None

    def describe(self) -> str:
        """Return it in words."""
        return f"blocked by {self.by}" + (f": {self.reason}" if self.reason else "")


class Blocks(dict[str, WorkerBlock]):
    """{name of a worker, its address or its host: what blocks it}."""


def blocks_of(state: SchedulerState) -> Blocks:
    """Return what is blocked."""
    return state.record(Blocks)


def is_barred(ws: WorkerHandle) -> bool:
    """Return whether a worker gets nothing because it is blocked."""
    return ws.closed & BARRED != 0


def block_of(state: SchedulerState, ws: WorkerHandle) -> WorkerBlock | None:
    """Return what blocks a worker; None = it is not blocked. O(names of the worker)."""
    blocks = blocks_of(state)
    if not blocks:
        return None
    return next((blocks[name] for name in (ws.name, *sorted(ws.names)) if name in blocks), None)


def block(
    state: SchedulerState,
    names: list[str],
    by: str,
    reason: str,
    for_ms: int,
    *,
    is_automatic: bool = False,
) -> None:
    """Give workers of these names nothing from now on; a later block replaces an earlier one."""
    blocks = blocks_of(state)
    for name in dict.fromkeys(names):
        _end(state, name)
        blocks[name] = WorkerBlock(by, reason, is_automatic=is_automatic)
        if for_ms:
            blocks[name].until = state.call_after(for_ms / 1000, _on_over, name)
    for ws in list(state.workers.values()):
        _look_at(state, ws)
    _lift_last(state)


def can_spare(state: SchedulerState, name: str, closed: int) -> bool:
    """Return whether tasks have other workers than those of this name.

    That holds for the tasks of each class that one of these may run; `closed` are the reasons for
    which a worker is no other. O(workers, and members of classes with tasks).
    """
    named: dict[WorkerHandle, None] = {}
    others: dict[WorkerHandle, None] = {}
    for ws in state.workers.values():
        if ws.is_named((name,)):
            named[ws] = None
        elif not ws.closed & closed:
            others[ws] = None
    return bool(others) and all(
        any(ws in others for ws in task_class.members)
        for task_class in state.classes.values()
        if task_class.n_tasks and any(ws in named for ws in task_class.members)
    )


def _lift_last(state: SchedulerState) -> None:
    """End the blocks that no user has set, without which tasks have a worker."""
    for name, one in list(blocks_of(state).items()):
        if one.is_automatic and not can_spare(state, name, BARRED | LEAVING):
            state.log("info", f"{name} is not blocked any more: tasks have no other worker")
            unblock(state, [name])


def _on_worker_leaving(state: SchedulerState, ws: WorkerHandle) -> None:
    if blocks_of(state):
        _lift_last(state)


def unblock(state: SchedulerState, names: list[str]) -> None:
    """Give workers of these names tasks again, as far as no other name of theirs is blocked."""
    for name in names:
        _end(state, name)
    for ws in [ws for ws in state.workers.values() if is_barred(ws)]:
        _look_at(state, ws)


def _end(state: SchedulerState, name: str) -> None:
    ended = blocks_of(state).pop(name, None)
    if ended is not None:
        state.deadlines.cancel(ended.until)


def _on_over(state: SchedulerState, name: str) -> None:
    state.log("info", f"{name} is not blocked any more: the time of that is over")
    unblock(state, [name])


def _look_at(state: SchedulerState, ws: WorkerHandle) -> None:
    """Bar a worker that is blocked, and open it if it is not any more."""
    is_blocked = block_of(state, ws) is not None
    if is_blocked is is_barred(ws):
        return
    if is_blocked:
        close(state, ws, BARRED)
        _on_back(state, ws)
        return
    reopen(state, ws, BARRED)
    for worker_opened in state.features.worker_opened:
        worker_opened(state, ws)


def _on_back(state: SchedulerState, ws: WorkerHandle) -> None:
    """Ask a worker for what it has not begun, or later if it is not there."""
    if is_barred(ws) and not (state.awaits_peers or ws.is_away or ws.inventory is not None):
        ask_all_back(state, ws)


def _ask_all(state: SchedulerState) -> None:
    for ws in state.workers.values():
        _on_back(state, ws)


# -- users -----------------------------------------------------------------------------------------
def _names_of(arguments: Info) -> list[str]:
    names = arguments.get("names")
    if type(names) is not list or not 0 < len(names) <= MAX_BLOCKED:
        raise BadArgument(f"names= is a list of 1 to {MAX_BLOCKED} names of workers or hosts")
    if not all(type(name) is str and 0 < len(name) <= MAX_TAG_CHARS for name in names):
        raise BadArgument(f"names= are texts of 1 to {MAX_TAG_CHARS} characters")
    return names


def on_block(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Block names; the answer says how many workers are blocked now.

    Raises:
        BadArgument: of the names, the time or the reason.
    """
    names = _names_of(message.arguments)
    for_ms, reason = message.arguments.get("for_ms", 0), message.arguments.get("reason", "")
    if type(for_ms) is not int or not 0 <= for_ms <= MAX_FOR_MS:
        raise BadArgument(f"for_ms= is 0 to {MAX_FOR_MS}")
    if type(reason) is not str or len(reason) > MAX_REASON_CHARS:
        raise BadArgument(f"reason= is a text of at most {MAX_REASON_CHARS} characters")
    if len(blocks_of(state).keys() | set(names)) > MAX_BLOCKED:
        text = f"more than {MAX_BLOCKED} names cannot be blocked: unblock some first"
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
        return
    client = state.clients_by_peer.get(peer)
    by = "a user" if client is None else client.user.name or client.name or "a user"
    block(state, names, by, reason, for_ms)
    what = blocks_of(state)[names[0]].describe()
    n_barred = sum(is_barred(ws) for ws in state.workers.values())
    here = f"{counted(n_barred, 'worker')} {'gets' if n_barred == 1 else 'get'} no tasks now"
    state.log("info", f"{', '.join(names[:3])}{', ...' * (len(names) > 3)}: {what}; {here}")
    state.send(peer, m.Answer(request=message.request, info={"n_workers": n_barred}))


def on_unblock(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Take blocks back.

    Raises:
        BadArgument: of the names.
    """
    names, blocks = _names_of(message.arguments), blocks_of(state)
    unknown = [name for name in names if name not in blocks]
    if unknown:
        which = ", ".join(sorted(blocks)[:3]) or "none"
        text = f"{unknown[0]!r:.80} is not blocked; those that are: {which}"
        state.send(peer, m.AskFailed(request=message.request, kind=NO_ANSWER, text=text))
        return
    unblock(state, names)
    state.log("info", f"{', '.join(names[:3])}{', ...' * (len(names) > 3)}: not blocked any more")
    state.send(peer, m.Answer(request=message.request, info={}))


def ask_blocked(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return what is blocked: by whom, why, and for how long yet."""
    found: dict[str, Any] = {
        name: {
            "by": one.by,
            "reason": one.reason,
            "left_s": None if one.until is None else max(0.0, one.until.when - state.awake_s),
        }
        for name, one in blocks_of(state).items()
    }
    return {"blocked": found}, ""


FEATURE: Final = Feature(
    name="blocking",
    records=(Blocks,),
    worker_joined=(_look_at,),
    worker_back=(_on_back,),
    worker_leaving=(_on_worker_leaving,),
    assignment_begun=(_ask_all,),
    questions={"blocked_workers": Question(ask_blocked)},
    orders={
        "block_workers": LateQuestion(on_block, Level.CLIENT),
        "unblock_workers": LateQuestion(on_unblock, Level.CLIENT),
    },
    invariants={
        "barred workers are those that are blocked": lambda s: differences(
            [ws for ws in s.workers.values() if is_barred(ws)],
            [ws for ws in s.workers.values() if block_of(s, ws) is not None],
        ),
        "a block that ends has a time that is to come": lambda s: [
            name
            for name, one in blocks_of(s).items()
            if one.until is not None and not one.until.is_pending
        ],
        "a block that no user has set ends": lambda s: [
            name for name, one in blocks_of(s).items() if one.is_automatic and one.until is None
        ],
        "blocks that no user has set leave a worker": lambda s: [
            name
            for name, one in blocks_of(s).items()
            if one.is_automatic and all(ws.closed & (BARRED | LEAVING) for ws in s.staying.values())
        ],
    },
)
