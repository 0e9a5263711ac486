"""joblib on a weft cluster: import this module, then `joblib.parallel_config("weft")`.

    import joblib
    import weft.joblib

    with weft.Client(), joblib.parallel_config("weft"):
        joblib.Parallel()(joblib.delayed(f)(x) for x in xs)

Scikit-learn's `n_jobs=` takes the same way. Needs joblib: `pip install weft[joblib]`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from joblib import register_parallel_backend
from joblib._parallel_backends import (
    AutoBatchingMixin,
    FallbackToBackend,
    ParallelBackendBase,
    SequentialBackend,
)
from joblib.parallel import BatchedCalls

from .client import default_client
from .client.executor import Executor
from .protocol.errors import ClientClosed
from .protocol.host.blocking import blocked
from .protocol.host.process_role import is_worker_process

if TYPE_CHECKING:
    from concurrent.futures import Future

    from .client import Client

__all__ = ["WeftBackend"]


#: From when a batch is submitted until its results are here.
_VERY_SHORT_S: Final = 0.01
#: How many times the calls of a very short batch the next one has.
_GROWTH: Final = 4
_SMALL: Final = frozenset({bool, float, int, type(None)})


class WeftBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]  # untyped
    """Runs the batches of `joblib.Parallel` as tasks.

    Args:
        nesting_level: set by joblib.
        inner_max_num_threads: set by joblib; not supported.
        client: a blocking client; None = the current one, or else a cluster of its own for each
            call of `Parallel`.
        options: options of the tasks, as for `weft.Executor`.
    """

    #: Enough to hide what a task costs; joblib's own limits are those of process pools.
    MIN_IDEAL_BATCH_DURATION = 0.05
    MAX_IDEAL_BATCH_DURATION = 0.5
    supports_retrieve_callback = True
    default_n_jobs = -1
    #: Of joblib: the calls of a batch now, and how long batches of so many take, 0 = not known.
    _effective_batch_size: int
    _smoothed_batch_duration: float

    def __init__(
        self,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        client: Client | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        self._client = client
        self._options = options
        self._executor: Executor | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return WeftBackend, (self.nesting_level,)

    def get_nested_backend(self) -> tuple[WeftBackend, int | None]:
        """Return the backend of calls of `Parallel` within tasks; see `configure`."""
        return WeftBackend(nesting_level=(self.nesting_level or 0) + 1), None

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """Return the number of threads of the cluster's workers, or fewer if that was asked for."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        n = self._executor_now()._max_workers
        return n if n_jobs is None or n_jobs < 0 else min(n_jobs, n)

    def configure(self, n_jobs: int = 1, parallel: Any = None, **_others: Any) -> int:
        """Prepare for a call of `Parallel`.

        Raises:
            FallbackToBackend: this is a task that has no client; its inner calls run one by one.
        """
        self.parallel = parallel
        if self._client is None and is_worker_process():
            try:
                default_client()
            except ClientClosed:
                inner = SequentialBackend(nesting_level=self.nesting_level)
                raise FallbackToBackend(inner) from None
        return self.effective_n_jobs(n_jobs)

    def compute_batch_size(self) -> int:
        """Return the number of calls of the next batch.

        joblib doubles it while batches are too short. As long as they are very short, it grows
        faster here, so that tiny calls need fewer rounds until they are in batches of a good size.
        """
        before, duration_s = self._effective_batch_size, self._smoothed_batch_duration
        size: int = super().compute_batch_size()
        if size > before and 0 < duration_s < _VERY_SHORT_S:
            ideal = int(before * self.MIN_IDEAL_BATCH_DURATION / duration_s)
            size = self._effective_batch_size = max(size, min(_GROWTH * before, ideal))
        return size

    def _executor_now(self) -> Executor:
        if self._executor is None:
            client = self._client
            if client is None:
                with contextlib.suppress(ClientClosed):
                    client = default_client()
            self._executor = Executor(client=client, **self._options)
        return self._executor

    def submit(
        self, func: Any, callback: Callable[[Future[Any]], object] | None = None
    ) -> Future[Any]:
        """Submit a batch."""
        inner = func._backend, func._n_jobs
        items = func.items
        if _is_small(*items[0]):
            rows = [args for function, args, kwargs in items if not kwargs]
            first = items[0][0]
            if len(rows) == len(items) and all([item[0] is first for item in items]):  # noqa: C419
                future = self._executor_now().submit(_call_rows, inner, first, rows)
            else:
                future = self._executor_now().submit(_call_items, inner, items)
        else:
            # Each is an argument of the task, because weft sends large ones of these once.
            shape: list[tuple[int, tuple[str, ...]]] = []
            flat: list[Any] = []
            for function, args, kwargs in items:
                shape.append((len(args), tuple(kwargs)))
                flat += [function, *args, *kwargs.values()]
            future = self._executor_now().submit(_call_flat, inner, shape, *flat)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """Return the results of a batch."""
        return out.result()

    @contextlib.contextmanager
    def retrieval_context(self) -> Iterator[None]:
        """Give the thread of the task up while an inner call of `Parallel` waits."""
        with blocked():
            yield

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Cancel the batches that have not begun."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)

    def terminate(self) -> None:
        """End the cluster that was started for this call, if any."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False)
        self.reset_batch_stats()


def _is_small(_function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the arguments of a call are certainly too small to be sent apart."""
    return {*map(type, args), *map(type, kwargs.values())} <= _SMALL


def _call_items(inner: Any, items: list[Any]) -> Any:
    return BatchedCalls(items, inner)()


def _call_rows(inner: Any, function: Any, rows: list[tuple[Any, ...]]) -> Any:
    return _call_items(inner, [(function, args, {}) for args in rows])


def _call_flat(inner: Any, shape: list[tuple[int, tuple[str, ...]]], *flat: Any) -> Any:
    items = []
    i = 0
    for n_args, names in shape:
        function, i = flat[i], i + 1
        args, i = flat[i : i + n_args], i + n_args
        values, i = flat[i : i + len(names)], i + len(names)
        items.append((function, args, dict(zip(names, values, strict=True))))
    return _call_items(inner, items)


register_parallel_backend("weft", WeftBackend)
