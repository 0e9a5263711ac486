"""One adapter per system under test: the same few verbs over weft, its peers and the pools.

An adapter adds nothing of its own: each verb is the call that the system's documentation recommends
for it, so that only the system is timed. Handles (futures, object references) are opaque to the
workloads and may be passed as arguments where the system knows dependencies.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

import psutil

from ..framework import work
from ..tasks import inc
from .hops import BareHops

N_WORKERS = 2

Function = Callable[..., Any]


class Counting:
    """A `Counter` as an actor of weft or dask.distributed."""

    def __init__(self, actor: Any) -> None:
        self._increment = actor.increment

    def call(self) -> int:
        return int(self._increment().result())

    def calls(self, n: int) -> list[int]:
        increment = self._increment
        return [future.result() for future in [increment() for _ in range(n)]]


class RayCounting(Counting):
    """The same on Ray."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray = ray
        self._increment = actor.increment.remote
        self._actor = actor

    def call(self) -> int:
        return int(self._ray.get(self._increment()))

    def calls(self, n: int) -> list[int]:
        increment = self._increment
        return list(self._ray.get([increment() for _ in range(n)]))


class System(work.System):
    """The operations that a workload may ask of a system."""

    #: Of the cluster that `open` starts.
    n_workers: int = N_WORKERS
    n_threads: int = 1
    #: Bytes for each worker; None: the default of the system.
    memory_limit: int | None = None
    #: False: a handle cannot be an argument, so the system cannot run graphs.
    has_dependencies: ClassVar[bool] = True
    #: Statements that import the system and, in a fresh interpreter, bring it from `start()` to a
    #: first result and `done()`, and close it.
    import_code: ClassVar[str | None] = None
    first_result_code: ClassVar[str | None] = None

    def submit(self, function: Function, *args: Any) -> Any:
        raise NotImplementedError

    def addresses(self) -> list[str]:
        """Return what `submit_at` knows the workers by."""
        raise NotImplementedError

    def submit_at(self, address: str, function: Function, *args: Any) -> Any:
        """Submit a task that may run on this worker only."""
        raise NotImplementedError

    def map(self, function: Function, *iterables: Iterable[Any]) -> list[Any]:
        return [self.submit(function, *args) for args in zip(*iterables, strict=False)]

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        raise NotImplementedError

    def completed(self, handles: Sequence[Any]) -> Iterator[Any]:
        """Yield the results of the handles in the order in which they become ready."""
        raise NotImplementedError

    def call(self, function: Function, *args: Any) -> Any:
        """Run one task and wait for its result."""
        return self.submit(function, *args).result()

    async def awaited(self, function: Function, n: int) -> tuple[float, list[Any]]:
        """Call a function with each number below n, each call awaited by a coroutine of its own.

        Return the seconds from the first call to the last result, and the results.
        """
        raise NotImplementedError

    def shared(self, kind: str) -> Any:
        """Return a `Lock`, `Queue` or `Variable` that clients share."""
        raise NotImplementedError

    def actor(self, cls: type) -> Counting:
        """Make an actor of a class that counts, on a worker."""
        raise NotImplementedError

    def executor(self) -> concurrent.futures.Executor:
        """Return the system as an executor of the standard library."""
        raise NotImplementedError

    def parallel(self, function: Function, n: int) -> list[Any]:
        """Call a function with each number below n by `joblib.Parallel`, on this system."""
        joblib = importlib.import_module("joblib")
        with joblib.parallel_config(**self._joblib_options()):
            found: list[Any] = joblib.Parallel()(joblib.delayed(function)(i) for i in range(n))
        return found

    def _joblib_options(self) -> dict[str, Any]:
        raise NotImplementedError

    def scheduler_pid(self) -> int | None:
        """Return the process that does nothing but schedule, if the system has one."""
        return None

    def settle(self) -> None:
        """Let the system finish releasing what earlier runs held: a round trip queues up behind
        the releases.
        """
        super().settle()
        for i in range(2):
            work.check(self.call(inc, i), i + 1)


class _ClientSystem(System):
    """weft and dask.distributed, whose clients have the same methods."""

    #: `as_completed` of the system.
    _as_completed: Any
    _client: Any
    _cluster: Any

    def close(self) -> None:
        self._client.close()
        self._cluster.close()

    def submit(self, function: Function, *args: Any) -> Any:
        return self._client.submit(function, *args, pure=False)

    def addresses(self) -> list[str]:
        return sorted(self._client.scheduler_info()["workers"])

    def submit_at(self, address: str, function: Function, *args: Any) -> Any:
        return self._client.submit(function, *args, pure=False, workers=address)

    def map(self, function: Function, *iterables: Iterable[Any]) -> list[Any]:
        return list(self._client.map(function, *iterables, pure=False))

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        return list(self._client.gather(list(handles)))

    async def awaited(self, function: Function, n: int) -> tuple[float, list[Any]]:
        make = importlib.import_module(self.module).Client
        async with make(self._address(), asynchronous=True, set_as_default=False) as client:

            async def one(x: int) -> Any:
                return await client.submit(function, x, pure=False)

            await one(0)
            start = time.perf_counter()
            results = await asyncio.gather(*[one(i) for i in range(n)])
            return time.perf_counter() - start, results

    def _limits(self) -> dict[str, Any]:
        return {} if self.memory_limit is None else {"memory_limit": self.memory_limit}

    def _address(self) -> Any:
        """Return what finds the cluster."""
        return self._cluster

    def shared(self, kind: str) -> Any:
        return getattr(importlib.import_module(self.module), kind)("benchmark")

    def actor(self, cls: type) -> Counting:
        return Counting(self._client.submit(cls, actor=True).result())

    def completed(self, handles: Sequence[Any]) -> Iterator[Any]:
        for _, result in self._as_completed(handles, with_results=True):
            yield result


class Weft(_ClientSystem):
    title = "weft"
    module = "weft"
    import_code: ClassVar[str | None] = "import weft"
    first_result_code: ClassVar[str | None] = (
        "start(); c = weft.Client(); assert c.submit(inc, 1).result() == 2; done(); c.close()"
    )

    def open(self) -> None:
        weft = importlib.import_module("weft")
        self._as_completed = weft.as_completed
        self._cluster = weft.LocalCluster(
            n_workers=self.n_workers,
            threads_per_worker=self.n_threads,
            processes=True,
            **self._limits(),
        )
        self._client = weft.Client(self._cluster)
        self._client.wait_for_workers(self.n_workers)

    def executor(self) -> concurrent.futures.Executor:
        executor: concurrent.futures.Executor = self._client.get_executor()
        return executor

    def _joblib_options(self) -> dict[str, Any]:
        importlib.import_module("weft.joblib")
        return {"backend": "weft", "client": self._client, "n_jobs": N_WORKERS}

    def scheduler_pid(self) -> int | None:
        return listener(self._cluster.scheduler_address)


class Dask(_ClientSystem):
    """dask.distributed with its defaults: the scheduler runs in the client's process."""

    title = "dask"
    module = "distributed"
    import_code: ClassVar[str | None] = "import distributed"
    first_result_code: ClassVar[str | None] = (
        "start(); c = distributed.Client(dashboard_address=None); "
        "assert c.submit(inc, 1).result() == 2; done(); c.close()"
    )
    settings: ClassVar[dict[str, Any]] = {}

    def open(self) -> None:
        distributed = importlib.import_module("distributed")
        importlib.import_module("dask").config.set(self.settings)
        self._as_completed = distributed.as_completed
        self._cluster = distributed.LocalCluster(
            n_workers=self.n_workers,
            threads_per_worker=self.n_threads,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
            **self._limits(),
        )
        self._client = distributed.Client(self._cluster)
        self._client.wait_for_workers(self.n_workers)

    def _address(self) -> Any:
        return self._cluster.scheduler_address  # it lives on another event loop


class DaskBest(Dask):
    """dask.distributed without queuing on the scheduler: its fastest setting for many short
    tasks.
    """

    title = "dask best"
    settings: ClassVar[dict[str, Any]] = {"distributed.scheduler.worker-saturation": float("inf")}
    first_result_code: ClassVar[str | None] = None


class Ray(System):
    title = "Ray"
    module = "ray"
    import_code: ClassVar[str | None] = "import ray"
    first_result_code: ClassVar[str | None] = (
        "import shutil, tempfile; d = tempfile.mkdtemp(prefix='ray-'); start(); "
        "ray.init(include_dashboard=False, _node_ip_address='127.0.0.1', _temp_dir=d); "
        "assert ray.get(ray.remote(inc).remote(1)) == 2; done(); ray.shutdown(); "
        "shutil.rmtree(d, ignore_errors=True)"
    )

    def open(self) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._remotes: dict[Function, Any] = {}
        self._directory = tempfile.mkdtemp(prefix="ray-")
        self._ray.init(
            num_cpus=self.n_workers * self.n_threads,
            include_dashboard=False,
            log_to_driver=False,
            _node_ip_address="127.0.0.1",
            _temp_dir=self._directory,
        )

    def close(self) -> None:
        self._remotes.clear()
        self._ray.shutdown()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _remote(self, function: Function) -> Any:
        remote = self._remotes.get(function)
        if remote is None:
            remote = self._remotes[function] = self._ray.remote(function).remote
        return remote

    def submit(self, function: Function, *args: Any) -> Any:
        return self._remote(function)(*args)

    def map(self, function: Function, *iterables: Iterable[Any]) -> list[Any]:
        remote = self._remote(function)
        return [remote(*args) for args in zip(*iterables, strict=False)]

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        return list(self._ray.get(list(handles)))

    def call(self, function: Function, *args: Any) -> Any:
        return self._ray.get(self._remote(function)(*args))

    def actor(self, cls: type) -> Counting:
        return RayCounting(self._ray, self._ray.remote(cls).remote())

    def completed(self, handles: Sequence[Any]) -> Iterator[Any]:
        # Wait for one, then take all that are ready: one at a time is quadratic in Ray.
        pending = list(handles)
        while pending:
            ready, pending = self._ray.wait(pending, num_returns=1)
            if pending:
                more, pending = self._ray.wait(pending, num_returns=len(pending), timeout=0)
                ready += more
            yield from self._ray.get(ready)


class _Pool(System):
    module = "concurrent.futures"
    has_dependencies = False
    pool_class: ClassVar[str]
    _pool: concurrent.futures.Executor

    def open(self) -> None:
        self._pool = getattr(concurrent.futures, self.pool_class)(N_WORKERS)

    def close(self) -> None:
        self._pool.shutdown()

    def executor(self) -> concurrent.futures.Executor:
        return self._pool

    def submit(self, function: Function, *args: Any) -> Any:
        return self._pool.submit(function, *args)

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        return [handle.result() for handle in handles]

    def completed(self, handles: Sequence[Any]) -> Iterator[Any]:
        for handle in concurrent.futures.as_completed(handles):
            yield handle.result()


class Processes(_Pool):
    title = "ProcessPool"
    pool_class = "ProcessPoolExecutor"

    def _joblib_options(self) -> dict[str, Any]:
        return {"backend": "loky", "n_jobs": N_WORKERS}


class Threads(_Pool):
    title = "ThreadPool"
    pool_class = "ThreadPoolExecutor"


class Floor(System):
    """The lower bound of all systems: the calls in a bare loop; for a round trip, its bare hops."""

    title = "floor"
    module = "asyncio"

    def open(self) -> None:
        self._hops = BareHops()

    def close(self) -> None:
        self._hops.close()

    def submit(self, function: Function, *args: Any) -> Any:
        return function(*args)

    def gather(self, handles: Sequence[Any]) -> list[Any]:
        return list(handles)

    async def awaited(self, function: Function, n: int) -> tuple[float, list[Any]]:
        async def one(x: int) -> Any:
            await asyncio.sleep(0)  # an iteration of the loop
            return function(x)

        start = time.perf_counter()
        results = await asyncio.gather(*[one(i) for i in range(n)])
        return time.perf_counter() - start, results

    def completed(self, handles: Sequence[Any]) -> Iterator[Any]:
        yield from handles

    def call(self, function: Function, *args: Any) -> Any:
        self._hops.pass_on()
        return function(*args)


SYSTEMS: dict[str, type[System]] = {
    "weft": Weft,
    "dask": Dask,
    "dask-best": DaskBest,
    "ray": Ray,
    "processes": Processes,
    "threads": Threads,
    "floor": Floor,
}


def listener(address: str) -> int | None:
    """Return the pid of the descendant that listens at `tcp://host:port` or `unix:///path`."""
    _, _, place = address.partition("://")
    for process in psutil.Process().children(recursive=True):
        try:
            for connection in process.net_connections("all"):
                local: Any = connection.laddr
                if isinstance(local, str):
                    is_it = bool(local) and local == place
                else:
                    is_it = connection.status == psutil.CONN_LISTEN and place.endswith(
                        f":{local.port}"
                    )
                if is_it:
                    return process.pid
        except psutil.Error:
            # The process has ended, or may not be inspected.
            continue
    return None
