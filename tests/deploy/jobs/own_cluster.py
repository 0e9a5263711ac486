"""A kind of cluster as users write one: its jobs are processes of this machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import Any

from weft.deploy.jobs.cluster import JobCluster
from weft.deploy.jobs.ledger import JobState


class OwnProcesses(JobCluster):
    """Jobs that are processes."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.processes_by_id: dict[str, subprocess.Popen[bytes]] = {}
        super().__init__(*args, **{"host": "127.0.0.1", **options})

    def start_jobs(self, names: Sequence[str]) -> list[str]:
        return [self._start_one(name) for name in names]

    def _start_one(self, name: str) -> str:
        with open(self.logs_folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                self.worker_command(name), stdout=log, stderr=log, start_new_session=True
            )
        self.processes_by_id[str(process.pid)] = process
        return str(process.pid)

    def end_jobs(self, jobs: Sequence[str]) -> None:
        for job in jobs:
            self.processes_by_id[job].terminate()
        for job in jobs:
            self.processes_by_id[job].wait()

    def job_states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        return {job: self._state_of(self.processes_by_id[job].poll()) for job in jobs}

    def _state_of(self, code: int | None) -> JobState:
        if code is None:
            return JobState("running")
        return JobState("ended", f"exit code {code}", failed=code != 0)
