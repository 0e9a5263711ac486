"""How callers wait in an engine: threads that block, and coroutines. A part of `engine`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from ...protocol.errors import WaitingCycle
from ...protocol.host.blocking import TaskWait, awaited, blocked
from ..core.events import (
    ForgetWatcher,
    SendInOrder,
    Tell,
    Unwatch,
    Watch,
    Withdraw,
)
from ..core.tasks import FutureState, Watcher
from .in_task import check_not_own, check_not_own_calls, is_in_task
from .interrupts import Interruption, on_interrupt
from .watchers import AsyncWaiter, ThreadWaiter, Waiter, call_in, is_ready

if TYPE_CHECKING:
    from ..actors import ActorFuture
    from ..display.output import TaskOutputs
    from .engine import Engine
    from .lone_caller import PastLoop

#: Tasks that a worker reports of a wait in one of its tasks.
MAX_KEYS: Final = 32


#: {call of an actor: what it calls when it has ended}
CallNotes: TypeAlias = "dict[ActorFuture, Callable[[], object]]"


class EngineWaiting:
    """The methods of `Engine` that wait."""

    #: Shows what workers send; None in a task, where nobody looks.
    shown: TaskOutputs | None = None
    #: The same if something was asked for; then waits look at it when they end.
    output: TaskOutputs | None = None
    #: The last Ctrl-C during a wait.
    interruption: Interruption | None = None
    loop: asyncio.AbstractEventLoop
    lock: threading.RLock
    _past_loop: PastLoop
    _thread_id: int

    if TYPE_CHECKING:

        def post(self, operation: Any) -> None: ...
        def check_open(self) -> None: ...

    def wait(
        self,
        waiter: ThreadWaiter,
        operation: Any,
        timeout: float | None,
        calls: Sequence[ActorFuture] = (),
    ) -> bool:
        """Post an operation that `waiter` is part of, and wait. Return whether it was done in time.

        The waiter is notified of each of the `calls` as well, once.

        Raises:
            ClientClosed: there would be no answer.
        """
        self.check_may_block()
        past_loop = self._past_loop
        done = False
        notes = watch_calls(self, waiter, calls) if calls else None
        try:
            past_loop.wait_begins(
                waiter, operation.__class__ is Watch and len(operation.states) == 1
            )
            self.post(operation)
            self.check_open()
            done = waiter.wait(timeout)
        finally:
            past_loop.wait_ends()
            if notes is not None:
                forget_calls(notes)
            if not done:  # also when interrupted
                self._forget(waiter, operation)
        return done

    async def wait_async(
        self,
        waiter: AsyncWaiter,
        operation: Any,
        timeout: float | None,
        wait: TaskWait | None = None,
        calls: Sequence[ActorFuture] = (),
    ) -> bool:
        """Do what `wait` does, in a coroutine of any loop; `wait` is what its worker reports."""
        done = False
        notes = watch_calls(self, waiter, calls)
        try:
            self.post(operation)
            self.check_open()
            with awaited(wait):
                done = await waiter.wait(timeout)
        finally:
            forget_calls(notes)
            if not done:
                self._forget(waiter, operation)
        return done

    def _forget(self, waiter: Waiter, operation: Any) -> None:
        if isinstance(operation, (Watch, Withdraw)):
            self.post(Unwatch(waiter, operation.states))
        else:
            self.post(ForgetWatcher(waiter))

    def wait_for(
        self,
        states: list[FutureState],
        timeout: float | None,
        *,
        wants_data: bool,
        n: int | None = None,
        stops_at_failure: bool = False,
        calls: Sequence[ActorFuture] = (),
    ) -> bool:
        """Wait for states that are not ready, all or `n` of them; in a task, without its thread.

        `calls` of actors are waited for as well, and are counted in `n`.
        """
        self.check_may_block()
        try:
            in_task = is_in_task()
            if self._past_loop.is_lent and len(states) == 1 and not (in_task or calls):
                start = 0.0 if timeout is None else time.monotonic()
                self._past_loop.receive_until_done(states[0], timeout)
                if is_ready(states[0], wants_data):
                    return True
                if timeout is not None:
                    timeout = max(timeout - (time.monotonic() - start), 0.0)
            n_left = len(states) + len(calls) if n is None else n
            waiter = ThreadWaiter(n_left, wants_data, stops_at_failure)
            if not in_task:
                return self.wait(waiter, Watch(waiter, states), timeout, calls)
            if calls and (not states or n_left == len(states) + len(calls)):
                check_not_own_calls(calls)
            with blocked(self._task_wait(waiter, states, timeout, calls)):
                is_done = self.wait(waiter, Watch(waiter, states), timeout, calls)
            self._check_end(waiter, states)
            return is_done
        except KeyboardInterrupt:
            self.note_interrupt(states)
            raise
        finally:
            if self.output is not None:
                self.show_output()

    def _task_wait(
        self,
        waiter: Waiter,
        states: list[FutureState],
        timeout: float | None,
        calls: Sequence[ActorFuture],
    ) -> TaskWait | None:
        """Return what the worker reports of a wait in one of its tasks; None if that may end."""
        check_not_own(states)
        if timeout is not None or waiter.n_left != len(states) + len(calls):
            return None

        def fail(text: str) -> None:
            with self.lock:
                waiter.fail(text)

        return _reported(states, calls, partial(call_in, self.loop, fail))

    def _check_end(self, waiter: Waiter, states: list[FutureState]) -> None:
        """Raise WaitingCycle if a wait would have had no end."""
        if waiter.problem:
            self.post(Unwatch(waiter, states))
            raise WaitingCycle(waiter.problem)

    async def wait_for_async(
        self,
        states: list[FutureState],
        timeout: float | None,
        *,
        wants_data: bool,
        n: int | None = None,
        stops_at_failure: bool = False,
        calls: Sequence[ActorFuture] = (),
    ) -> bool:
        """Do what `wait_for` does, in a coroutine."""
        n_left = len(states) + len(calls) if n is None else n
        waiter = AsyncWaiter(n_left, wants_data, stops_at_failure)
        wait = self._task_wait(waiter, states, timeout, calls) if is_in_task() else None
        try:
            is_done = await self.wait_async(waiter, Watch(waiter, states), timeout, wait, calls)
            self._check_end(waiter, states)
            return is_done
        finally:
            if self.output is not None:
                self.show_output()

    def note_level(self) -> None:
        """Report to the scheduler if what is wanted, such as a level of logging, has changed."""
        if self.output is not None and self.output.has_changed():
            self.post(SendInOrder(self.output.wanted()))

    def show_output(self) -> None:
        """Show what tasks have printed before their results came."""
        if self.output is not None and self.output.is_waiting:
            self.output.show()

    def note_interrupt(self, states: list[FutureState]) -> None:
        """Report to the user that Ctrl-C has ended the wait, and what goes on."""
        on_interrupt(cast("Engine", self), states)

    def check_may_block(self) -> None:
        """Raise RuntimeError in the thread of the event loop."""
        if threading.get_ident() == self._thread_id:
            raise RuntimeError(
                "this call would block the event loop that it waits for; await it, with "
                "Client(asynchronous=True)"
            )


class LastWait:
    """A wait of an `as_completed` in a task for the only future that is left."""

    __slots__ = ("_wake", "problem", "wait")

    def __init__(
        self,
        states: Sequence[FutureState],
        calls: Sequence[ActorFuture],
        wake: Callable[[], object],
    ) -> None:
        #: Why the wait would have no end; "" = it may have one.
        self.problem = ""
        self._wake = wake
        #: What the worker reports.
        self.wait = _reported(states, calls, self._fail)

    def _fail(self, text: str) -> None:
        self.problem = text
        self._wake()

    def check(self) -> None:
        """Raise WaitingCycle if the wait would have no end."""
        if self.problem:
            raise WaitingCycle(self.problem)


def _reported(
    states: Sequence[FutureState], calls: Sequence[ActorFuture], fail: Callable[[str], None]
) -> TaskWait:
    first = calls[:MAX_KEYS]
    return TaskWait(
        [state.key for state in states[:MAX_KEYS]],
        fail,
        [call.actor_key for call in first],
        [call.id for call in first],
    )


def watch_calls(engine: EngineWaiting, watcher: Watcher, calls: Iterable[ActorFuture]) -> CallNotes:
    """Have `watcher` notified of each of these calls, once, by the core as of states."""
    notes: CallNotes = {}
    for call in calls:
        note = partial(engine.post, Tell(watcher, call))
        if call.notify(note):
            notes[call] = note
        else:
            note()
    return notes


def forget_calls(notes: CallNotes) -> None:
    """End what `watch_calls` has begun."""
    for call, note in notes.items():
        call.forget(note)
