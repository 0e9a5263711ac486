"""The systems that run jobs: two workers of one thread each, and what each system calls a job.

An adapter adds nothing of its own: each verb is the call that the system's documentation recommends
for it. All verbs run `n` jobs to their ends, and return the sum of their results. The journal is a
new file, or where $BENCHMARK_JOURNAL says: postgresql://USER@HOST/DATABASE.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..framework import work

N_WORKERS = 2
#: Units of a resource that are never scarce, at each worker.
PLENTY = 10**6


def run_true(_: int) -> int:
    """Run the command that does nothing; return its exit code."""
    return subprocess.run(["true"], check=False).returncode


class _ClientSystem(work.System):
    """weft and dask.distributed, whose clients have the same methods."""

    _client: Any
    _cluster: Any

    def close(self) -> None:
        self._client.close()
        self._cluster.close()

    def calls(self, function: Callable[[int], int], n: int, **options: Any) -> int:
        """Run calls of a function with each number below n, with these options."""
        return sum(self._client.gather(self._client.map(function, range(n), pure=False, **options)))

    def with_cores(self, function: Callable[[int], int], n: int) -> int:
        """Run calls that name an amount of which there is always enough."""
        raise NotImplementedError

    def with_units(self, function: Callable[[int], int], n: int) -> int:
        """Run calls that name one unit of a resource of which each worker has one."""
        return self.calls(function, n, resources={"unit": 1})

    def commands(self, n: int) -> int:
        """Run so many commands that do nothing; return the sum of the exit codes."""
        raise NotImplementedError


class Weft(_ClientSystem):
    title = "weft"
    module = "weft"

    def open(self) -> None:
        weft = importlib.import_module("weft")
        self._folder = tempfile.TemporaryDirectory()
        self._cluster = weft.LocalCluster(
            N_WORKERS,
            1,
            resources={"unit": 1},
            journal=os.environ.get("BENCHMARK_JOURNAL") or Path(self._folder.name) / "jobs.sqlite",
        )
        self._client = weft.Client(self._cluster)
        self._client.wait_for_workers(N_WORKERS)

    def close(self) -> None:
        super().close()
        self._folder.cleanup()

    def with_cores(self, function: Callable[[int], int], n: int) -> int:
        return self.calls(function, n, cores=1)

    def with_memory(self, function: Callable[[int], int], n: int) -> int:
        """Run calls that name memory of which there is always enough."""
        return self.calls(function, n, memory="1 MB")

    def after(self, function: Callable[[int], int], n: int) -> int:
        """Run calls each of which waits for the end of one that has not run yet."""
        first = self._client.submit(function, 0, start_after="50 ms", pure=False)
        return self.calls(function, n, after={"done": first})

    def detached(self, function: Callable[[int], int], n: int) -> int:
        """Run calls that are recorded."""
        found = self._client.gather(self._client.map(function, range(n), detached=True))
        return sum(found)

    def wait_recorded(self) -> None:
        """Wait until all that is on its way to the journal is there."""
        self._client.wait_recorded()

    def beside(self, function: Callable[[int], int], n_waiting: int) -> Any:
        """Submit jobs that cannot run for an hour; return what holds them."""
        other = importlib.import_module("weft").Client(self._cluster, set_as_default=False)
        waiting = other.map(function, range(n_waiting), start_after="1 h")
        other.wait_recorded()  # the scheduler has read them
        return other, waiting

    def commands(self, n: int) -> int:
        command = importlib.import_module("weft").Command("true")
        futures = [self._client.submit(command, pure=False) for _ in range(n)]
        return sum(done.returncode for done in self._client.gather(futures))


class Dask(_ClientSystem):
    """dask.distributed with its defaults: the scheduler runs in the client's process."""

    title = "dask"
    module = "distributed"

    def open(self) -> None:
        distributed = importlib.import_module("distributed")
        self._cluster = distributed.LocalCluster(
            n_workers=N_WORKERS,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            host="127.0.0.1",
            resources={"unit": 1, "plenty": PLENTY},
        )
        self._client = distributed.Client(self._cluster)
        self._client.wait_for_workers(N_WORKERS)

    def with_cores(self, function: Callable[[int], int], n: int) -> int:
        return self.calls(function, n, resources={"plenty": 1})

    def commands(self, n: int) -> int:
        return self.calls(run_true, n)


class HyperQueue(work.System):
    """HyperQueue: a server and workers in this process, as its `LocalCluster` has them.

    Its jobs are graphs of commands; calls of Python functions are commands, too.
    """

    title = "HyperQueue"
    module = "hyperqueue"

    def open(self) -> None:
        cluster = importlib.import_module("hyperqueue.cluster")
        self._folder = tempfile.TemporaryDirectory()
        one = cluster.WorkerConfig(cores=1)
        self._cluster = cluster.LocalCluster(self._folder.name, one)
        for _ in range(N_WORKERS - 1):
            self._cluster.start_worker(one)
        self._client = self._cluster.client()

    def close(self) -> None:
        self._cluster.stop()
        self._folder.cleanup()

    def commands(self, n: int) -> int:
        """Run so many commands that do nothing; return the number of those that failed."""
        job = importlib.import_module("hyperqueue").Job(self._folder.name)
        for _ in range(n):
            job.program(["true"], stdout=None, stderr=None)
        submitted = self._client.submit(job)
        self._client.wait_for_jobs([submitted], raise_on_error=False)
        return len(self._client.get_failed_tasks(submitted))


SYSTEMS: dict[str, type[work.System]] = {"weft": Weft, "dask": Dask, "hyperqueue": HyperQueue}
