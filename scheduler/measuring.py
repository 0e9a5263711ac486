"""Measurements of the scheduler's own process, for the metrics. A part of the shell.

Nothing here costs an idle scheduler anything: the event loop's lag is measured while there is work.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from ..protocol.metrics import Histogram
from ..protocol.net.listen import Listener
from .core.events import Load

#: The lag of the event loop is measured so often.
LAG_S: Final = 0.25
#: The worst one of so many seconds is shown to users, and the part of a core that was used.
RECENT_S: Final = 10.0
#: The roles of peers, and connections that have not proved theirs: each has its values from the
#: start on.
_ROLES: Final = ("client", "task_client", "worker", "supervisor", "viewer", "unknown")


def tune_collector() -> None:
    """Set the collector of garbage as suits a scheduler.

    Records live as long as their tasks and free themselves when forgotten (links are cut), so the
    collector finds next to nothing. It visits the young generation in small parts, because all
    peers wait for one: 10 000 objects take about 1 ms. It never visits what start-up made, and the
    older generations, for seconds, only after ten million new objects, as a rule never.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 1_000, 50)


class Meter:
    """Counts the time of the event loop. For the loop's thread only."""

    def __init__(self) -> None:
        #: in the core, and in encoding and sending, seconds
        self.core_s = self.send_s = 0.0
        self._lag = Histogram()
        #: (when, lag) and (when, processor time so far) of the last seconds, oldest first
        self._latest: deque[tuple[float, float]] = deque()
        self._used: deque[tuple[float, float]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._has_worked = False
        self._gc_s = 0.0
        self._gc_since = 0.0

    def start(self) -> None:
        """Begin to measure."""
        gc.callbacks.append(self._on_gc)

    def stop(self) -> None:
        """End it."""
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note_work(self, core_s: float, send_s: float) -> None:
        """Add the time of one turn."""
        self.core_s += core_s
        self.send_s += send_s
        self._has_worked = True
        if self._timer is None:
            self._watch()

    def load(self, now: float, clock_behind_s: float) -> Load:
        """Return what users see of the last seconds.

        Args:
            now: by the clock of the loop.
            clock_behind_s: see `Load`.
        """
        cpu_s = time.process_time()
        for samples in (self._latest, self._used):
            while samples and samples[0][0] < now - RECENT_S:
                samples.popleft()
        if not self._used or now - self._used[-1][0] >= LAG_S:
            self._used.append((now, cpu_s))
        since, used_s = self._used[0]
        share = (cpu_s - used_s) / (now - since) if now - since >= RECENT_S / 2 else 0.0
        return Load(share, max((lag_s for _, lag_s in self._latest), default=0.0), clock_behind_s)

    def _watch(self) -> None:
        self._has_worked = False
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LAG_S, self._on_timer, loop.time() + LAG_S)

    def _on_timer(self, due: float) -> None:
        now = asyncio.get_running_loop().time()
        lag_s = max(now - due, 0.0)
        self._lag.add(int(lag_s * 1e6))
        self._latest.append((now, lag_s))
        self._timer = None
        if self._has_worked:
            self._watch()

    def _on_gc(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_since = time.perf_counter()
        else:
            self._gc_s += time.perf_counter() - self._gc_since

    def measurements(self, listeners: Iterable[Listener]) -> dict[str, Any]:
        """Return what `metrics._MEASURED` declares."""
        stats = gc.get_stats()
        return {
            "auth_failures_total": sum(listener.auth_failures for listener in listeners),
            **_traffic(listeners),
            "cpu_seconds_total": time.process_time(),
            "loop_seconds_total": {"core": self.core_s, "send": self.send_s},
            "event_loop_lag_seconds": self._lag.plain(),
            "gc_seconds_total": self._gc_s,
            **{
                f"python_gc_{name}_total": {
                    str(generation): stats[generation][field] for generation in range(len(stats))
                }
                for name, field in _GC_FIELDS
            },
        }


_GC_FIELDS: Final = (
    ("collections", "collections"),
    ("objects_collected", "collected"),
    ("objects_uncollectable", "uncollectable"),
)


def _traffic(listeners: Iterable[Listener]) -> dict[str, Any]:
    values: dict[str, dict[str, dict[str, int]]] = {
        f"{unit}_total": {direction: dict.fromkeys(_ROLES, 0) for direction in ("in", "out")}
        for unit in ("bytes", "frames", "messages")
    }
    for listener in listeners:
        for role, traffic in listener.traffic().items():
            for unit in ("bytes", "frames", "messages"):
                for direction, by_role in values[f"{unit}_total"].items():
                    by_role[role] += getattr(traffic, f"{unit}_{direction}")
    return values
