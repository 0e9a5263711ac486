"""Waits that have no end: tasks, actors and holders of locks that wait for each other.

A task waits for its inputs; one that runs waits for other tasks (`AttemptsBlocked`), for calls of
actors, or for a lock, which others hold. An actor whose thread waits (`ActorsBlocked`) does no
other call meanwhile. Such waits can form a cycle, though the inputs of tasks cannot. The wait that
closes it is the last to begin. So each wait without a time limit is looked at once, when it is
`SETTLE_S` old; if it is part of a cycle, it fails, with a text that names all others. Waits that
are younger do not count: a report of their end may be on its way. Nothing is looked at for each
task, and a wait that ends sooner costs a place in a queue.

A node is a task, or the owner of a lock: a thread of a client, or an attempt that was dropped and
still runs; or an actor that waits, as the attempt that made it. A call is no node: to wait for one
that an actor has not answered is to wait for the actor. Which calls it has answered is reported
with its wait, because an answer may be on its way for long.

A node is *live* if it may go on by itself. One that waits for all of some others is live if all of
these are; one that waits for any of them (a lease of a semaphore), if one is. A node of which
nothing is known, such as the client that fills a queue, counts as live: only what cannot end is an
error. A peer that is away counts as live until it is back, and so does a task that its client has
not submitted again yet. A wait that goes on because of one of these is looked at again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ....protocol.wire import messages as m
from ....protocol.wire.messages.coordination import attempt_of, owner_of_attempt
from ..actors.waits import waits_at
from ..records.tasks import ERRED, MEMORY, PROCESSING, WAITING, SchedulerTask
from .kinds import blockers_of
from .records import Call, objects_of

if TYPE_CHECKING:
    from ..records.peers import BlockedWait, ClientHandle, WorkerHandle
    from ..state import SchedulerState

#: The age at which a wait is looked at, and at which it counts for others, seconds.
SETTLE_S: Final = 1.0
#: Nodes looked at in one pass, and for one wait; a cycle of more is not found.
MAX_SEEN: Final = 5_000
#: Of sums of times, seconds.
_TOLERANCE_S: Final = 1e-3
#: Members of a cycle that are named in a text.
MAX_NAMED: Final = 8

#: A thread of a client; the text is chosen by the client.
Owner: TypeAlias = "tuple[ClientHandle, str]"


class Attempt(NamedTuple):
    """An attempt that runs, or has made an actor. It is a node if it was dropped, or if that waits.

    Both may hold locks.
    """

    ws: WorkerHandle
    number: int


Node: TypeAlias = "SchedulerTask | Owner | Attempt"


class Waits(NamedTuple):
    """The nodes for which a node waits."""

    nodes: list[Node]
    #: for all of them, or for any
    for_all: bool
    #: by which it waits; None = for tasks
    call: Call | None = None


class Suspect(NamedTuple):
    """A wait that is to be looked at."""

    due: float
    #: who waits; an attempt is named by worker and number, because it may be dropped meanwhile
    node: Owner | Attempt
    wait: BlockedWait | Call
    #: fails the wait, with a text
    fail: Callable[[str], None]


class Suspects:
    """The waits that are to be looked at, in order of time."""

    __slots__ = ("is_awaited", "waits")

    def __init__(self) -> None:
        self.waits: deque[Suspect] = deque()
        #: a deadline is set for the first of them
        self.is_awaited = False


def suspects_of(state: SchedulerState) -> Suspects:
    """Return the waits that may be parts of cycles."""
    return state.record(Suspects)


def suspect(
    state: SchedulerState, node: Node, wait: BlockedWait | Call, fail: Callable[[str], None]
) -> None:
    """Have a wait looked at that has just begun."""
    if isinstance(node, SchedulerTask):
        assert node.worker is not None, "it runs"
        node = Attempt(node.worker, node.attempt)
    suspects = suspects_of(state)
    suspects.waits.append(Suspect(state.awake_s + SETTLE_S, node, wait, fail))
    if not suspects.is_awaited:
        suspects.is_awaited = True
        state.call_after(SETTLE_S, _look)


def on_attempt_blocked(
    state: SchedulerState, ws: WorkerHandle, attempt: int, wait: BlockedWait
) -> None:
    """Have the wait of an attempt for tasks or actors looked at."""

    def fail(text: str) -> None:
        state.send(ws.peer, m.FailWaits(attempts=[attempt], texts=[text]))

    if wait.keys or wait.callees:
        suspect(state, Attempt(ws, attempt), wait, fail)


def _look(state: SchedulerState) -> None:
    """Look at the waits that are due, the last one first, as many as one pass may."""
    suspects = suspects_of(state)
    waits = suspects.waits
    now = state.awake_s
    due: list[Suspect] = []
    while waits and waits[0].due <= now + _TOLERANCE_S:
        due.append(waits.popleft())
    left = MAX_SEEN
    live: set[Node] = set()
    unsure: set[Node] = set()
    again: list[Suspect] = []
    while due and left > 0:
        one = due.pop()
        left -= 1
        if not _goes_on(state, one):
            continue
        node = _now(state, one.node)
        n_before = len(live)
        members = find_cycle(state, node, live, unsure)
        left -= len(live) - n_before
        if members is None:
            if node in unsure:
                again.append(one._replace(due=now + SETTLE_S))
            continue
        left -= len(members)
        if members[0] == node:
            one.fail(describe_cycle(state, members))
            live.add(node)  # so are those that wait for it
        else:  # it waits for a cycle, which is broken first
            again.append(one._replace(due=now + SETTLE_S))
    waits.extendleft(reversed(due))
    waits.extend(again)
    suspects.is_awaited = bool(waits)
    if waits:
        state.call_after(max(waits[0].due - now, SETTLE_S / 10), _look)


def _goes_on(state: SchedulerState, one: Suspect) -> bool:
    node, wait = one.node, one.wait
    if isinstance(node, Attempt):
        ws, attempt = node
        is_here = state.workers.get(ws.peer) is ws
        return is_here and (
            _wait_of(state, node) is wait or objects_of(state).waits.get(attempt) is wait
        )
    return objects_of(state).waits.get(node) is wait


def _now(state: SchedulerState, node: Owner | Attempt) -> Node:
    """Return the task of an attempt if it is the current one; of a thread perhaps its actor."""
    if isinstance(node, Attempt):
        return node.ws.processing.get(node.number, node)
    return node_of(state, *node)  # that it waits has been reported meanwhile


def _wait_of(state: SchedulerState, attempt: Attempt) -> BlockedWait | None:
    """Return the wait that was reported of an attempt, or of the actor that it has made."""
    ws, number = attempt
    actor = waits_at(state, ws).get(number)
    return ws.blocked.get(number) if actor is None else actor.wait


def actor_node(state: SchedulerState, task: SchedulerTask) -> Attempt | None:
    """Return the node of the actor that a task has made, if the actor waits."""
    if task.state != MEMORY:
        return None
    attempts = [Attempt(ws, task.attempt) for ws in task.replicas]  # one, but for a copy at times
    return next((one for one in attempts if one.number in waits_at(state, one.ws)), None)


def waits_of(state: SchedulerState, node: Node) -> Waits | None:
    """Return what a node waits for, without a time limit; None if it is live for all we know."""
    if isinstance(node, Attempt):
        here, number = node
        is_known = number in here.zombies or number in waits_at(state, here)
        return _waits_of_attempt(state, node) if is_known and not here.is_away else None
    if not isinstance(node, SchedulerTask):
        call = objects_of(state).waits.get(node)
        return None if call is None else _waits_of_call(state, call)
    if node.state == WAITING:
        return Waits(list(node.waiting_on or ()), for_all=True)
    ws = node.worker
    if node.state != PROCESSING or ws is None or ws.is_away:
        return None
    missing: list[Node] = [one for one in node.dependencies if one.state != MEMORY]
    if missing:
        return Waits(missing, for_all=True)
    return _waits_of_attempt(state, Attempt(ws, node.attempt))


def _waits_of_attempt(state: SchedulerState, attempt: Attempt) -> Waits | None:
    wait = _wait_of(state, attempt)
    call = call_of(state, attempt)
    if wait is None and (call is None or not call.blocks):
        return None
    if wait is not None and (wait.keys or wait.callees):
        tasks = [state.tasks.get(key) for key in wait.keys]
        left: list[Node] = [t for t in tasks if t is not None and t.state not in (MEMORY, ERRED)]
        left += _actors_waited_for(state, wait)
        return Waits(left, for_all=True) if left else None
    return None if call is None else _waits_of_call(state, call)


def _actors_waited_for(state: SchedulerState, wait: BlockedWait) -> list[Node]:
    """Return the actors that a wait for calls is for: those that have not answered these."""
    nodes: list[Node] = []
    for key, call in zip(wait.callees, wait.calls, strict=False):
        task = state.tasks.get(key)
        if task is None:
            continue
        node = actor_node(state, task)
        if node is None:
            nodes.append(task)  # in memory, and so live
        elif waits_at(state, node.ws)[node.number].is_open(call):
            nodes.append(node)
    return nodes


def call_of(state: SchedulerState, attempt: Attempt) -> Call | None:
    """Return the call on a lock or the like in which an attempt waits, or an actor."""
    waits = objects_of(state).waits
    call = waits.get(attempt.number)
    if call is not None or attempt.number not in waits_at(state, attempt.ws):
        return call
    owner = owner_of_attempt(attempt.number)
    # The workers of a program (`processes=False`) use its client.
    clients = attempt.ws.task_clients or state.clients.values()
    return next((waits[client, owner] for client in clients if (client, owner) in waits), None)


def _running(node: Node) -> Attempt | None:
    """Return the attempt that a node is; None if it is none that runs."""
    if not isinstance(node, SchedulerTask):
        return node if isinstance(node, Attempt) else None
    ws = node.worker if node.state == PROCESSING else None
    return None if ws is None else Attempt(ws, node.attempt)


def _is_away(state: SchedulerState, node: Node) -> bool:
    """Return whether a node is live only because a peer is away that may come back."""
    if isinstance(node, (SchedulerTask, Attempt)):
        attempt = _running(node)
        if attempt is None:
            return False
        wait = _wait_of(state, attempt)
        named = () if wait is None else (*wait.keys, *wait.callees)
        # A client in its tasks may not have submitted again what it waits for.
        if attempt.ws.is_away or any(key not in state.tasks for key in named):
            return True
        call = call_of(state, attempt)
    else:
        if node[0].peer is None:
            return True
        call = objects_of(state).waits.get(node)
    if call is None or call.timeout is not None:
        return False
    owners, _ = blockers_of(call) or ([], True)
    return any(client.peer is None for client in (call.client, *(client for client, _ in owners)))


def _waits_of_call(state: SchedulerState, call: Call) -> Waits | None:
    if call.timeout is not None or call.client.peer is None:
        return None
    blockers = blockers_of(call)
    if blockers is None:
        return None
    owners, for_all = blockers
    if any(client.peer is None for client, _ in owners):
        return None
    return Waits([node_of(state, *owner) for owner in owners], for_all, call)


def node_of(state: SchedulerState, client: ClientHandle, owner: str) -> Node:
    """Return the task that an owner is, or the attempt, if it is one that runs."""
    attempt = attempt_of(owner)
    if attempt:
        # The workers of a program (`processes=False`) use its client.
        for ws in state.workers.values() if client.worker is None else (client.worker,):
            if attempt in ws.processing:
                return ws.processing[attempt]
            if attempt in ws.zombies or attempt in waits_at(state, ws):
                return Attempt(ws, attempt)
    return client, owner


def waiter_of(node: Node) -> int | Owner:
    """Return under which name a call that waits is filed: an attempt goes by its number."""
    if isinstance(node, SchedulerTask):
        return node.attempt
    return node.number if isinstance(node, Attempt) else node


def is_young(state: SchedulerState, node: Node, waits: Waits) -> bool:
    """Return whether the report of a wait's end may still be on its way."""
    if waits.call is not None:
        since = waits.call.since
    else:
        attempt = _running(node)
        wait = None if attempt is None else _wait_of(state, attempt)
        if wait is None:
            return False
        since = wait.since
    return state.awake_s - since < SETTLE_S - _TOLERANCE_S


def find_cycle(
    state: SchedulerState, start: Node, live: set[Node], unsure: set[Node]
) -> list[Node] | None:
    """Return the cycle that keeps `start` from ever going on; None if there is none.

    Args:
        state: the scheduler's.
        start: a node that waits. If it is part of a cycle, it is the first one of the result.
        live: nodes that are known to be live; those that are found out are added.
        unsure: those of them that may be live only until a peer is back; likewise.
    """
    is_unsure = False
    edges: dict[Node, Waits] = {}
    stack: list[Node] = [start]
    while stack:
        node = stack.pop()
        is_unsure = is_unsure or node in unsure
        if node in edges or node in live:
            continue
        waits = waits_of(state, node)
        if waits is None or is_young(state, node, waits):
            live.add(node)
            if waits is None and _is_away(state, node):
                unsure.add(node)
                is_unsure = True
            continue
        if len(edges) >= MAX_SEEN:
            return None
        edges[node] = waits
        stack.extend(waits.nodes)
    searched = list(edges)
    _spread(edges, live)
    if is_unsure:
        unsure.update(node for node in searched if node in live)
    if start in live:
        return None
    path = _path(edges, live, start, start)
    if path is not None:
        return path
    # It waits for a cycle that it is no part of.
    node = start
    seen: dict[Node, None] = {}
    while node not in seen:
        seen[node] = None
        node = next(one for one in edges[node].nodes if one not in live)
    order = list(seen)
    return order[order.index(node) :]


def _spread(edges: dict[Node, Waits], live: set[Node]) -> None:
    """Add the nodes that are live because others are, and take them out of `edges`."""
    readers: dict[Node, list[Node]] = {}
    n_needed: dict[Node, int] = {}
    ready: list[Node] = []
    for node, waits in edges.items():
        nodes = dict.fromkeys(waits.nodes)
        n_live = sum(one in live for one in nodes)
        n_needed[node] = (len(nodes) if waits.for_all else 1) - n_live
        if n_needed[node] <= 0:
            ready.append(node)
        for one in nodes:
            if one not in live:
                readers.setdefault(one, []).append(node)
    while ready:
        node = ready.pop()
        if node in live:
            continue
        live.add(node)
        edges.pop(node, None)
        for reader in readers.get(node, ()):
            n_needed[reader] -= 1
            if n_needed[reader] <= 0:
                ready.append(reader)


def _path(edges: dict[Node, Waits], live: set[Node], start: Node, end: Node) -> list[Node] | None:
    """Return the nodes of a way from `start` back to `end`, by nodes that are not live."""
    came_from: dict[Node, Node] = {}
    line: deque[Node] = deque([start])
    while line:
        node = line.popleft()
        for one in edges[node].nodes:
            if one == end:
                path = [node]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if one not in live and one not in came_from:
                came_from[one] = node
                line.append(one)
    return None


def describe_cycle(state: SchedulerState, members: list[Node]) -> str:
    """Describe a cycle, for the error of its first member."""
    parts = []
    for node, following in zip(members, [*members[1:], members[0]], strict=True):
        waits = waits_of(state, node)
        call = None if waits is None else waits.call
        what = describe_node(state, following)
        if call is not None:
            what = f"{describe_object(call)}, which {what} holds"
        elif isinstance(following, Attempt) and following.number in waits_at(state, following.ws):
            what = f"a call of {what}"
        parts.append(f"{describe_node(state, node)} waits for {what}")
    if len(parts) > MAX_NAMED:
        n_more = len(parts) - MAX_NAMED + 1
        parts[MAX_NAMED - 1 :] = [f"and so on, by {n_more} more"]
    return (
        f"{describe_node(state, members[0])} would wait for ever, because it waits for itself: "
        f"{'; '.join(parts)}. Let one of them not wait, release what it holds first, or give a "
        "timeout"
    )


def describe_node(state: SchedulerState, node: Node) -> str:
    """Name a task, or a thread of a client."""
    if isinstance(node, SchedulerTask):
        return f"task {node.key!r}"
    if isinstance(node, Attempt):
        actor = waits_at(state, node.ws).get(node.number)
        if actor is not None:
            return f"actor {actor.key!r}"
        return f"attempt {node.number} on worker {node.ws.name}, which was dropped and still runs"
    client, owner = node
    attempt = attempt_of(owner)
    if attempt:
        return f"a task of {client.name} that has ended without releasing it"
    return f"{owner} of client {client.name}"


def describe_object(call: Call) -> str:
    """Name the object that a call is about."""
    names = call.arguments.get("names")
    if isinstance(names, list):
        named = ", ".join(repr(name) for name in names[:MAX_NAMED])
        return f"the locks {named} of a MultiLock"
    return f"{call.kind} {call.name!r}"
