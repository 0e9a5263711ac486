"""What an observer is shown of worker processes: as much as they have told, in the order of dask.

A task is shown to begin when its worker has come to it, as far as is known: when it is sent to one
that has nothing else to do, or when the one before it is known to have ended. So of tasks that ran
one after the other without a word, each is shown to begin just after the one before it has ended.
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
        observer: to whom.
        run: not begun.

    Attributes:
        outputs: numbers of the tasks whose results come here, whoever looks.
        wants_results: those of the other tasks are to come here too, if they can.
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
        """Show what a worker has come to."""
        slot = self._workers[worker]
        # What it is to give back it may not have begun.
        if slot.sent and not slot.is_revoking:
            self._begin(worker, slot.sent[0])

    def failed(self, worker: int, task: ProcessTask) -> None:
        """Show that a task has begun which has failed; unless it was something else that failed."""
        if task.state == SENT:
            self._begin(worker, task)

    def finished(self, worker: int, task: ProcessTask, value: Any, worker_id: int) -> None:
        """Show that a task has ended; `ELSEWHERE` is no value."""
        self._begin(worker, task)
        if value is ELSEWHERE and self.wants_results and not self._is_warned:
            self._is_warned = True
            logger.warning(
                "the result of task %r cannot be pickled and stays in its worker process:"
                " callbacks and caches do not get it, nor others like it",
                task.key,
            )
        self._observer.posttask(task, value, worker_id)

    def _begin(self, worker: int, task: ProcessTask) -> None:
        if self._begun.get(worker) is not task:
            self._begun[worker] = task
            self._observer.pretask(task)
