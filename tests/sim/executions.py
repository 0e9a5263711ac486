"""What is executed, with which values; where no worker fails, nothing again without a reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from weft.worker.core.tasks import WorkerTask

if TYPE_CHECKING:
    from .graphs import Spec
    from .simulation import Simulation


class Executions:
    """All executions that were begun."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        #: {key: {attempt: the attempts whose values it reads}}
        self._begun: dict[str, dict[int, list[int]]] = {}
        #: Attempts that ran, or whose values were, at workers that were ended for a task; or whose
        #: values were let go, since every worker left.
        self._lost: set[int] = set()

    def lose(self, attempts: Iterable[int]) -> None:
        """Note what is lost with a worker, and may have to run again."""
        self._lost.update(attempts)

    def begin(self, task: WorkerTask, spec: Spec) -> None:
        """Note that a task's function is being called, and check that it has to be."""
        before = self._begun.setdefault(spec.key, {})
        before[task.attempt] = [record.attempt for record in task.inputs]
        self._sim.gangs.note_start(task, spec)
        self._check_once(task, spec)

    def _check_once(self, task: WorkerTask, spec: Spec) -> None:
        sim = self._sim
        if spec.gang:
            return  # if one of a gang is to run again, all are
        if not sim.plan.executes_once or spec.key in sim.released or spec.key in sim.cancelled:
            return
        if any(key in sim.exceeded for key in spec.ancestors):
            return  # it was given up, or what needs it, and may be submitted again
        timed_out = sim.timed_out.get(spec.key, {})
        before = [attempt for attempt in self._begun[spec.key] if attempt != task.attempt]
        n_failed = sim.n_raised.get(spec.key, 0) + sim.n_excused[spec.key] + len(timed_out)
        n_in_vain = sum(
            attempt not in timed_out and self._has_read_in_vain(spec.key, attempt, task.attempt)
            for attempt in before
        )
        n_lost = sum(attempt in self._lost for attempt in before)
        assert len(before) <= n_failed + n_in_vain + n_lost, (
            f"{task!r} is executed again: {len(before)} times before, of which {n_failed} failed, "
            f"{n_in_vain} read what took too long, and {n_lost} were at a worker that was ended"
        )

    def _has_read_in_vain(self, key: str, old: int, new: int) -> bool:
        """Return whether `old` read a value that counts no more, and `new` reads another one.

        A worker reports that an attempt takes too long, and the scheduler decides. If the attempt
        ends by itself before the worker is told, those that wait for it there begin with its value.
        They are dropped with it, and run again when it has: what they read is of a failed attempt.
        """
        old_inputs, new_inputs = self._begun[key][old], self._begun[key][new]
        for before, now in zip(old_inputs, new_inputs, strict=True):
            if before == now or before not in self._sim.executed:
                continue
            name = self._sim.executed[before]
            if before in self._sim.timed_out.get(name, {}):
                return True
            if now in self._begun[name] and self._has_read_in_vain(name, before, now):
                return True
        return False


__all__ = ["Executions"]
