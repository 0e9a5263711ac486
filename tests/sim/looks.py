"""Looks of a worker's shell at the tasks that run, while some have a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message
from weft.worker.core.features.timeouts import RunningSeen, TimeLimits
from weft.worker.slots.timeouts import LOOK_S

if TYPE_CHECKING:
    from .worker_node import WorkerNode


class RunningLooks:
    """The looks of one worker."""

    def __init__(self, worker: WorkerNode) -> None:
        self._worker = worker
        self._is_looking = False  #: `_look_again` will be called

    def look(self) -> None:
        """Pass the running tasks that have a time limit to the core, now and then."""
        worker = self._worker
        if self._is_looking:
            return
        limits = worker.core.record(TimeLimits)
        running = [task.attempt for task in worker.running if task is not None]
        worker.see(RunningSeen([attempt for attempt in running if attempt in limits]))
        if limits and worker.is_alive:
            self._is_looking = True
            worker.world.at(LOOK_S, self._look_again, is_work=False)

    def _look_again(self) -> None:
        if self._worker.when_awake(self._look_again):
            self._is_looking = False
            self.look()

    def note_sent(self, messages: list[Message]) -> None:
        """Note the executions that are reported as too long, or as too large."""
        for message in messages:
            if isinstance(message, m.AttemptsOverdue):
                self.note_timed_out(message.attempts)
            elif isinstance(message, m.AttemptsExceeded):
                self._worker.sim.categories.note_exceeded(message.attempts)

    def note_timed_out(self, attempts: list[int]) -> None:
        """Note executions that are reported as too long."""
        sim = self._worker.sim
        for attempt in attempts:
            sim.timed_out.setdefault(sim.executed[attempt], {})[attempt] = None


__all__ = ["RunningLooks"]
