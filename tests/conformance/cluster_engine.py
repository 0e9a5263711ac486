"""A cluster of weft as dask's scheduler, as the program of a user has it: an open client.

`OpenCluster` owns a `LocalCluster` with worker processes and the client that it makes the default,
which is dask's scheduler by dask's own hooks from then on (weft.client.dask.default). Tests name
other schedulers as well; engines.py puts `get` of the same client in the place of those.
"""

from __future__ import annotations

from typing import Any

import weft

N_WORKERS = 2
THREADS_PER_WORKER = 2


class CountingClient(weft.Client[Any]):
    """Counts the graphs that dask hands over."""

    n_graphs = 0

    def get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        self.n_graphs += 1
        return super().get(dsk, keys, **options)

    def persist(self, collections: Any, **options: Any) -> Any:
        self.n_graphs += 1
        return super().persist(collections, **options)


class OpenCluster:
    """The cluster of this process, from `start` to `close`.

    To dask the bound method `get` is a scheduler, and `persist` of its owner is used as well.
    """

    client: CountingClient | None = None

    def start(self) -> None:
        self._cluster = weft.LocalCluster(
            n_workers=N_WORKERS, threads_per_worker=THREADS_PER_WORKER
        )
        self.client = CountingClient(self._cluster)
        self.client.wait_for_workers(N_WORKERS)

    def close(self) -> None:
        assert self.client is not None
        self.client.close()
        self._cluster.close()
        self.client = None

    def take_count(self) -> int:
        """Return how many graphs were run since the last call."""
        if self.client is None:
            return 0
        n_graphs, self.client.n_graphs = self.client.n_graphs, 0
        return n_graphs

    def get(self, dsk: Any, keys: Any, **options: Any) -> Any:
        assert self.client is not None
        return self.client.get(dsk, keys, **options)

    def persist(self, collections: Any, **options: Any) -> Any:
        assert self.client is not None
        return self.client.persist(collections, **options)
