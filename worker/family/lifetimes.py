"""Lets each worker leave after a time, as after SIGTERM: batch systems and leaking libraries."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger("weft.supervisor")


@dataclass(frozen=True)
class Lifetime:
    """How long workers live.

    Attributes:
        seconds: from the start of a worker to its SIGTERM.
        stagger_s: by how much the lifetimes of workers differ at most.
        restart: start another worker in place of one whose lifetime is over.
    """

    seconds: float
    stagger_s: float = 0.0
    restart: bool = False

    def of_one(self, chance: float) -> float:
        """Return the lifetime of one worker, at least half of `seconds`; `chance`: -1 to 1."""
        return max(self.seconds + chance * self.stagger_s, self.seconds / 2)


class Lifetimes:
    """The timers of all workers of a family.

    Args:
        lifetime: None = workers live for ever.
        patience_s: time to leave, after which a worker is killed.
        kill: sends a signal to the worker of this id.
    """

    def __init__(
        self, lifetime: Lifetime | None, patience_s: float, kill: Callable[[str, int], None]
    ) -> None:
        self._lifetime = lifetime
        self._patience_s = patience_s
        self._kill = kill
        self._timers: dict[str, asyncio.TimerHandle] = {}
        #: {worker_id: None} of those that were asked to leave
        self._expired: dict[str, None] = {}

    def seconds_of(self, worker_id: str) -> float | None:
        """Return how long a worker lives, which depends on its id; None = for ever."""
        if self._lifetime is None:
            return None
        return self._lifetime.of_one(random.Random(worker_id).uniform(-1.0, 1.0))

    def begin(self, worker_id: str, name: str) -> None:
        """Begin the life of a worker whose process runs."""
        if (delay_s := self.seconds_of(worker_id)) is not None:
            loop = asyncio.get_running_loop()
            self._timers[worker_id] = loop.call_later(delay_s, self._expire, worker_id, name)

    def _expire(self, worker_id: str, name: str) -> None:
        _log.info("worker %s leaves: its lifetime is over", name)
        self._expired[worker_id] = None
        self._kill(worker_id, int(signal.SIGTERM))
        self._timers[worker_id] = asyncio.get_running_loop().call_later(
            self._patience_s, self._kill, worker_id, int(signal.SIGKILL)
        )

    def end(self, worker_id: str) -> bool:
        """Note that a worker has ended; return whether its lifetime was over."""
        timer = self._timers.pop(worker_id, None)
        if timer is not None:
            timer.cancel()
        if worker_id not in self._expired:
            return False
        del self._expired[worker_id]
        return True

    def has_sent(self, worker_id: str, number: int) -> bool:
        """Return whether a worker has got this signal for its lifetime.

        A second SIGTERM would end the tasks that a worker finishes which leaves.
        """
        return number == signal.SIGTERM and worker_id in self._expired

    @property
    def restart(self) -> bool:
        """Whether another worker is started in place of one whose lifetime is over."""
        return self._lifetime is not None and self._lifetime.restart

    def close(self) -> None:
        """Cancel all timers: no further worker is asked to leave, or killed."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
