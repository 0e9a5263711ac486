"""Workers that are sent away on request: which ones go, and what became of them.

A client asks with the question `retire`, which names workers, or says how many go or stay. The
answer comes when the last of them is gone. A worker that goes gets nothing more, gives back what it
has not started, finishes what it runs, and leaves. (After SIGTERM it does the same by itself.)

Which ones: those whose end costs least. The cost is the time to move the needed results of which a
worker has the only copy, and the time of what it runs. So workers that neither run nor solely hold
anything go first.

A worker is kept, with the reason, if its results have no room at those that stay, or if it has or
makes an actor, which cannot be moved. `losses` says otherwise: "wait" lets it go as soon as there
is room, or the results are released, and "drop" lets what has no room be lost.

An order has an id, so one that is asked again after a lost connection does not send more away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from typing import TYPE_CHECKING, Any, Final

from ....protocol.reported import MEMORY_HIGH
from ....protocol.wire import messages as m
from ....protocol.wire.message import MAX_FACTS
from ....protocol.wire.question_arguments import BadArgument, Info, Page
from ....protocol.wording import counted, sized
from ..actors.actors import is_actor
from ..members.membership import let_leave
from ..memory.usage import free_nbytes
from ..records.peers import WorkerHandle
from ..records.tasks import SchedulerTask
from ..recovery.records import recovery_of
from .leavers import is_needed, is_sole, leavers_of, let_drop

if TYPE_CHECKING:
    from ..state import SchedulerState
    from .leavers import Leaver

#: Orders that are kept; the oldest finished one is dropped for the next.
MAX_ORDERS: Final = 100
MAX_ID_CHARS: Final = 64
#: Workers of the answer to `leaving_order`.
N_LEAVING: Final = 1000
#: Workers of one order: its answer is a map of them.
MAX_WORKERS: Final = MAX_FACTS
#: Held results that are looked at, of all candidates together, and of each at least.
MAX_SEEN: Final = 20_000
LEAST_SEEN: Final = 16
#: The ends of a worker of an order.
LEFT, LOST, KEPT = "left", "lost", "kept"
#: Of an order that is answered before that.
LEAVING: Final = "leaving"
#: What becomes of needed results without room elsewhere: their worker is kept, leaves when that has
#: changed, or goes all the same.
KEEP, WAIT, DROP = "keep", "wait", "drop"
#: About how long a result takes to be moved, and a byte of it, for the order in which workers go.
_MOVE_NS: Final = 10_000
_BYTE_NS: Final = 1


@dataclass(slots=True)
class Order:
    """The request of one client, while its workers leave and for some time after that."""

    peer: int  #: that asks, or has asked last
    request: int  #: of that peer; 0 = it was answered
    #: {worker id: worker} of those that have not gone yet
    leaving: dict[str, WorkerHandle] = field(default_factory=dict)
    #: {address: what became of it}, for the answer
    ends: dict[str, Info] = field(default_factory=dict)


class Retiring:
    """The orders of all clients."""

    __slots__ = ("orders",)

    def __init__(self) -> None:
        #: {order id: order}, oldest first; at most MAX_ORDERS
        self.orders: dict[str, Order] = {}

    def note_gone(
        self, state: SchedulerState, ws: WorkerHandle, reason: str | None, leaver: Leaver
    ) -> None:
        """Note that a worker has left for a reason (None = it was lost), at a cost."""
        n_recomputed = sum(not is_for_good for _, _, is_for_good in leaver.lost)
        for order in self.orders.values():
            if order.leaving.pop(ws.worker_id, None) is not None:
                end, n_moved = LOST if reason is None else LEFT, leaver.n_moved
                order.ends[ws.address] = _end_of(ws, end, reason or "", n_recomputed, n_moved)
                if not order.leaving:
                    _answer(state, order)

    def make_room(self) -> bool:
        """Drop the oldest finished order if there are too many; False if none has finished."""
        if len(self.orders) < MAX_ORDERS:
            return True
        done = next((name for name, order in self.orders.items() if not order.leaving), None)
        if done is None:
            return False
        del self.orders[done]
        return True


def retiring_of(state: SchedulerState) -> Retiring:
    """Return the orders of clients that workers leave."""
    return state.record(Retiring)


def on_retire(state: SchedulerState, peer: int, message: m.Ask) -> None:
    """Let workers leave, as a client asks; the answer follows when they are gone.

    Raises:
        BadArgument: the order contradicts itself, or cannot be followed now.
    """
    arguments = message.arguments
    name = arguments.get("order")
    if type(name) is not str or not 0 < len(name) <= MAX_ID_CHARS:
        raise BadArgument("order= is a text that no other order has")
    order = retiring_of(state).orders.get(name)
    if order is None:
        named = _named(state, arguments)
        losses = arguments.get("losses", KEEP)
        if losses not in (KEEP, WAIT, DROP):
            raise BadArgument(f"losses= is keep, wait or drop, not {str(losses)[:40]!r}")
        n = _number(arguments, len(state.staying), named)
        if n is not None and min(n, len(state.staying)) > MAX_WORKERS:
            raise BadArgument(f"one order is for at most {MAX_WORKERS} workers, not for {n}")
        if state.awaits_peers:
            raise BadArgument(
                "the scheduler has just started and waits for its workers; ask again in some "
                "seconds"
            )
        if not retiring_of(state).make_room():
            raise BadArgument(f"{MAX_ORDERS} others are under way; ask again when one is done")
        order = retiring_of(state).orders[name] = Order(peer, message.request)
        _choose(state, order, named, n, losses)
    order.peer, order.request = peer, message.request
    if not order.leaving or arguments.get("wait") is False:
        _answer(state, order)
        order.request = 0


def _named(state: SchedulerState, arguments: Info) -> list[WorkerHandle] | None:
    """Return the workers that are named by id; None = all. One that is gone is left out."""
    ids = arguments.get("workers")
    if ids is None:
        return None
    if type(ids) is not list or not set(map(type, ids)) <= {str} or len(ids) > MAX_WORKERS:
        raise BadArgument(f"workers= is a list of the ids of at most {MAX_WORKERS} workers")
    found = map(state.workers_by_id.get, dict.fromkeys(ids))
    return [ws for ws in found if ws is not None]


def _number(arguments: Info, n_staying: int, named: list[WorkerHandle] | None) -> int | None:
    """Return how many are to leave; None = all that are named."""
    n, keep = _whole_number(arguments, "n"), _whole_number(arguments, "keep")
    if n is not None and keep is not None:
        raise BadArgument("n= is how many leave, keep= how many stay; give one of them")
    if keep is not None:
        return max(0, n_staying - keep)
    if n is None and named is None:
        raise BadArgument("give the workers that leave, or n=, how many of all")
    return n


def _whole_number(arguments: Info, name: str) -> int | None:
    value: int | None = arguments.get(name)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise BadArgument(f"{name}= is a whole number >= 0, not {str(value)[:40]!r}")


def _choose(
    state: SchedulerState,
    order: Order,
    named: list[WorkerHandle] | None,
    n: int | None,
    losses: str,
) -> None:
    """Let those leave whose end costs least; n = None lets all go that are named."""
    candidates = list(state.staying.values()) if named is None else named
    for ws in candidates if n is None else ():
        if ws.is_leaving and len(order.leaving) < MAX_WORKERS:
            order.leaving[ws.worker_id] = ws  # it goes in any case: the answer tells how
            if losses == DROP:
                let_drop(state, ws)
    candidates = [ws for ws in candidates if not ws.is_leaving]
    n_left = len(candidates) if n is None else n
    retired: dict[str, list[str]] = {}
    room = _Room(state) if losses == KEEP else None
    for ws in ranked(state, candidates):
        if not n_left or len(order.leaving) + len(order.ends) >= MAX_WORKERS:
            break
        reason = why_kept(state, ws, drops=losses == DROP)
        if not reason and room is not None:
            reason = room.why_lacking(ws)
        if reason:
            order.ends[ws.address] = _end_of(ws, KEPT, reason)
            continue
        n_left -= 1
        order.leaving[ws.worker_id] = ws
        state.send(ws.peer, m.LeaveCluster(reason="a client retired it"))
        let_leave(state, ws, "a client retired it")
        if losses == DROP:
            let_drop(state, ws)
        retired.setdefault(ws.supervisor_id, []).append(ws.worker_id)
    for supervisor_id, worker_ids in retired.items():
        for peer in state.supervisors_by_id.get(supervisor_id, ()):
            state.send(peer, m.WorkersRetired(worker_ids=worker_ids))


def ask_order(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the names of the workers whose end costs least, in the order in which to end them."""
    order = ranked(state, list(state.staying.values()))
    return {"names": [ws.name for ws in order[:N_LEAVING]]}, ""


def ask_losses(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return which of some groups of workers may leave, so that nothing that is needed is lost.

    The workers of a group leave together, as those of a pod. The first ones in this order leave, at
    most `n`; of those that must stay the reason is given. Nothing happens.
    """
    groups, n = arguments.get("groups", []), _whole_number(arguments, "n")
    if type(groups) is not list or len(groups) > N_LEAVING:
        raise BadArgument(f"groups= is a list of at most {N_LEAVING} lists of names")
    room = _Room(state)
    leaving: list[int] = []
    kept: list[list[Any]] = []
    n_names = 0
    for i, names in enumerate(groups):
        if type(names) is not list or not set(map(type, names)) <= {str}:
            raise BadArgument("a group is a list of names of workers")
        n_names += len(names)
        if n_names > N_LEAVING:
            raise BadArgument(f"groups= has at most {N_LEAVING} names")
        if len(leaving) == n:
            break
        workers = [ws for name in dict.fromkeys(names) if (ws := state.staying.get(name))]
        reason = next(filter(None, (why_kept(state, ws) for ws in workers)), "")
        reason = reason or room.why_lacking(*workers)
        if reason:
            kept.append([i, reason])
        else:
            leaving.append(i)
    return {"leaving": leaving, "kept": kept}, ""


def ranked(state: SchedulerState, candidates: list[WorkerHandle]) -> list[WorkerHandle]:
    """Return workers in the order in which they should leave, the least costly first.

    Of equal ones those with the least work and data, then the newest.
    """
    n_each = max(LEAST_SEEN, MAX_SEEN // max(1, len(candidates)))
    places = {ws: (*_cost(ws, n_each, state.now), -i) for i, ws in enumerate(candidates)}
    return sorted(candidates, key=places.__getitem__)


def _cost(ws: WorkerHandle, n_each: int, now: float) -> tuple[float, int, int]:
    """Return the time (ns) that its end takes, and its work and bytes.

    Of many results only the first are looked at, and stand for the others.
    """
    move_ns = 0.0
    n_seen = min(n_each, len(ws.has_what))
    for task in islice(ws.has_what, n_each):
        if _is_last(task, ws) and is_needed(task):
            move_ns += _MOVE_NS + task.nbytes * _BYTE_NS
    if n_seen:
        move_ns *= len(ws.has_what) / n_seen
    run_ns = 0.0
    if ws.n_busy:
        n_running = min(ws.n_busy, ws.nthreads)
        estimate_ns = ws.occupancy_ns * n_running / ws.n_busy
        run_ns = 1.0 + max(estimate_ns, n_running * (now - ws.last_progress) * 1e9)
    return move_ns + run_ns, ws.occupancy_ns, ws.nbytes


def why_kept(state: SchedulerState, ws: WorkerHandle, *, drops: bool = False) -> str:
    """Return why a worker must stay, "" if it may leave; `drops` lets it go with its actors."""
    if ws.is_away:
        return "its connection is broken, and it is expected back; ask again when it is there"
    waiting = recovery_of(state).rows_at.get(ws, ())
    if waiting:
        return f"it has {len(waiting)} results that clients of the last scheduler may come back for"
    if drops or m.ACTOR_FUNCTION not in state.functions:
        return ""
    there = chain(
        ws.has_what, ws.processing.values()
    )  # one that waits or is being made may be there soon
    actors = [task.key for task in there if is_actor(task)]
    if not actors:
        return ""
    return (
        f"it has {counted(len(actors), 'actor')}, {actors[0]!r} for one, which cannot be moved; "
        "release them first, or let them end (drop=True, --drop)"
    )


class _Room:
    """The room for what leaves with the workers of one order, at those that stay."""

    def __init__(self, state: SchedulerState) -> None:
        there = [ws for ws in state.staying.values() if not ws.is_away]
        #: {worker: bytes that it may get, inf = any} of those that stay
        self._free = {ws: max(0.0, free_nbytes(ws, MEMORY_HIGH)) for ws in there}
        self._n_boundless = sum(free == inf for free in self._free.values())
        self._free_nbytes = sum(free for free in self._free.values() if free < inf)
        #: {worker: None} of those that leave with this order
        self._going: dict[WorkerHandle, None] = {}
        #: bytes that the workers have which leave already
        self._nbytes = sum(
            task.nbytes
            for ws in leavers_of(state).by_worker
            for task in ws.has_what
            if task.replicas[0] is ws and is_sole(task, ws) and is_needed(task)
        )

    def why_lacking(self, *workers: WorkerHandle) -> str:
        """Return why workers must stay because of their results; "" = they leave together."""
        going = {**self._going, **dict.fromkeys(workers)}
        rest = [self._free[ws] for ws in workers if ws in self._free]
        n_others = len(self._free) - len(rest)
        is_boundless = self._n_boundless > sum(free == inf for free in rest)
        free_nbytes = self._free_nbytes - sum(free for free in rest if free < inf)
        sole = {
            task: None
            for ws in workers
            for task in ws.has_what
            if all(one in going or one.is_leaving for one in task.replicas) and is_needed(task)
        }
        nbytes = sum(task.nbytes for task in sole)
        if not sole or is_boundless or (n_others and self._nbytes + nbytes <= free_nbytes):
            self._nbytes += nbytes
            self._going = going
            self._free_nbytes = free_nbytes
            for ws in workers:
                self._n_boundless -= self._free.pop(ws, 0.0) == inf
            return ""
        n, they = len(sole), "it has" if len(workers) == 1 else "they have"
        where = "the workers that stay have no room" if n_others else "no other worker stays"
        copies = f"the only {'copy' if n == 1 else 'copies'} of {counted(n, 'result')}"
        return (
            f"{they} {copies} ({sized(nbytes)}) that {'is' if n == 1 else 'are'} still needed, "
            f"{next(iter(sole)).key!r} for one, and {where}: release or gather them, or let them "
            "be dropped (drop=True, --drop)"
        )


def _is_last(task: SchedulerTask, ws: WorkerHandle) -> bool:
    """Return whether the data of a task goes with a worker, and those that leave already."""
    return all(holder is ws or holder.is_leaving for holder in task.replicas)


def _end_of(
    ws: WorkerHandle, end: str, reason: str, n_recomputed: int = 0, n_moved: int = 0
) -> Info:
    return {
        "name": ws.name,
        "end": end,
        "reason": reason,
        "n_recomputed": n_recomputed,
        "n_moved": n_moved,
    }


def _answer(state: SchedulerState, order: Order) -> None:
    """Answer an order that is done, or not waited for, if the peer is still there."""
    if order.request and order.peer in state.roles:
        ends = {ws.address: _end_of(ws, LEAVING, "") for ws in order.leaving.values()}
        info: dict[str, Any] = {"workers": {**order.ends, **ends}}
        state.send(order.peer, m.Answer(request=order.request, info=info, next_page=""))


# -- invariants ------------------------------------------------------------------------------------
#: {what holds: what breaks it}
RETIRING_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "orders are few": lambda s: [*retiring_of(s).orders][MAX_ORDERS:],
    "an order waits for registered workers that leave": lambda s: [
        (name, ws)
        for name, order in retiring_of(s).orders.items()
        for worker_id, ws in order.leaving.items()
        if not ws.is_leaving or s.workers_by_id.get(worker_id) is not ws
    ],
}
