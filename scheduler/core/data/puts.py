"""Tasks whose value a client puts at the worker: large arguments.

Such a task (its function is `PUT_FUNCTION`) is placed, lost and placed again like any other. What
differs is what its worker waits for: not for a thread, but for the value. So with each assignment
a client that has the value is asked to put it there. The bytes do not pass the scheduler, unless
that client cannot reach the worker: then it sends them here, and they are passed on.

The client keeps the value as long as a call of its own may need it. If a value is lost that no
client has any more, the task fails, and so do those that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure, data_lost, scattered_lost
from ....protocol.wire.message import Message
from ..moves.transitions import err
from ..records.tasks import PROCESSING, SchedulerTask

if TYPE_CHECKING:
    from ..records.peers import ClientHandle, WorkerHandle
    from ..state import SchedulerState

_NO_CLIENT: Final = (
    "it is a large argument whose last copy was lost with a worker, and the client that submitted "
    "it is gone or has released all futures of its calls; submit the call again"
)
#: Stands for the entry of an attempt whose value was not asked for.
_NOTHING: Final = (None, None, ())
#: Entries of tasks that are done are taken out when there are so many, or twice as many as live.
_LEAST_PUTS: Final = 64


class Puts:
    """The values that clients were asked for."""

    __slots__ = ("asked", "n_before_next_look")

    def __init__(self) -> None:
        #: {attempt: (task, the client that was asked, those that do not have the value)}; of each
        #: task that awaits its value, and of some others
        self.asked: dict[int, tuple[SchedulerTask, ClientHandle, tuple[ClientHandle, ...]]] = {}
        self.n_before_next_look = _LEAST_PUTS

    def add(
        self, task: SchedulerTask, client: ClientHandle, without: tuple[ClientHandle, ...]
    ) -> None:
        """Note that a client was asked for the value of a task, and those that do not have it."""
        if len(self.asked) >= self.n_before_next_look:
            self.asked = {
                attempt: entry
                for attempt, entry in self.asked.items()
                if _awaits(entry[0], attempt)
            }
            self.n_before_next_look = max(_LEAST_PUTS, 2 * len(self.asked))
        self.asked[task.attempt] = (task, client, without)

    def of_client(self, client: ClientHandle) -> list[SchedulerTask]:
        """Return the tasks that await a value of this client."""
        return [
            task
            for attempt, (task, asked, _) in self.asked.items()
            if asked is client and _awaits(task, attempt)
        ]


def puts_of(state: SchedulerState) -> Puts:
    """Return the values that clients were asked for."""
    return state.record(Puts)


def _awaits(task: SchedulerTask, attempt: int) -> bool:
    return task.state == PROCESSING and task.attempt == attempt


def ask(state: SchedulerState, tasks: Iterable[SchedulerTask]) -> None:
    """Ask clients for the values of tasks that are assigned; fail those that no client has."""
    by_client: dict[ClientHandle, m.PutWanted] = {}
    for task in tasks:
        _, _, without = puts_of(state).asked.get(task.attempt, (None, None, ()))
        client = _find_client(state, task, without)
        ws = task.worker
        assert ws is not None
        if client is None:
            state.call_after(0.0, _give_up, task, task.attempt)
            continue
        puts_of(state).add(task, client, without)
        message = by_client.get(client)
        if message is None:
            message = by_client[client] = m.PutWanted(
                keys=[], attempts=[], holder_of=[], holders=[]
            )
        message.keys.append(task.key)
        message.attempts.append(task.attempt)
        message.holder_of.append(len(message.holders))
        message.holders.append(ws.address)
    for client, message in by_client.items():
        state.send_client(client, message)


def _find_client(
    state: SchedulerState, task: SchedulerTask, without: tuple[ClientHandle, ...]
) -> ClientHandle | None:
    """Return a client that may have the value: if possible one that is connected.

    A client keeps what its futures were computed from, also if it has released this one: most often
    the one that submitted it first.
    """
    first, others = task.group.client, state.clients.values()
    known = [client for client in others if client.number == first]
    wanting = [client for client in task.wanted_by if client.receive is None]
    found = [client for client in (*known, *wanting, *others) if client not in without]
    connected = [client for client in found if client.peer is not None]
    return next(iter(connected or found), None)


def _give_up(state: SchedulerState, task: SchedulerTask, attempt: int) -> None:
    """Fail a task whose value no client has, if none has come meanwhile that may have it."""
    if not _awaits(task, attempt):
        return
    _, _, without = puts_of(state).asked.get(attempt, _NOTHING)
    if _find_client(state, task, without) is None:
        err(state, task, _failure_of(state, task, _NO_CLIENT))
    else:
        ask(state, [task])


def _failure_of(state: SchedulerState, task: SchedulerTask, reason: str) -> Failure:
    if not task.group.task_class.takes_thread:
        return scattered_lost(task.key)
    return data_lost(task.key, reason)


def note_submitted(state: SchedulerState, client: ClientHandle, task: SchedulerTask) -> None:
    """Note that a client has the value of a task that it submits, though it may have lost it."""
    entry = puts_of(state).asked.get(task.attempt)
    if entry is not None and entry[0] is task and client in entry[2]:
        others = tuple(other for other in entry[2] if other is not client)
        puts_of(state).asked[task.attempt] = (task, entry[1], others)


def on_client_back(state: SchedulerState, client: ClientHandle) -> None:
    """Ask again for the values that a client was asked for: it may not have read it."""
    if puts_of(state).asked:
        ask(state, puts_of(state).of_client(client))


def on_client_gone(state: SchedulerState, client: ClientHandle) -> None:
    """Ask other clients for the values that are still needed."""
    if puts_of(state).asked:
        ask(state, puts_of(state).of_client(client))


def on_put(state: SchedulerState, _client: ClientHandle, message: m.Put) -> None:
    """Pass values on to their workers, which their client cannot reach."""
    for key, attempt, value in zip(message.keys, message.attempts, message.values, strict=True):
        task, _, _ = puts_of(state).asked.get(attempt, _NOTHING)
        if task is None or task.key != key or not _awaits(task, attempt) or value is None:
            state.counters.reports_stale += 1
            continue
        ws: WorkerHandle | None = task.worker
        if ws is not None and not ws.is_away:  # else it is placed again when that one is back
            put = m.Put(request=0, keys=[key], attempts=[attempt], values=[value])
            state.send(ws.peer, put)


def on_put_failed(state: SchedulerState, client: ClientHandle, message: m.PutFailed) -> None:
    """Ask another client for values that this one does not have, or fail the tasks."""
    again = []
    for key, attempt in zip(message.keys, message.attempts, strict=True):
        task, asked, without = puts_of(state).asked.get(attempt, _NOTHING)
        if task is None or task.key != key or not _awaits(task, attempt) or asked is not client:
            state.counters.reports_stale += 1
            continue
        without = (*without, client)
        if _find_client(state, task, without) is None:
            err(state, task, _failure_of(state, task, message.reason))
        else:
            puts_of(state).add(task, client, without)
            again.append(task)
    ask(state, again)


#: The messages of clients about values.
HANDLERS: Final[dict[type[Message], Callable[..., None]]] = {
    m.Put: on_put,
    m.PutFailed: on_put_failed,
}
