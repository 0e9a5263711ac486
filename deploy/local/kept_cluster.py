"""One of the local clusters that `kept` lends to runs."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from typing import Any, Final

from ...client.blocks.host import ClientHost
from ...client.client import Client
from ...client.waiting import wait
from ...protocol.values.exceptions import add_note
from ...protocol.values.functions import dumps_function
from .cluster import LocalCluster
from .surroundings import Surroundings, prepare_worker

#: Time that a worker which an earlier run has left busy gets.
_STALE_S: Final = 0.05
#: Time that processes get to end.
_END_S: Final = 0.4

_numbers = itertools.count()


class _LocalCluster(LocalCluster[Any]):
    _is_kept = True


class KeptCluster:
    """A cluster and its client, for one run of a graph at a time.

    Args:
        n_workers: how many to start with.
        initializer: called once in each worker before its first task.
        age: of the pool, see there.
    """

    #: A run has failed, so tasks of it may still run.
    may_be_busy = False

    def __init__(self, n_workers: int, initializer: Callable[[], object] | None, age: int) -> None:
        self.age = age
        #: When it ends unless a run needs it, monotonic.
        self.ends_s = 0.0
        self._initializer = initializer
        self._surroundings = Surroundings.of_this_process()
        #: Names of all variables of the environment that the program has had. A new worker may have
        #: those of the start.
        self._known = {*self._surroundings.environment}
        self._cluster = _LocalCluster(
            n_workers,
            threads_per_worker=1,
            memory_limit=None,
            name=f"processes-{os.getpid()}-{next(_numbers)}",
        )
        self._client: Client[Any] | None = None
        #: {address of a worker: its pid}
        self._pids: dict[str, int] = {}
        try:
            self._client = Client(self._cluster, set_as_default=False)
            self._prepare(self._surroundings)
        except BaseException:
            self.end()
            raise

    def _prepare(self, now: Surroundings) -> None:
        """Give the workers the settings of the program."""
        assert self._client is not None
        self._surroundings = now
        self._known |= now.environment.keys()
        initializer = None if self._pids else self._initializer
        try:
            self._pids = self._client.run(prepare_worker, now, self._known, initializer)
        except Exception as error:
            if initializer is not None:
                add_note(error, "weft: in the initializer of worker processes")
            raise

    def is_fit(self, n_workers: int, initializer: Callable[[], object] | None) -> bool:
        """Return whether it is as if it were new; it may start more workers for that."""
        assert self._client is not None
        if _ident_of(initializer) != _ident_of(self._initializer):
            return False  # the effect of another one cannot be undone
        if not all(map(_is_alive, self._pids.values())):
            return False
        if self.may_be_busy:
            submit = self._client.submit
            probes = [submit(os.getpid, pure=False, workers=[one]) for one in self._pids]
            try:
                wait(probes, timeout=_STALE_S)
            except TimeoutError:
                return False
            self.may_be_busy = False
        now = Surroundings.of_this_process()
        if len(self._pids) < n_workers:
            if self._initializer is not None:  # not all would call it once
                return False
            self._cluster.scale(n_workers)
            self._client.wait_for_workers(n_workers)
            self._prepare(now)
        elif now != self._surroundings:
            self._prepare(now)
        return True

    def host(self, n_workers: int) -> ClientHost:
        """Return what runs blocks on so many of its workers."""
        workers = list(self._pids)
        assert self._client is not None
        return ClientHost(self._client, workers[:n_workers] if n_workers < len(workers) else None)

    def end(self) -> None:
        """End its processes, at once if they are busy."""
        if self._client is not None:
            self._client.close()
        self._cluster.close(timeout=_END_S)


def _ident_of(function: Callable[[], object] | None) -> bytes:
    return b"" if function is None else dumps_function(function)[0]


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
