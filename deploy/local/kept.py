"""Local clusters that `weft.multiprocessing.get` starts, keeps, and lends to one run at a time.

**Start.** The children begin before this process imports what it needs to talk to them, and while
they import, so does this process. That is half of the time of the first call.

**Between runs.** A cluster ends after a minute without one. Its modules stay as they were imported:
if the program has reloaded one, its clusters end. Environment, working directory and `sys.path` are
as they are in the program when a run begins. If a run ended by an error, a worker may be busy with
a task whose result is no longer needed. That may go on until the next run needs the worker; then
the cluster ends.

**End.** A cluster ends with the program, by `shutdown`, if a process of it has died, and by Ctrl-C
in a run, together with what runs there.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ...graphs.core.reading import Graph
from ...graphs.drivers.inline import run_inline
from ...graphs.drivers.observing import Observer
from ...graphs.options import ResolvedOptions
from ...protocol.errors import WorkerDied
from ...protocol.host.machine import n_cores
from ..processes.child import start_ahead
from .reloading import ModuleWatch

if TYPE_CHECKING:
    from .kept_cluster import KeptCluster

#: A cluster that no run has used for this long ends.
IDLE_S = 60.0


def run(graph: Graph, observer: Observer | None, options: ResolvedOptions) -> Any:
    """Run a graph of `BlockTask`s on a kept cluster and return its results.

    Raises:
        SerializationError: a task cannot be pickled; nothing was run.
        UnpicklableResult: a result that is needed elsewhere cannot be pickled.
        WorkerDied: a worker process ended while it ran a task.
        BaseException: of the initializer, or of the first task that failed. Tasks that run go on,
            and their results are dropped; no other starts. On KeyboardInterrupt they are killed.
    """
    if not graph.n_tasks:
        return graph.results()
    if not _is_main_interpreter():  # others have no daemon threads, which a client needs
        return run_inline(graph, observer)
    from ...graphs.blocks.driver import run_in_blocks

    n_workers = options.n_workers or n_cores()
    cluster = _pool.take(n_workers, options.initializer)
    try:
        results = run_in_blocks(
            cluster.host(n_workers),
            graph,
            n_workers,
            chunksize=options.chunksize,
            rerun_exceptions_locally=options.rerun_exceptions_locally,
            observer=observer,
        )
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, WorkerDied):
            cluster.may_be_busy = True
            _pool.give_back(cluster)
        else:
            cluster.end()
        raise
    _pool.give_back(cluster)
    return results


def shutdown() -> None:
    """End the clusters that no run has, and each of the others after its run."""
    _pool.shutdown()


class _Pool:
    """The clusters that no run has. Threads may share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_watched = False
        self._idle: list[KeptCluster] = []
        self._modules = ModuleWatch()
        #: Counts shutdowns.
        self._age = 0

    def take(self, n_workers: int, initializer: Callable[[], object] | None) -> KeptCluster:
        """Return a cluster with so many workers, or more."""
        while True:
            unfit: list[KeptCluster] = []
            with self._changed:
                age = self._age
                if self._modules.has_changed():
                    unfit, self._idle = self._idle, []
                cluster = self._idle.pop() if self._idle else None
            if cluster is None:
                _end(unfit)
                return _start(n_workers, initializer, age)
            is_fit = False
            try:
                is_fit = cluster.is_fit(n_workers, initializer)
            finally:
                if not is_fit:
                    cluster.end()
            if is_fit:
                return cluster

    def give_back(self, cluster: KeptCluster) -> None:
        """Take a cluster back, or end it after a shutdown."""
        with self._changed:
            is_kept = cluster.age == self._age
            if is_kept:
                cluster.ends_s = monotonic() + IDLE_S
                self._idle.append(cluster)
                if not self._is_watched:
                    self._is_watched = True
                    threading.Thread(target=self._watch, name="weft-kept", daemon=True).start()
        if not is_kept:
            cluster.end()

    def _watch(self) -> None:
        """End what was not used for long: in a thread, as long as there are idle ones."""
        while True:
            with self._changed:
                if not self._idle:
                    self._is_watched = False
                    return
                now = monotonic()
                old = [one for one in self._idle if one.ends_s <= now]
                if not old:
                    self._changed.wait(min(one.ends_s for one in self._idle) - now)
                    continue
                self._idle = [one for one in self._idle if one not in old]
            _end(old)

    def shutdown(self) -> None:
        """See the function."""
        with self._changed:
            self._age += 1
            idle, self._idle = self._idle, []
            self._changed.notify_all()
        _end(idle)

    def forget(self) -> None:
        """Forget all in a forked child: they belong to the parent."""
        self._changed = threading.Condition()
        self._is_watched = False
        _foreign.extend(self._idle)
        self._idle = []


def _start(n_workers: int, initializer: Callable[[], object] | None, age: int) -> KeptCluster:
    start_ahead("workers", "scheduler")
    from .kept_cluster import KeptCluster

    return KeptCluster(n_workers, initializer, age)


def _end(clusters: list[KeptCluster]) -> None:
    for cluster in clusters:
        cluster.end()


def _is_main_interpreter() -> bool:
    interpreters: Any = sys.modules.get("_interpreters")
    return interpreters is None or interpreters.get_current()[0] == interpreters.get_main()[0]


#: Objects that belong to the process that this one was forked from.
_foreign: Final[list[object]] = []

_pool: Final = _Pool()
os.register_at_fork(after_in_child=_pool.forget)
