"""The systems of the study: those of the clusters' table, with what collections and a client in the
loop need besides, and the physical limit as one more.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from ..clusters import systems
from ..framework import work

Function = Callable[..., Any]


class Study(systems.System):
    """The verbs that the workloads of this table may use, beside those of the other one."""

    def wait(self, handles: Any) -> None:
        """Wait for a list of handles, or for a persisted collection, without their values."""
        raise NotImplementedError

    def batches(self, handles: Sequence[Any]) -> Any:
        """Return an iterator over lists of finished handles, those that finished since the list
        before; its method `add` takes one more handle.
        """
        raise NotImplementedError

    def delayed(self, function: Function, *args: Any) -> Any:
        """Return a call that is part of a graph, and may be an argument of another one."""
        raise NotImplementedError

    def value(self, call: Any) -> Any:
        """Compute a delayed call, task by task: without fusion."""
        raise NotImplementedError

    def spilled_bytes(self) -> float | None:
        """Return the bytes that workers have written to disk, None if the system does not say."""
        return None

    def computed_s(self) -> float | None:
        """Return the time that all tasks have run so far, None if the system does not say."""
        return None


class Batches:
    """`as_completed(...).batches()` of weft or dask.distributed."""

    def __init__(self, completed: Any) -> None:
        self._batches = completed.batches()
        self.add = completed.add

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        batch: list[Any] = next(self._batches)
        return batch


class RayBatches:
    """The same by `ray.wait`."""

    def __init__(self, ray: Any, references: Iterable[Any]) -> None:
        self._ray = ray
        self._pending = list(references)

    def add(self, reference: Any) -> None:
        self._pending.append(reference)

    def __iter__(self) -> Iterator[list[Any]]:
        return self

    def __next__(self) -> list[Any]:
        if not self._pending:
            raise StopIteration
        ready, pending = self._ray.wait(self._pending, num_returns=1)
        if pending:
            more, pending = self._ray.wait(pending, num_returns=len(pending), timeout=0)
            ready += more
        self._pending = pending
        return list(ready)


class _WithClient(Study):
    """weft and dask.distributed: the collections of dask use the client that was made last."""

    _client: Any
    _as_completed: Any

    def wait(self, handles: Any) -> None:
        importlib.import_module(self.module).wait(handles)

    def batches(self, handles: Sequence[Any]) -> Batches:
        return Batches(self._as_completed(handles))

    def delayed(self, function: Function, *args: Any) -> Any:
        return importlib.import_module("dask").delayed(function, pure=False)(*args)

    def value(self, call: Any) -> Any:
        return call.compute(optimize_graph=False)


class StudyWeft(_WithClient, systems.Weft):
    """weft as it is after `pip install`: nothing is set."""

    def spilled_bytes(self) -> float | None:
        return spilled_of_weft(self._client)

    def computed_s(self) -> float:
        return computed_by_weft(self._client)


class StudyDask(_WithClient, systems.Dask):
    """dask.distributed with its defaults."""

    def spilled_bytes(self) -> float | None:
        return spilled_of_dask(self._cluster.scheduler.cumulative_worker_metrics)

    def computed_s(self) -> float:
        prefixes = self._cluster.scheduler.task_prefixes.values()
        return float(sum(prefix.all_durations.get("compute", 0.0) for prefix in prefixes))


class StudyDaskBest(StudyDask):
    """dask.distributed with what makes it faster here: no queue on the scheduler, uvloop, and no
    statistical profile of the workers.
    """

    title = "dask best"
    first_result_code: ClassVar[str | None] = None
    settings: ClassVar[dict[str, Any]] = {
        "distributed.scheduler.worker-saturation": float("inf"),
        "distributed.admin.event-loop": "uvloop",
        "distributed.worker.profile.enabled": False,
    }


class StudyRay(Study, systems.Ray):
    """Ray with its defaults: tasks alone, because its scheduler for dask's graphs needs an old
    dask.
    """

    def wait(self, handles: Any) -> None:
        self._ray.wait(handles, num_returns=len(handles), fetch_local=False)

    def batches(self, handles: Sequence[Any]) -> RayBatches:
        return RayBatches(self._ray, handles)

    def delayed(self, function: Function, *args: Any) -> Any:
        return self.submit(function, *args)

    def value(self, call: Any) -> Any:
        return self._ray.get(call)


class WeftExpert(StudyWeft):
    """Fewer and larger workers."""

    title = "weft, one worker"
    n_workers = 1
    n_threads = 2
    first_result_code: ClassVar[str | None] = None


class DaskExpert(StudyDaskBest):
    """The same with the best settings."""

    title = "dask best, one worker"
    n_workers = 1
    n_threads = 2


class Limit(Study):
    """What no system can be faster than: the length of the tasks, on so many slots. Computed, not
    measured.
    """

    title = "limit"
    module = "math"

    def settle(self) -> None:
        work.System.settle(self)


#: The limit comes first: it takes no time, and is there when the time of a run is over.
SYSTEMS: dict[str, type[Study]] = {
    "limit": Limit,
    "weft": StudyWeft,
    "dask": StudyDask,
    "dask-best": StudyDaskBest,
    "ray": StudyRay,
    "weft-expert": WeftExpert,
    "dask-expert": DaskExpert,
}


def spilled_of_weft(client: Any) -> float | None:
    """Return the bytes of results that lie on the workers' disks now, None if no worker reports the
    metric.
    """
    workers = client.scheduler_info().get("workers", {}).values()
    found = [
        place["spilled_nbytes"]
        for worker in workers
        for place in (worker, worker.get("metrics") or {})
        if "spilled_nbytes" in place
    ]
    return float(sum(found)) if found else None


def computed_by_weft(client: Any) -> float:
    """Return the time that all tasks have run."""
    # Imported where weft runs: the tables are made without it, too.
    from weft.client.insight.asking import ask

    async def total(engine: Any) -> float:
        pages = [page async for page in ask(engine, "overview")]
        return float(sum(row["compute_s"] for page in pages for row in page["functions"]))

    return float(client._run(total(client._running())))


def spilled_of_dask(metrics: Any) -> float:
    """Return the bytes that were written to disk, from `{(context, ..., activity, unit): number}`
    of all workers since their start.
    """
    return float(
        sum(
            number
            for key, number in metrics.items()
            if isinstance(key, tuple) and key[-2:] == ("disk-write", "bytes")
        )
    )
