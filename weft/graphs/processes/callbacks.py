"""Shows the progress of worker processes to an observer, from their reports, in dask's order.

A task is shown to begin when its worker has come to it, as far as is known: when it is sent to an
idle worker, or when the task before it is known to have ended. So of tasks that ran one after the
other without a report in between, each is shown to begin just after the one before it has ended.
"""

from __future__ import annotations

import logging
from typing import Any

from ..drivers.observing import ELSEWHERE, Observer
from .core.state import ProcessRun
from .core.tasks import SENT, ProcessTask

logger = logging.getLogger("weft.client")


class Shown:
    """One run, as it is shown.

    Args:
        observer: the observer to notify.
        run: its state, before it begins.

    Attributes:
        outputs: numbers of the tasks whose results come to this process in any case.
        wants_results: the results of other tasks are to come here too, if they can.
    """

    def __init__(self, observer: Observer, run: ProcessRun) -> None:
        self.outputs = frozenset(task.number for task in run.tasks if task.is_output)
        self.wants_results = observer.wants_results
        self._observer = observer
        self._workers = run.workers
        #: {index of a worker: the last task that it was shown to begin}
        self._begun: dict[int, ProcessTask] = {}
        self._is_warned = False

    def progress(self, worker: int) -> None:
        """Show the task that a worker has come to."""
        slot = self._workers[worker]
        # A worker that was asked to give tasks back may not have begun the next one.
        if slot.sent and not slot.is_revoking:
            self._begin(worker, slot.sent[0])

    def failed(self, worker: int, task: ProcessTask) -> None:
        """Show that a task that has failed had begun; unless no task has failed."""
        if task.state == SENT:
            self._begin(worker, task)

    def finished(self, worker: int, task: ProcessTask, value: Any, worker_id: int) -> None:
        """Show that a task has ended; `ELSEWHERE` means that its value is not here."""
        self._begin(worker, task)
        if value is ELSEWHERE and self.wants_results and not self._is_warned:
            self._is_warned = True
            logger.warning(
                "the result of task %r cannot be pickled and stays in its worker process:"
                " callbacks and caches do not get it, nor similar results (logged once)",
                task.key,
            )
        self._observer.posttask(task, value, worker_id)

    def _begin(self, worker: int, task: ProcessTask) -> None:
        if self._begun.get(worker) is not task:
            self._begun[worker] = task
            self._observer.pretask(task)
