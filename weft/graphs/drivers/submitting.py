"""The driver with one `submit` per task, for executors that can reach neither this memory nor a
socket of this process.

The calling thread does everything, in the order in which dask's own engines do it. Functions,
arguments and results are pickled, with cloudpickle where that is needed. Values stay here.
"""

from __future__ import annotations

import os
import pickle
import queue
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from typing import Any

from ...protocol.errors import WorkerDied, WrongExecutor
from ...protocol.values.exceptions import pack_exception, unpack_exception
from ...protocol.values.functions import dumps_plain
from ..core.reading import Graph
from ..core.state import finish
from ..core.tasks import GraphTask
from .executors import take_back
from .failing import call_again, told
from .observing import Observer


def run_submitting(
    graph: Graph,
    executor: Executor,
    n_workers: int,
    *,
    observer: Observer | None = None,
    rerun_exceptions_locally: bool = False,
) -> Any:
    """Run a graph with at most `n_workers` calls in the executor at a time; return its results.

    Args:
        graph: used up by this.
        executor: any.
        n_workers: at least 1.
        observer: notified of each task.
        rerun_exceptions_locally: repeat a call that failed in this thread.

    Raises:
        SerializationError: a task cannot be pickled.
        WorkerDied: the executor broke while it ran tasks.
        WrongExecutor: the executor takes no calls.
        BaseException: the exception of the first task that failed. Running tasks go on, and their
            results are dropped; no other starts.
    """
    run = _SubmittingRun(executor)
    ready = graph.sources
    dropped: list[Any] = []
    try:
        while ready or run.tasks:
            while ready and len(run.tasks) < n_workers:
                task = ready.pop()
                if observer is not None:
                    observer.pretask(task)
                run.submit(task)
            task, future = run.next_done()
            try:
                value, worker_id = run.result(task, future)
            except (WorkerDied, WrongExecutor):
                raise
            except BaseException as exc:
                if rerun_exceptions_locally:
                    call_again(task, exc)
                raise told(exc, task.key)  # noqa: B904 - it is the same exception
            finish(task, value, ready, dropped)
            if observer is not None:
                observer.posttask(task, value, worker_id)
            value = None
            dropped.clear()
    except BaseException:
        graph.unlink()
        raise
    finally:
        run.end()
    return graph.results()


class _SubmittingRun:
    """The calls of one run that were submitted and have not ended."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        #: {future: its task}
        self.tasks: dict[Future[Any], GraphTask] = {}
        self._done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()

    def submit(self, task: GraphTask) -> None:
        args = task.args.copy()
        for i, ref in task.refs:
            args[i] = ref.value
        blob = dumps_plain((task.func, args), f"task {task.key!r}")
        try:
            future: Future[Any] = self._executor.submit(_run_there, str(task.key), blob)
        except Exception as exc:  # an executor that takes no more calls may raise anything
            if self.tasks and isinstance(exc, BrokenExecutor):
                raise self._died(task) from exc
            raise self._wrong(f"{type(exc).__name__}: {exc}") from exc
        self.tasks[future] = task
        future.add_done_callback(self._done.put)

    def next_done(self) -> tuple[GraphTask, Future[Any]]:
        """Wait for a call to end."""
        future = self._done.get()
        return self.tasks.pop(future), future

    def result(self, task: GraphTask, future: Future[Any]) -> tuple[Any, object]:
        """Return the value of a call that has ended, and the thread that made it."""
        try:
            value, error, worker_id = future.result()
        except BrokenExecutor as exc:
            raise self._died(task) from exc
        except CancelledError as exc:
            raise self._wrong("it dropped the call") from exc
        if error is not None:
            raise unpack_exception(error)
        return pickle.loads(value), worker_id

    def _died(self, task: GraphTask) -> WorkerDied:
        return WorkerDied(str(task.key), 1, repr(self._executor))

    def _wrong(self, text: str) -> WrongExecutor:
        return WrongExecutor(f"{self._executor!r} cannot run tasks: {text}")

    def end(self) -> None:
        """Cancel the calls that have not begun."""
        take_back(self._executor, self.tasks)
        self.tasks.clear()


# An exception of a task is returned, so that exceptions of the futures are the executor's.


def _run_there(key: str, blob: bytes) -> tuple[bytes, list[Any] | None, int]:
    try:
        func, args = pickle.loads(blob)
        return dumps_plain(func(*args), "the result"), None, os.getpid()
    except BaseException as exc:
        return b"", pack_exception(exc, key, f"process {os.getpid()}"), os.getpid()
