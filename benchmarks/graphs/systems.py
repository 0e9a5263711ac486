"""The systems that run graphs (weft's engines, dask's engines, a bare loop), and the pools.

As in `clusters/systems.py`, an adapter is the call that the system's documentation recommends, and
nothing else. Every engine and pool has its own default number of threads or processes, which is the
number of cores, unless the class states another one.
"""

from __future__ import annotations

import concurrent.futures
import functools
import importlib
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ClassVar

from ..framework.machine import n_cores
from ..framework.work import System
from .shapes import Run, bare, bare_nodes

#: get(graph, keys) -> results, nested like keys
Get = Callable[..., Any]


class Engine(System):
    """Runs graphs."""

    get: Get

    def prepare(self, graph: Any, keys: Any) -> Run:
        """Return the call to be timed."""
        return functools.partial(self.get, graph, keys)


class WeftSync(Engine):
    title = "weft sync"
    module = "weft"

    def open(self) -> None:
        self.get = importlib.import_module("weft").get


class WeftThreaded(Engine):
    title = "weft threaded"
    module = "weft"

    def open(self) -> None:
        self.get = importlib.import_module("weft.threaded").get

    def executor(self, name: str) -> Executor:
        """Return a pool to be given to `get_on`: "sync", "weft" or "threads"."""
        if name == "threads":
            return concurrent.futures.ThreadPoolExecutor(n_cores())
        weft = importlib.import_module("weft")
        pool: Executor = (
            weft.SynchronousExecutor() if name == "sync" else weft.ThreadPool(n_cores())
        )
        return pool

    def get_on(self, executor: Executor) -> Get:
        return functools.partial(importlib.import_module("weft").get, executor=executor)


class WeftProcesses(Engine):
    title = "weft processes"
    module = "weft"

    def open(self) -> None:
        self.get = importlib.import_module("weft.multiprocessing").get


class WeftInterpreters(Engine):
    """Subinterpreters, each with a lock of its own: Python 3.14 and later."""

    title = "weft subinterpreters"
    module = "weft"
    _pool: Executor | None = None

    @classmethod
    def missing(cls) -> str | None:
        if not hasattr(concurrent.futures, "InterpreterPoolExecutor"):
            return "pools of subinterpreters need Python 3.14"
        return super().missing()

    def open(self) -> None:
        kind: Any = getattr(concurrent.futures, "InterpreterPoolExecutor")  # noqa: B009
        pool: Executor = kind(n_cores())
        self._pool = pool
        self.get = functools.partial(importlib.import_module("weft").get, executor=pool)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class WeftCluster(Engine):
    """The same call with a `Client`: a scheduler and worker processes, one thread each, which might
    as well be on other machines.
    """

    title = "weft Client"
    module = "weft"
    _client: Any = None

    def open(self) -> None:
        weft = importlib.import_module("weft")
        self._client = weft.Client(n_workers=n_cores(), threads_per_worker=1)
        self._client.wait_for_workers(n_cores())
        self.get = self._client.get

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class DaskSync(Engine):
    title = "dask sync"
    module = "dask"

    def open(self) -> None:
        self.get = importlib.import_module("dask").get


class DaskThreaded(Engine):
    title = "dask threaded"
    module = "dask"

    def open(self) -> None:
        self.get = importlib.import_module("dask.threaded").get

    def executor(self, name: str) -> Executor:
        """Return a pool to be given to `get_on`: dask's own "sync", or "threads"."""
        pool: Executor = (
            importlib.import_module("dask.local").SynchronousExecutor()
            if name == "sync"
            else concurrent.futures.ThreadPoolExecutor(n_cores())
        )
        return pool

    def get_on(self, executor: Executor) -> Get:
        return functools.partial(self.get, pool=executor)


class DaskProcesses(Engine):
    """dask's process engine with its defaults: it starts a new pool for every call."""

    title = "dask processes"
    module = "dask"

    def open(self) -> None:
        self.get = importlib.import_module("dask.multiprocessing").get


class DaskProcessesKept(DaskProcesses):
    """The same with a pool that the caller keeps, which dask advises for many calls."""

    title = "dask processes, kept pool"
    _pool: Executor | None = None

    def open(self) -> None:
        module = importlib.import_module("dask.multiprocessing")
        self._pool = concurrent.futures.ProcessPoolExecutor(
            n_cores(),
            mp_context=module.get_context(),
            initializer=module.initialize_worker_process,
        )
        self.get = functools.partial(module.get, pool=self._pool)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class Bare(Engine):
    """The lower bound of all engines: the calls in topological order, planned in advance."""

    title = "bare loop"
    module = "functools"

    def prepare(self, graph: Any, keys: Any) -> Run:
        is_nodes = any(hasattr(node, "dependencies") for node in graph.values())
        return bare_nodes(graph, keys) if is_nodes else bare(graph, keys)


class Pool(System):
    """Takes single functions, and keeps nothing from one `create` to the next."""

    #: Futures may be dropped, and `destroy` waits for all that was submitted.
    waits_in_destroy: ClassVar[bool] = True
    #: Functions are called, not copies of them.
    shares_memory: ClassVar[bool] = True

    def create(self) -> Any:
        raise NotImplementedError

    def run(self, pool: Any, function: Callable[[], Any], n: int, *, keeps: bool) -> list[Any]:
        """Submit a function n times.

        Args:
            keeps: wait for all and return their results; otherwise return [] at once.
        """
        submit = pool.submit
        if not keeps:
            for _ in range(n):
                submit(function)
            return []
        return [future.result() for future in [submit(function) for _ in range(n)]]

    def destroy(self, pool: Any) -> None:
        pool.shutdown(wait=True)


class WeftPool(Pool):
    title = "weft.ThreadPool"
    module = "weft"

    def create(self) -> Any:
        return importlib.import_module("weft").ThreadPool(n_cores())


class WeftOwnPool(Pool):
    """The pool behind `weft.threaded.get`, which takes graphs only. Making the graph is part of the
    work here.
    """

    title = "weft.threaded"
    module = "weft"
    waits_in_destroy = False

    def create(self) -> Any:
        return importlib.import_module("weft.threaded")

    def run(self, pool: Any, function: Callable[[], Any], n: int, *, keeps: bool) -> list[Any]:
        graph = dict.fromkeys(range(n), (function,))
        return list(pool.get(graph, list(graph)))

    def destroy(self, pool: Any) -> None:
        pool.shutdown()


class WeftClientPool(Pool):
    """A whole cluster inside this process. A task whose future is dropped is cancelled, so the
    futures are kept and gathered.
    """

    title = "weft Client(processes=False)"
    module = "weft"
    waits_in_destroy = False
    shares_memory = False

    def create(self) -> Any:
        weft = importlib.import_module("weft")
        return weft.Client(processes=False, n_workers=1, threads_per_worker=n_cores())

    def run(self, pool: Any, function: Callable[[], Any], n: int, *, keeps: bool) -> list[Any]:
        submit = pool.submit
        return list(pool.gather([submit(function, pure=False) for _ in range(n)]))

    def destroy(self, pool: Any) -> None:
        pool.close()


class Threads(Pool):
    title = "ThreadPoolExecutor"
    module = "concurrent.futures"

    def create(self) -> Any:
        return concurrent.futures.ThreadPoolExecutor(n_cores())


class BareCalls(Pool):
    """The calls in a bare loop."""

    title = "bare loop"
    module = "functools"

    def create(self) -> Any:
        return None

    def run(self, pool: Any, function: Callable[[], Any], n: int, *, keeps: bool) -> list[Any]:
        if not keeps:
            for _ in range(n):
                function()
            return []
        return [function() for _ in range(n)]

    def destroy(self, pool: Any) -> None:
        """There is nothing to end."""


SYSTEMS: dict[str, type[System]] = {
    "weft-sync": WeftSync,
    "weft-threaded": WeftThreaded,
    "weft-processes": WeftProcesses,
    "weft-interpreters": WeftInterpreters,
    "weft-cluster": WeftCluster,
    "dask-sync": DaskSync,
    "dask-threaded": DaskThreaded,
    "dask-processes": DaskProcesses,
    "dask-processes-kept": DaskProcessesKept,
    "bare": Bare,
    "weft-pool": WeftPool,
    "weft-own-pool": WeftOwnPool,
    "weft-client": WeftClientPool,
    "threads": Threads,
    "bare-calls": BareCalls,
}
