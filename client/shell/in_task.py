"""Recognises calls from tasks: workers may be threads of this process (`processes=False`)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import WaitingCycle
from ...protocol.wire.messages.coordination import owner_of_attempt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..actors import ActorFuture
    from ..core.tasks import FutureState

_MODULE: Final = f"{__name__.partition('.')[0]}.worker.context"

#: Event loops in which all clients are awaited.
_awaiting: Final[set[Any]] = set()


def has_tasks() -> bool:
    """Return whether threads of this process may run tasks."""
    return _MODULE in sys.modules


def is_in_task() -> bool:
    """Return whether the calling thread is one that runs tasks of a worker."""
    context = sys.modules.get(_MODULE)
    return context is not None and context.is_in_task()


def context_here() -> Any:
    """Return the `WorkerContext` of the calling thread; None if it runs no tasks."""
    context = sys.modules.get(_MODULE)
    return context.get_worker() if context is not None and context.is_in_task() else None


def awaits_here(is_asynchronous: bool) -> bool:
    """Return whether the calls of a client are awaited by the calling thread.

    In a task that follows from the task, because it has not chosen its client: they are awaited by
    coroutine functions, and block wherever no event loop runs.

    Args:
        is_asynchronous: whether they are awaited outside of tasks.
    """
    if is_awaiting():
        return True
    context = sys.modules.get(_MODULE)
    if context is None or not context.is_in_task():
        return is_asynchronous
    if asyncio._get_running_loop() is None:
        return False
    return is_asynchronous or context.is_in_coroutine()


def is_awaiting() -> bool:
    """Return whether the calls of all clients are awaited in the event loop that runs here."""
    return bool(_awaiting) and asyncio._get_running_loop() in _awaiting


@contextlib.contextmanager
def awaiting() -> Iterator[None]:
    """Have the calls of all clients, also of blocking ones, awaited in the loop that runs here.

    Set `may_be_asynchronous` of the engine first.
    """
    loop = asyncio.get_running_loop()
    _awaiting.add(loop)
    try:
        yield
    finally:
        _awaiting.discard(loop)


def owner_here() -> str:
    """Return how the scheduler knows the calling thread if it runs a task; "" if it runs none."""
    context = context_here()
    return owner_of_attempt(context.attempt) if context is not None and context.attempt else ""


def check_not_own_calls(calls: Iterable[ActorFuture[Any, Any]]) -> None:
    """Raise WaitingCycle if the calling thread is that of an actor that has yet to do a call.

    Calls that it has done are waited for as any others: their answers are on the way.
    """
    seat: Any = getattr(context_here(), "seat", None)
    actor = getattr(seat, "actor", "")
    for call in calls if actor else ():
        if call.actor_key == actor and seat.is_behind(call.id):
            raise WaitingCycle(
                f"actor {actor!r} would wait for itself, for ever: its method waits for "
                f"{call.name}() of the same actor. Call the method of the object itself, or make "
                "both coroutines and await the call"
            )


def check_not_own(states: list[FutureState]) -> None:
    """Raise WaitingCycle if the calling task is among those that it is about to wait for."""
    context = sys.modules.get(_MODULE)
    key = "" if context is None else context.task_here()
    if key and any([state.key == key for state in states]):  # noqa: C419 - faster, of many states
        raise WaitingCycle(
            f"task {key!r} would wait for itself, for ever: it reads the future of its own key. "
            "Equal calls share one key, so submit this call with pure=False or another key="
        )
