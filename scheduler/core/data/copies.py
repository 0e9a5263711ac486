"""Copies that clients want: how many a key shall have, and where.

A client wishes for n copies of keys in memory (the question `replicate`). Such a *wish* is
fulfilled now, and again when one of the copies is lost with a worker, or leaves with one.
Workers are asked for a copy each (`HoldCopies`), those with the fewest bytes first, and fetch it
from holders that are named to them. A key has at most `FAN_OUT` fetches under way for each copy
that it has: so many copies spread as a tree, and do not come from one worker.

A *rescue* is a wish of another sort: all workers that have a result leave (`leaving/leavers.py`).
It is over with the first copy elsewhere, or when no worker has room for one: it is made anew if
that is to be tried again. A task of which copies are wanted anyway keeps that wish, and if those
that are named for it cannot hold it, another worker gets the copy that saves it.

A wish ends with the data: a result that is computed again has one copy. A question is answered when
each of its keys has as many copies as the wish, or as there are workers for, or will get no more.

A worker that is asked may never answer, because its connection ended, or it could not reach a
holder. So it is asked again each `LOOK_S`, and no more after `MAX_TRIES`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ....protocol.reported import MEMORY_HIGH
from ....protocol.wire import messages as m
from ....protocol.wire.question_arguments import BadArgument, Info, keys_of
from ..actors.actors import may_have_copies
from ..assignment.placement import reachable
from ..memory.usage import free_nbytes
from ..moves.locating import located
from ..moves.reporting import send_states
from ..moves.transitions import drop_attempt
from ..records.peers import WorkerHandle
from ..records.tasks import MEMORY, SchedulerTask
from ..reports import missing

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: Fetches under way for each copy of a key.
FAN_OUT: Final = 2
#: A worker that has not reported a copy is asked again after this, and after so many times is not.
LOOK_S: Final = 5.0
MAX_TRIES: Final = 12
#: A worker that could not get a copy so often is asked no more.
MAX_FAILURES: Final = 3
#: Questions under way at the same time.
MAX_QUESTIONS: Final = 1000
MAX_COPIES: Final = 1_000_000
#: Names in one question.
MAX_NAMES: Final = 1000
#: Wishes of tasks that are not in memory any more are taken out when there are so many, or twice as
#: many as the others.
_LEAST_WISHES: Final = 64


@dataclass(slots=True)
class Wish:
    """The copies that a key shall have."""

    n: int
    #: the attempt of the data: the wish is over when the task is not in memory, or by another one
    attempt: int
    #: names, hosts or addresses of the workers that they shall be at; empty = any
    workers: tuple[str, ...] = ()
    #: {worker: how often it was asked} of those that fetch a copy
    asked: dict[WorkerHandle, int] = field(default_factory=dict)
    #: {worker: how often it could not get a copy}
    failed: dict[WorkerHandle, int] = field(default_factory=dict)
    #: the worker whose copy is dropped when `workers` have one: the wish's end (`rebalancing`)
    moves_from: WorkerHandle | None = None
    #: it is for one copy at a worker that stays, and is known only while that is under way
    is_rescue: bool = False


def is_over(task: SchedulerTask, wish: Wish) -> bool:
    """Return whether the data is gone that the wish was for."""
    return task.state != MEMORY or task.attempt != wish.attempt


@dataclass(slots=True, eq=False)
class CopyQuestion:
    """The question of a client, until it is answered."""

    peer: int
    request: int
    tasks: list[SchedulerTask]
    #: {task: None} of those whose copies are under way
    waiting: dict[SchedulerTask, None]


class Copies:
    """The wishes of all clients."""

    __slots__ = ("n_before_next_look", "next_look", "open", "questions", "short", "wishes")

    def __init__(self) -> None:
        #: {task: wish}; some are of tasks that are not in memory any more
        self.wishes: dict[SchedulerTask, Wish] = {}
        #: {task: None} of those that may need more copies than they have
        self.open: dict[SchedulerTask, None] = {}
        #: {task: None} of those for which there were too few workers
        self.short: dict[SchedulerTask, None] = {}
        self.questions: list[CopyQuestion] = []
        #: when workers are asked again
        self.next_look: Deadline | None = None
        self.n_before_next_look = _LEAST_WISHES

    def add(self, task: SchedulerTask, wish: Wish) -> None:
        """Wish for copies of a task in memory, in the place of an earlier wish."""
        if len(self.wishes) >= self.n_before_next_look:
            for old in [old for old, wish in self.wishes.items() if is_over(old, wish)]:
                self.forget(old)
            self.n_before_next_look = max(_LEAST_WISHES, 2 * len(self.wishes))
        earlier = self.wishes.get(task)
        if earlier is not None and not is_over(task, earlier):
            wish.asked = earlier.asked
        self.wishes[task] = wish
        self.open[task] = None

    def forget(self, task: SchedulerTask) -> None:
        """End the wish for copies of a task."""
        for table in (self.wishes, self.open, self.short):
            table.pop(task, None)


def copies_of(state: SchedulerState) -> Copies:
    """Return how many copies keys shall have."""
    return state.record(Copies)


def on_replicate(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Make copies of keys; those that are not in memory are left out.

    Raises:
        BadArgument: the wish cannot be fulfilled.
    """
    arguments = message.arguments
    n, names = _number(arguments), names_of(arguments)
    tasks = [task for key in keys_of(arguments) if (task := state.tasks.get(key)) is not None]
    if n is None:
        # One at least: a wish for none would stand in the way of a rescue, which keeps wishes.
        n = max(1, sum(may_hold(ws, names) for ws in state.staying.values()))
    wishes: dict[SchedulerTask, Wish] = {}
    for task in tasks:
        if task.state != MEMORY or (n < 2 and not names) or not may_have_copies(state, task):
            copies_of(state).forget(task)
        else:
            wishes[task] = Wish(n, task.attempt, names)
    follow(state, peer, message, tasks, wishes)


def follow(
    state: SchedulerState,
    peer: int,
    message: m.Ask,
    tasks: list[SchedulerTask],
    wishes: dict[SchedulerTask, Wish],
) -> None:
    """Fulfil the wishes of a question, and answer it when that is done.

    Raises:
        BadArgument: there are too many questions.
    """
    copies = copies_of(state)
    copies.questions = [question for question in copies.questions if question.peer in state.roles]
    if len(copies.questions) >= MAX_QUESTIONS:
        raise BadArgument(f"{MAX_QUESTIONS} others are under way; ask again when one is done")
    for task, wish in wishes.items():
        copies.add(task, wish)
    copies.questions.append(CopyQuestion(peer, message.request, tasks, dict.fromkeys(wishes)))
    advance(state)
    _answer_questions(state)


def _number(arguments: Info) -> int | None:
    n: int | None = arguments.get("n")
    if n is not None and (type(n) is not int or not 1 <= n <= MAX_COPIES):
        text = f"n= is the number of copies, from 1 to {MAX_COPIES}, not {str(n)[:40]}"
        raise BadArgument(text)
    return n


def names_of(arguments: Info) -> tuple[str, ...]:
    """Return the argument `workers`; () = any."""
    names: Any = arguments.get("workers", [])
    if type(names) is not list or not set(map(type, names)) <= {str} or len(names) > MAX_NAMES:
        raise BadArgument("workers= is a list of names of workers")
    return tuple(names)


def may_hold(ws: WorkerHandle, names: tuple[str, ...]) -> bool:
    """Return whether a worker is one of those that are named."""
    return not names or ws.is_named(names)


def rescue(state: SchedulerState, tasks: Iterable[SchedulerTask]) -> None:
    """Have results copied to workers with room: all that have them leave."""
    copies = copies_of(state)
    for task in tasks:
        wish = copies.wishes.get(task)
        if wish is None or is_over(task, wish):
            copies.add(task, Wish(1, task.attempt, is_rescue=True))
        copies.open[task] = None
    advance(state)


def is_under_way(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether a copy of a task is being made, or the return of its worker waited for."""
    return task in copies_of(state).open


# -- what happens to copies ------------------------------------------------------------------------
def on_added(state: SchedulerState, ws: WorkerHandle, keys: Iterable[str]) -> None:
    """Note that a worker has reported copies."""
    wishes = copies_of(state).wishes
    if not wishes:
        return
    for key in keys:
        task = state.tasks.get(key)
        wish = None if task is None else wishes.get(task)
        if task is not None and wish is not None:
            wish.asked.pop(ws, None)
            copies_of(state).open[task] = None
    advance(state)


def on_not_fetched(state: SchedulerState, ws: WorkerHandle, keys: Iterable[str]) -> None:
    """Note that a worker could not get copies: it is asked a few times more."""
    wishes = copies_of(state).wishes
    if not wishes:
        return
    for key in keys:
        task = state.tasks.get(key)
        wish = None if task is None else wishes.get(task)
        if task is not None and wish is not None and wish.asked.pop(ws, None) is not None:
            wish.failed[ws] = wish.failed.get(ws, 0) + 1
            copies_of(state).open[task] = None
    _advance_soon(state)


def on_lost(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> None:
    """Note that a copy of a task is lost."""
    if task in copies_of(state).wishes:
        copies_of(state).open[task] = None
        _advance_soon(state)


def on_worker_leaving(state: SchedulerState, ws: WorkerHandle) -> None:
    """Make other copies of what a worker has that is lost, or leaves."""
    copies = copies_of(state)
    if not copies.wishes:
        return
    for task, wish in copies.wishes.items():
        wish.failed.pop(ws, None)
        if wish.asked.pop(ws, None) is not None or task in ws.has_what:
            copies.open[task] = None
    _advance_soon(state)


def on_worker_with_room(state: SchedulerState, ws: WorkerHandle) -> None:
    """Make the copies for which there were too few workers."""
    if copies_of(state).short:
        copies_of(state).open.update(copies_of(state).short)
        _advance_soon(state)


def _advance_soon(state: SchedulerState) -> None:
    """Make copies when this event has been handled: it may lose or add others."""
    if copies_of(state).open:
        _look_later(state)
        state.call_after(0.0, advance)


def _look_later(state: SchedulerState) -> None:
    if copies_of(state).next_look is None:
        copies_of(state).next_look = state.call_after(LOOK_S, _look)


# -- making copies ---------------------------------------------------------------------------------
def advance(state: SchedulerState) -> None:
    """Ask workers for the copies that are missing; answer the questions that are done."""
    copies = copies_of(state)
    if not copies.open:
        return
    # The workers with the fewest bytes first, and then in turns.
    candidates = deque(sorted(state.staying.values(), key=lambda ws: ws.nbytes))
    asked: dict[WorkerHandle, list[SchedulerTask]] = {}
    coming = _coming(copies)
    # Copies that clients wish for need not be made, and would leave no room for those of leavers.
    for task in sorted(copies.open, key=lambda task: not copies.wishes[task].is_rescue):
        wish = copies.wishes[task]
        if is_over(task, wish):
            copies.forget(task)
        elif not _ask(state, task, wish, candidates, asked, coming):
            del copies.open[task]
            if wish.is_rescue:
                copies.forget(task)
            elif wish.moves_from is not None:
                copies.forget(task)
                _end_move(state, task, wish, wish.moves_from)
    _send(state, asked)
    _answer_questions(state)
    if copies.open:
        _look_later(state)


def _coming(copies: Copies) -> Counter[WorkerHandle]:
    """Return the bytes of the copies that workers fetch."""
    coming: Counter[WorkerHandle] = Counter()
    for task in copies.open:
        for ws in copies.wishes[task].asked:
            coming[ws] += task.nbytes
    return coming


def _ask(
    state: SchedulerState,
    task: SchedulerTask,
    wish: Wish,
    candidates: deque[WorkerHandle],
    asked: dict[WorkerHandle, list[SchedulerTask]],
    coming: Counter[WorkerHandle],
) -> bool:
    """Choose workers for a task's next copies; False if none is under way.

    The return of a worker that is away is waited for, as a copy that is under way.
    """
    holders = [ws for ws in task.replicas if not ws.is_leaving and may_hold(ws, wish.workers)]
    n_missing = wish.n - len(holders) - len(wish.asked)
    copies_of(state).short.pop(task, None)
    is_any_away = False
    if n_missing > 0:
        left = FAN_OUT * len(task.replicas) - len(wish.asked)
        fits = partial(_fits, task, wish, coming)
        n = min(n_missing, left)
        chosen, is_any_away = _choose(task, wish, n, wish.workers, candidates, fits)
        if not chosen and wish.workers and all(ws.is_leaving for ws in task.replicas):
            # Where it is wanted it cannot be: anywhere rather than nowhere.
            chosen, _ = _choose(task, wish, 1 - len(wish.asked), (), candidates, fits)
        for ws in chosen:
            wish.asked[ws] = 1
            coming[ws] += task.nbytes
            asked.setdefault(ws, []).append(task)
        if len(chosen) < n:
            copies_of(state).short[task] = None
    return bool(wish.asked) or is_any_away


def _fits(task: SchedulerTask, wish: Wish, coming: Counter[WorkerHandle], ws: WorkerHandle) -> bool:
    """Return whether a worker has room for a copy. What clients wish for may fill it."""
    if ws.closed:
        return False
    return not wish.is_rescue or free_nbytes(ws, MEMORY_HIGH) - coming[ws] >= task.nbytes


def _choose(
    task: SchedulerTask,
    wish: Wish,
    n: int,
    names: tuple[str, ...],
    candidates: deque[WorkerHandle],
    fits: Callable[[WorkerHandle], bool],
) -> tuple[list[WorkerHandle], bool]:
    """Choose workers for at most n copies; also return whether one is away that could get one."""
    chosen: list[WorkerHandle] = []
    is_any_away = False
    for _ in range(len(candidates)):
        if len(chosen) >= n:
            break
        ws = candidates.popleft()
        candidates.append(ws)
        if (
            ws in task.replicas
            or ws in wish.asked
            or wish.failed.get(ws, 0) >= MAX_FAILURES
            or not may_hold(ws, names)
        ):
            continue
        if ws.is_away:
            is_any_away = True
        elif fits(ws):
            chosen.append(ws)
    return chosen, is_any_away


def _end_move(state: SchedulerState, task: SchedulerTask, wish: Wish, source: WorkerHandle) -> None:
    """Drop the copy that was moved, if another worker has it now."""
    if source not in task.replicas or source.is_away:
        return
    if any(ws is not source and may_hold(ws, wish.workers) for ws in task.replicas):
        drop_copy(state, task, source)


def drop_copy(state: SchedulerState, task: SchedulerTask, ws: WorkerHandle) -> None:
    """Let a worker drop its copy, which is not the only one."""
    missing.lose_replica(state, task, ws)
    drop_attempt(state, ws, task.attempt)
    for client in task.wanted_by if not task.delivered else ():
        send_states(state, client, [task.key])


def is_wished(state: SchedulerState, task: SchedulerTask) -> bool:
    """Return whether copies of a task are wanted, or made."""
    wish = copies_of(state).wishes.get(task)
    return wish is not None and not is_over(task, wish)


def _send(state: SchedulerState, asked: dict[WorkerHandle, list[SchedulerTask]]) -> None:
    for ws, tasks in asked.items():
        rows = located(
            ws, tasks, [reachable(ws, task, state.now) or task.replicas for task in tasks]
        )
        state.send(
            ws.peer,
            m.HoldCopies(
                keys=rows.keys,
                attempts=rows.attempts,
                nbytes=rows.nbytes,
                holders=rows.holders,
                spec_hashes=rows.spec_hashes,
            ),
        )


def _look(state: SchedulerState) -> None:
    """Ask again the workers that have not reported their copies."""
    copies = copies_of(state)
    copies.next_look = None
    again: dict[WorkerHandle, list[SchedulerTask]] = {}
    for task in copies.open:
        wish = copies.wishes[task]
        for ws, n in list(wish.asked.items()):
            if is_over(task, wish) or ws in task.replicas:
                del wish.asked[ws]
            elif n >= MAX_TRIES:
                del wish.asked[ws]
                wish.failed[ws] = MAX_FAILURES
            elif not ws.is_away:
                wish.asked[ws] = n + 1
                again.setdefault(ws, []).append(task)
    _send(state, again)
    advance(state)


def _answer_questions(state: SchedulerState) -> None:
    """Answer the questions of which no copy is under way any more."""
    copies = copies_of(state)
    for question in list(copies.questions):
        for task in [task for task in question.waiting if task not in copies.open]:
            del question.waiting[task]
        if question.waiting:
            continue
        copies.questions.remove(question)
        if question.peer in state.roles:
            numbers = {task.key: len(task.replicas) for task in question.tasks}
            info = {"keys": list(numbers), "n_copies": list(numbers.values())}
            state.send(question.peer, m.Answer(request=question.request, info=info, next_page=""))


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
COPY_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "copies are fetched by registered workers that stay": lambda s: [
        (task, ws)
        for task, wish in copies_of(s).wishes.items()
        for ws in (*wish.asked, *wish.failed)
        if ws.is_leaving or s.workers.get(ws.peer) is not ws
    ],
    "a rescue is known while its copy is under way": lambda s: [
        task
        for task, wish in copies_of(s).wishes.items()
        if wish.is_rescue and not is_over(task, wish) and task not in copies_of(s).open
    ],
    "open and short list tasks with a wish": lambda s: [
        task
        for task in (*copies_of(s).open, *copies_of(s).short)
        if task not in copies_of(s).wishes
    ],
    "a wish with a copy under way is open": lambda s: [
        task
        for task, wish in copies_of(s).wishes.items()
        if wish.asked and not is_over(task, wish) and task not in copies_of(s).open
    ],
    "workers are asked again while copies are under way": lambda s: [
        task for task in copies_of(s).open if copies_of(s).next_look is None
    ],
    "a question waits for copies that are under way": lambda s: [
        (question.request, task)
        for question in copies_of(s).questions
        for task in question.waiting
        if task not in copies_of(s).open
    ],
}
