"""An executor for Airflow: `AIRFLOW__CORE__EXECUTOR=weft.compat.airflow.AirflowExecutor`.

What Airflow's scheduler queues is a call on a cluster, which runs Airflow's own supervisor of the
task as a program. States, logs and values go from there to Airflow's API; the executor only tells
whether the program has ended well. Needs Airflow: `pip install weft[airflow]`.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from airflow.configuration import conf
from airflow.executors.base_executor import BaseExecutor

from ..client import Client, wait
from ..worker.commands.command import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..client import Future

__all__ = ["AirflowExecutor"]

#: The key of `executor_config` whose value has options of `Client.submit`.
_OPTIONS: Final = "weft"
_SUPERVISOR: Final = "airflow.sdk.execution_time.execute_workload"


class AirflowExecutor(BaseExecutor):  # type: ignore[misc]  # untyped
    """Runs the tasks of Airflow on a cluster."""

    is_local = True
    serve_logs = True

    _client: Client
    #: {Airflow's key: future} of the tasks whose end has not been reported.
    _futures: dict[Any, Future[Any]]

    def start(self) -> None:
        """Connect to the cluster, or start one of this machine."""
        address = self.conf.get("weft", "address", fallback=None)
        started: dict[str, Any] = {}
        if address is None and not os.environ.get("WEFT_CONNECTION_FILE"):
            # Its threads only wait for programs.
            started = {"n_workers": 1, "threads_per_worker": self.parallelism}
        self._client = Client(address, set_as_default=False, **started)
        self._futures = {}

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        """Submit the tasks that are to run now."""
        for workload in workload_items:
            key = workload.key
            del self.queued_tasks[key]
            self.running.add(key)
            try:
                options = _options_of(workload.ti)
                text = workload.model_dump_json()
                self._futures[key] = self._client.submit(_run, text, pure=False, **options)
            except Exception as error:  # of options, which authors of DAGs give
                self._fail(key, error)

    def sync(self) -> None:
        """Report the tasks that have ended."""
        for key, future in [*self._futures.items()]:
            if future.done():
                del self._futures[key]
                try:
                    future.result()
                except Exception as error:
                    self._fail(key, error)
                else:
                    self.success(key)

    def _fail(self, key: Any, error: Exception) -> None:
        self.log.error("weft: %s has failed: %s: %s", key, type(error).__name__, error)
        self.fail(key, error)

    def revoke_task(self, *, ti: Any) -> None:
        """End a task, and forget it."""
        self.queued_tasks.pop(ti.key, None)
        self.running.discard(ti.key)
        future = self._futures.pop(ti.key, None)
        if future is not None:
            self._client.cancel([future], running=True)

    def end(self) -> None:
        """Wait for what runs, report it, and leave the cluster."""
        if self._futures:
            wait([*self._futures.values()])
        self.sync()
        self._client.close()

    def terminate(self) -> None:
        """End what runs, and leave the cluster."""
        self._client.cancel([*self._futures.values()], running=True)
        self._client.close()


def _options_of(task: Any) -> dict[str, Any]:
    """Return the options of a task: those of its `executor_config`.

    Raises:
        ValueError: the task asks for a queue.
    """
    if task.queue != conf.get("operators", "default_queue"):
        raise ValueError(
            f"weft has no queue {task.queue!r}; executor_config={{'weft': {{'workers': [...]}}}}, "
            "or 'resources' there, chooses workers"
        )
    return dict((task.executor_config or {}).get(_OPTIONS, {}))


def _run(workload: str) -> None:
    """Run Airflow's supervisor of a task here, with what only it may read in a file."""
    words = [sys.executable, "-m", _SUPERVISOR, "--json-path", "workload.json"]
    Command(words, inputs={"workload.json": workload})()
