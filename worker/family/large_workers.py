"""Ends workers that use more memory than they may, before the kernel chooses a process."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from .places import Place
from .restarts import memory_verdict


def end_too_large(
    running: Mapping[str, Place], sizes: Mapping[str, int], ask: Callable[..., None]
) -> None:
    """End the workers that are above their limit.

    Args:
        running: `{worker_id: its place}`.
        sizes: `{worker_id: its resident bytes}`.
        ask: sends a request to the spawner.
    """
    for worker_id, rss in sizes.items():
        slot = running[worker_id]
        verdict = memory_verdict(rss, slot.spec.memory_limit)
        if verdict and not slot.verdict:
            slot.verdict = verdict
            ask("kill", slot.pid, int(signal.SIGKILL))
