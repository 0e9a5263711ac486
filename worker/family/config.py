"""The configuration of a supervisor and its workers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from ...protocol.trust.security import Security
from ..policy import fractions_of
from .lifetimes import Lifetime


@dataclass
class WorkerSpec:
    """One worker to keep running.

    Attributes:
        name: for display; the same across restarts.
        memory_limit: bytes, 0 = none.
        options: the rest of the worker process's configuration, as plain data.
    """

    name: str
    memory_limit: int
    options: dict[str, Any]

    @property
    def terminate(self) -> float:
        """The part of the memory limit above which the worker is killed, 0 = it never is."""
        return fractions_of(self.options).terminate


@dataclass
class SupervisorConfig:
    """The configuration of a supervisor.

    Attributes:
        find: returns the scheduler's address and the cluster's secret; called at each attempt.
        workers: the workers to keep running.
        directory: the workers' folder; the caller makes it, `owns_directory` removes it.
        embedded: the scheduler has no other workers: end when it ends, without waiting.
        connect_timeout_s: give up when the first connection takes longer. Ignored if
            embedded.
        grace_s: time that a worker gets to end by itself.
        grace_period_s: time before that in which workers may finish running tasks after SIGTERM.
        orphan_lease_s: time for which the family looks for a scheduler that it has lost.
        silent_after_s: a worker whose event loop does not run for so long, and that uses no
            processor time meanwhile, is reported.
        metrics_url: of the page with the metrics of this family; "" = it has none, and they are
            summed by the scheduler.
        accompany: runs beside the supervisor until its end; its failure is that of the supervisor.
        lifetime: after which each worker leaves, as after SIGTERM; None = never.
        first: of the workers that may be added, for a family that begins with none.
    """

    find: Callable[[], tuple[Sequence[str], Security]]
    workers: list[WorkerSpec]
    directory: str
    owns_directory: bool = False
    embedded: bool = False
    connect_timeout_s: float = 60.0
    grace_s: float = 3.0
    grace_period_s: float = 0.0
    orphan_lease_s: float = 900.0
    silent_after_s: float = 60.0
    metrics_url: str = ""
    accompany: Callable[[], Coroutine[Any, Any, None]] | None = None
    lifetime: Lifetime | None = None
    first: WorkerSpec | None = None
