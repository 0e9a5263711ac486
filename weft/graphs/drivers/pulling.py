"""Threads of an executor pull tasks: the driver for executors that share this process's memory.

A *puller* is one call that was submitted to the executor. It takes a task, makes the call, stores
the result and takes the next, under one short lock in between; so short tasks run back to back,
and a long one does not delay other threads. At first there is one puller. A puller that leaves
tasks behind starts the next one, or wakes an idle one, unless one is starting already: on a graph
of tiny tasks, where more threads would only compete for the interpreter, few ever start.

The calling thread waits, so that Ctrl-C works, unless it is a puller itself: a task that runs a
graph on its own executor pulls tasks of that graph. Otherwise a pool whose threads all wait for
graphs would never end.

Invariants, under the lock: `_ready` holds tasks that no puller has taken; until the run is stopped,
a puller that is not idle runs a task or is on its way. Destructors of dropped values, which are
user code, run outside the lock.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future
from typing import Any

from ...protocol.errors import WrongExecutor
from ..core.reading import Graph
from ..core.state import finish
from ..core.tasks import GraphTask, call
from .executors import take_back
from .failing import call_again, told
from .nesting import OuterRun, context_for_tasks, waits_for_caller
from .relaying import Relay

#: An idle puller gives its thread back to the executor after this time.
_IDLE_S = 0.05
#: How often the calling thread checks whether its pullers were dropped. On Windows this is also the
#: delay of Ctrl-C.
_WAIT_S = 0.1


def run_pulling(
    graph: Graph,
    executor: Executor,
    n_workers: int,
    *,
    relay: Relay | None = None,
    rerun_exceptions_locally: bool = False,
) -> Any:
    """Run a graph on an executor of this process and return its results.

    Args:
        graph: used up by this.
        executor: `submit` is called from several threads.
        n_workers: largest number of its threads to use.
        relay: shows the run to callbacks, in this thread.
        rerun_exceptions_locally: repeat a call that failed in this thread.

    Raises:
        WrongExecutor: the executor takes no calls, or dropped those it had.
        BaseException: the exception of the first task that failed. Running tasks go on, and their
            results are dropped; no other starts.
    """
    if not graph.tasks:
        return graph.results()
    run = _PullingRun(graph, executor, n_workers, relay)
    try:
        if run.is_caller_pulling:
            run.pull_as_caller()
        else:
            run.start_puller()
        while not run.wait():
            run.check_pullers()
            if not run.is_caller_pulling and waits_for_caller(executor):
                # A ThreadPoolExecutor lists a thread only after it has started.
                run.pull_as_caller()
        if relay is not None:
            relay.show()
    except BaseException:
        run.stop()
        graph.unlink()
        raise
    finally:
        run.stop()
    task, error = run.failed, run.error
    if error is None:
        return graph.results()
    run.error = None  # its traceback refers to this frame
    try:
        if task is None:
            raise error
        if rerun_exceptions_locally:
            call_again(task, error)
        raise told(error, task.key)
    finally:
        graph.unlink()
        del error


class _PullingRun:
    """The run of one graph."""

    def __init__(
        self, graph: Graph, executor: Executor, n_workers: int, relay: Relay | None
    ) -> None:
        #: True if the calling thread belongs to the executor, and pulls too.
        self.is_caller_pulling = waits_for_caller(executor)
        self._caller_id: int | None = None
        self.failed: GraphTask | None = None
        self.error: BaseException | None = None
        #: Held until the run is over.
        self.over = threading.Lock()
        self.over.acquire()
        self._executor = executor
        self._relay = relay
        self._call = call if relay is None else relay.call
        #: Tasks were left because the relay is behind.
        self._is_held_back = False
        self._lock = threading.Lock()
        self._ready = graph.sources
        self._n_unfinished = len(graph.tasks)
        #: No other task is to start.
        self._is_stopped = False
        #: Pullers that have begun, and have not left before the run was stopped.
        self._n_pullers = 0
        #: Number of pullers that may still be started, the first one not counted.
        self._n_startable = n_workers - 1
        #: A puller was submitted and has not begun.
        self._is_starting = not self.is_caller_pulling
        #: A held lock for each puller that is idle; releasing it wakes the puller.
        self._idle: list[threading.Lock] = []
        #: A puller was woken and has not continued yet.
        self._is_waking = False
        self._futures: list[Future[None]] = []
        self._outer = OuterRun(executor)
        self._context = context_for_tasks(self._outer)

    # --- The calling thread -----------------------------------------------------------------------

    def wait(self) -> bool:
        """Wait for the end for a short time; return whether it came."""
        if self._relay is None:
            return self.over.acquire(timeout=_WAIT_S)
        self._relay.show(_WAIT_S)
        self._go_on()
        return self.over.acquire(blocking=False)

    def _go_on(self) -> None:
        """Wake or start a puller for tasks that were left because of the relay."""
        with self._lock:
            helper, is_start = self._next_helper() if self._is_held_back else (None, False)
            self._is_held_back = False
        self._send(helper, is_start)

    # --- Pullers ----------------------------------------------------------------------------------

    def start_puller(self) -> None:
        """Submit a puller that was counted already; called without the lock."""
        try:
            future = self._executor.submit(self._context.copy().run, self.pull)
        except Exception as exc:  # an executor that takes no more calls may raise anything
            self._give_up(exc)
        else:
            self._futures.append(future)

    def check_pullers(self) -> None:
        """Check whether the executor has dropped pullers."""
        for future in self._futures:
            if future.cancelled():
                self._give_up(None)
            elif future.done() and future.exception() is not None:
                self._give_up(future.exception())

    def pull_as_caller(self) -> None:
        """Run tasks in the calling thread, which belongs to the executor."""
        self.is_caller_pulling = True
        self._caller_id = threading.get_ident()
        self._context.copy().run(self.pull)

    def pull(self) -> None:
        """Run tasks until there are none for this thread."""
        task = self._take(is_new=True)
        while task is not None:
            task = self._run_from(task)

    def _run_from(self, task: GraphTask) -> GraphTask | None:
        """Run a task, and others that follow without another puller's help; return the next."""
        lock, ready, call = self._lock, self._ready, self._call
        dropped: list[Any] = []
        while True:
            try:
                value = call(task)
            except BaseException as exc:
                self._fail(task, exc)
                return None
            with lock:
                finish(task, value, ready, dropped)
                n_unfinished = self._n_unfinished = self._n_unfinished - 1
                is_next_mine = (
                    bool(ready)  # now, because it may change before it is read again
                    and not self._is_stopped
                    and (self._relay is None or self._may_take(self._relay))
                    and (len(ready) == 1 or not self._may_be_helped())
                )
                if is_next_mine:
                    task = ready.pop()
                elif not n_unfinished:
                    self._end()
            value = None  # otherwise it would stay alive during the next call
            dropped.clear()
            if not is_next_mine:
                return self._take() if n_unfinished else None

    def _take(self, *, is_new: bool = False) -> GraphTask | None:
        """Return the next task, waiting for it if one may come; None to leave."""
        while True:
            task: GraphTask | None = None
            helper: threading.Lock | None = None
            is_start = False
            mine: threading.Lock | None = None
            with self._lock:
                if is_new:
                    self._n_pullers += 1
                    self._is_starting = is_new = False
                if self._is_stopped:
                    return None
                if self._ready and (self._relay is None or self._may_take(self._relay)):
                    task = self._ready.pop()
                    helper, is_start = self._next_helper()
                else:
                    mine = threading.Lock()
                    mine.acquire()
                    self._idle.append(mine)
            if mine is not None:
                if not self._sleep(mine):
                    return None
                continue
            self._send(helper, is_start)
            return task

    def _send(self, helper: threading.Lock | None, is_start: bool) -> None:
        """Wake or start the puller that `_next_helper` has chosen, without the lock."""
        if helper is not None:
            helper.release()
        elif is_start:
            self.start_puller()

    def _may_take(self, relay: Relay) -> bool:
        """Return, under the lock, whether to take a task that is shown to callbacks."""
        # A calling thread that pulls may be in a long task, which must not delay pullers.
        if relay.is_behind and not self.is_caller_pulling:
            self._is_held_back = True
        return not self._is_held_back

    def _may_be_helped(self) -> bool:
        """Return, under the lock, whether tasks are left for which a puller could be started."""
        if self._idle:
            return not self._is_waking
        return self._n_startable > 0 and not self._is_starting

    def _next_helper(self) -> tuple[threading.Lock | None, bool]:
        """Decide, under the lock, whether an idle puller or a new one takes the tasks left."""
        if not self._ready or not self._may_be_helped():
            return None, False
        if self._idle:
            self._is_waking = True
            return self._idle.pop(), False
        self._is_starting = True
        self._n_startable -= 1
        return None, True

    def _sleep(self, mine: threading.Lock) -> bool:
        """Wait to be woken; return whether this puller was."""
        is_woken = mine.acquire(timeout=_IDLE_S)
        while not is_woken and threading.get_ident() == self._caller_id:
            # The calling thread of `get` waits for the end of the graph, and has no other work.
            self.check_pullers()
            if self._relay is not None:
                self._relay.show()
            is_woken = mine.acquire(timeout=_WAIT_S)
        with self._lock:
            if not is_woken and mine in self._idle:
                self._idle.remove(mine)
                self._n_pullers -= 1
                self._n_startable += 1
                return False
            self._is_waking = False
        return True

    # --- Ends -------------------------------------------------------------------------------------

    def _fail(self, task: GraphTask, error: BaseException) -> None:
        with self._lock:
            if not self._is_stopped:
                is_of_callback = self._relay is not None and error is self._relay.error
                self.failed, self.error = None if is_of_callback else task, error
                self._end()

    def _give_up(self, reason: BaseException | None) -> None:
        """End the run because the executor does not run its calls."""
        with self._lock:
            self._n_startable = 0
            if self._is_stopped or self._n_pullers:
                return
            text = "it dropped the call" if reason is None else f"{type(reason).__name__}: {reason}"
            self.error = WrongExecutor(f"{self._executor!r} cannot run tasks: {text}")
            self.error.__cause__ = reason
            self._end()

    def _end(self) -> None:
        """Release all waiting pullers, under the lock."""
        self._is_stopped = True
        for idle in self._idle:
            idle.release()
        self._idle.clear()
        if self.over.locked():
            self.over.release()
            if self._relay is not None:
                self._relay.wake()

    def stop(self) -> None:
        """Make sure that no other task starts, and take back pullers that have not begun."""
        with self._lock:
            self._end()
        self._outer.executor = None
        take_back(self._executor, self._futures)
        self._futures.clear()
