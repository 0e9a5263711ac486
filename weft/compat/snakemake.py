"""An executor for Snakemake: `snakemake --executor weft` runs jobs as commands on a cluster.

Each job is one `weft.Command`, in the folder of the workflow, which the workers must share. Its
threads, memory, run time and GPUs are options of the task. Snakemake finds executors by the names
of packages, so the distribution in deploy/snakemake has one that leads here. Needs Snakemake.
"""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import CancelledError
from dataclasses import field, make_dataclass
from typing import TYPE_CHECKING, Any, Final, Optional

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor
from snakemake_interface_executor_plugins.settings import CommonSettings, ExecutorSettingsBase

from ..client import Client
from ..worker.commands.command import Command

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["ExecutorSettings", "SnakemakeExecutor", "common_settings"]

#: How often it is looked which jobs have ended; that asks nobody.
_LOOK_S: Final = 0.1

common_settings: Final = CommonSettings(
    non_local_exec=True, implies_no_shared_fs=False, job_deploy_sources=False
)


#: The options of the command line that are this executor's. Snakemake reads the types of the
#: fields, so they must not be texts.
ExecutorSettings: Final = make_dataclass(
    "ExecutorSettings",
    [
        (
            "address",
            Optional[str],  # noqa: UP045  # Snakemake does not know `str | None`
            field(
                default=None,
                metadata={
                    "help": "Address of the scheduler. Without it: the cluster of "
                    "$WEFT_CONNECTION_FILE, or else the cores of this machine.",
                    "env_var": False,
                    "required": False,
                },
            ),
        )
    ],
    bases=(ExecutorSettingsBase,),
)


class SnakemakeExecutor(RemoteExecutor):  # type: ignore[misc]  # untyped
    """Submits the jobs of a workflow to weft, and reports how they end."""

    def __post_init__(self) -> None:
        """Connect to the cluster, or start one of this machine that ends with the workflow."""
        address = self.workflow.executor_settings.address
        started: dict[str, Any] = {}
        if address is None and not os.environ.get("WEFT_CONNECTION_FILE"):
            # One worker, because the threads of a job have to be of one.
            started = {"n_workers": 1, "threads_per_worker": os.cpu_count()}
        self._client = Client(address, set_as_default=False, **started)
        self.next_seconds_between_status_checks = _LOOK_S

    def run_job(self, job: Any) -> None:
        """Submit a job."""
        line = self.format_job_exec(job).replace("{", "{{").replace("}", "}}")
        command = Command(line, cwd=os.getcwd())
        future = self._client.submit(command, pure=False, **_options_of(job))
        info = SubmittedJobInfo(job, external_jobid=str(future.key), aux={"future": future})
        self.report_job_submission(info)

    async def check_active_jobs(self, active_jobs: list[Any]) -> AsyncIterator[Any]:
        """Report the jobs that have ended, and yield the others."""
        for info in active_jobs:
            future = info.aux["future"]
            if not future.done():
                yield info
            elif future.status == "finished":
                self.report_job_success(info)
            else:
                # Elsewhere, because this thread runs the event loop of Snakemake.
                error = await asyncio.to_thread(_error_of, future)
                self.report_job_error(info, msg=f"{type(error).__name__}: {error}\n")

    def cancel_jobs(self, active_jobs: list[Any]) -> None:
        """End jobs with all that they have started."""
        self._client.cancel([info.aux["future"] for info in active_jobs], running=True)

    def shutdown(self) -> None:
        """Stop looking at jobs, and leave the cluster."""
        super().shutdown()
        self._client.close()


def _error_of(future: Any) -> BaseException | None:
    try:
        error: BaseException | None = future.exception()
    except CancelledError as cancelled:  # a cancelled one has no other
        return cancelled
    return error


def _options_of(job: Any) -> dict[str, Any]:
    """Return the options of a task by what the rule of a job asks for."""
    wanted = job.resources
    options: dict[str, Any] = {"cores": job.threads}
    if isinstance(megabytes := wanted.get("mem_mb"), int):
        options["memory"] = f"{megabytes} MB"
    if isinstance(minutes := wanted.get("runtime"), int):
        options["timeout"] = 60 * minutes
    if isinstance(n_gpus := wanted.get("gpu"), int) and n_gpus:
        options["resources"] = {"GPU": n_gpus}
    return options
