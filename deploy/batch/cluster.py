"""`SlurmCluster` and its kin: a scheduler of this program, and workers as jobs of a batch system.

Several jobs that are started at once are an array. Each job has one `weft worker`, whose workers
leave before the time limit of the job, or when the job is to end. What differs between batch
systems is in `slurm.py`, `pbs.py`, `grid_engine.py` and `lsf.py`; here the commands are run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar, Final

from ...client.modes import Mode
from ...protocol.durations import Duration
from ...protocol.wording import did_you_mean
from ..jobs.arguments import check_text, texts_of
from ..jobs.cluster import JobCluster
from ..jobs.ledger import JobState
from .errors import BatchSystemError
from .grid_engine import GRID_ENGINE
from .keeper import JobKeeper
from .lsf import LSF
from .pbs import PBS
from .script import make_script
from .slurm import SLURM
from .system import MAX_ARRAY, BatchSystem, Command, JobRequest, last_line, lines_of

_TIMEOUT_S: Final = 60.0
#: Ids of one command.
_N_AT_ONCE: Final = 500
#: Accounting may know of the end of a job so many seconds after the queue has forgotten it: Grid
#: Engine writes every 15 s.
_ACCOUNTING_S: Final = 30.0


class BatchCluster(JobCluster[Mode]):
    """A cluster whose workers are jobs of a batch system; use one of its subclasses.

    Args:
        n_workers: number of workers at the start; whole jobs are started.
        cores: of each job, all on one machine; it must be given.
        processes: worker processes of each job; None = one for each core.
        memory: of each job, divided among its processes: bytes, or like "16GB"; None = what the
            batch system gives.
        walltime: time limit of each job: "2h", "02:00:00" or seconds. Its workers leave two grace
            periods before it. None = the limit of the queue.
        queue: or partition; None = the default one.
        account: that is charged; None = the default one.
        job_extra_directives: more directives, without `#SBATCH` or the like: "--gres=gpu:1".
        job_directives_skip: texts; directives that have one of them are left out.
        job_script_prologue: lines of shell before the workers: "module load gcc".
        resource_spec: how cores and memory are asked for, in the place of the usual directives.
        parallel_environment: of Grid Engine, for jobs with several cores.
        shebang: the first line of the script.
        options: of `JobCluster`: `grace`, `local_directory`, `log_directory`, `interface`, `host`,
            `dashboard_address`, `python`, `worker_extra_args`, `name`, `asynchronous` and others.

    Raises:
        TypeError: there is no such argument, or `cores` is missing.
        ConfigError: an argument is invalid.
        BatchSystemError: the batch system is not there, or has refused the first jobs.
    """

    system: ClassVar[BatchSystem]

    def __init__(
        self,
        n_workers: int = 0,
        *,
        cores: int | None = None,
        processes: int | None = None,
        memory: str | int | None = None,
        walltime: Duration | None = "1h",
        queue: str | None = None,
        account: str | None = None,
        job_extra_directives: Sequence[str] = (),
        job_directives_skip: Sequence[str] = (),
        job_script_prologue: Sequence[str] = (),
        resource_spec: str | None = None,
        parallel_environment: str = "smp",
        shebang: str = "#!/bin/bash",
        **options: Any,
    ) -> None:
        self._check_names(cores, options)
        assert cores is not None
        texts = {"queue": queue, "account": account, "resource_spec": resource_spec}
        for name, text in texts.items():
            if text is not None:
                check_text(text, name)
        self._asked = JobRequest(
            name="",
            queue=queue,
            account=account,
            resource_spec=resource_spec,
            parallel_environment=check_text(parallel_environment, "parallel_environment"),
            extra=texts_of(job_extra_directives, "job_extra_directives"),
            skip=texts_of(job_directives_skip, "job_directives_skip"),
        )
        self._prologue = texts_of(job_script_prologue, "job_script_prologue")
        self._shebang = check_text(shebang, "shebang")
        self._keeper: JobKeeper | None = None
        #: {id: since when} of jobs that were not known when they were looked at last
        self._missing: dict[str, float] = {}
        super().__init__(
            n_workers,
            cores=cores,
            processes=processes,
            memory=memory,
            walltime=walltime,
            **options,
        )

    def _check_names(self, cores: int | None, options: Iterable[str]) -> None:
        """Raise TypeError for an option that does not exist, or else for cores that are missing."""
        kind = type(self).__name__
        calls = signature(BatchCluster), signature(JobCluster)
        known = [name for call in calls for name in call.parameters if name != "options"]
        for name in options:
            if name not in known:
                hint = did_you_mean(name, known, "{}=", f"see help(weft.deploy.{kind})")
                raise TypeError(f"{kind} has no option {name}=; {hint}")
        if cores is None:
            raise TypeError(f"{kind} needs the number of cores of each job: {kind}(cores=8)")

    def job_script(self, names: Sequence[str] = ()) -> str:
        """Return the script of a job, or of an array of them."""
        names = names or [f"{self.name}-1"]
        request = replace(
            self._asked,
            name=self.name,
            cores=self.cores,
            memory=self.job_memory,
            walltime_s=self.walltime_s,
            grace_s=self.grace_s,
            logs=str(self.logs_folder),
            n=len(names),
        )
        command = [self._python, "-m", "weft", "worker"]
        command += ["--connection-file", str(self.connection_file), *self.worker_options()]
        return make_script(
            self.system,
            request,
            names,
            command,
            logs=str(self.logs_folder),
            shebang=self._shebang,
            prologue=self._prologue,
        )

    # --- Jobs -------------------------------------------------------------------------------------

    def start_jobs(self, names: Sequence[str]) -> list[str]:
        """Submit the jobs, as an array."""
        if self._keeper is None:
            self._keeper = JobKeeper(self.system.cancel)
            weakref.finalize(self, self._keeper.close)
        ids: list[str] = []
        for part in _parts(names, MAX_ARRAY):
            done = self._run(self.system.submit, self.job_script(part), can_fail=True)
            if done.returncode:
                why = lines_of(done.stderr) or lines_of(done.stdout) or "no reason given"
                if ids:  # those that were taken are known to nobody else
                    self.end_jobs(ids)
                raise BatchSystemError(
                    f"{self.system.title} has refused {len(part)} of the jobs of {self.name}: {why}"
                )
            taken = self.system.submitted(done.stdout, len(part))
            if not taken[0]:
                shown = last_line(done.stdout)
                raise BatchSystemError(
                    f"{self.system.submit[0]} printed no number of a job: {shown!r}"
                )
            self._keeper.add(taken)
            ids += taken
        return ids

    def end_jobs(self, jobs: Sequence[str]) -> None:
        """Cancel jobs by their ids."""
        for part in _parts(jobs, _N_AT_ONCE):
            # Those that have ended meanwhile are an error for some systems; a look tells.
            self._run((*self.system.cancel, *part), can_fail=True)

    def job_states(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Ask for jobs; about one that has failed or is not known any more, ask further."""
        found: dict[str, JobState] = {}
        for part in _parts(jobs, _N_AT_ONCE):
            # Some fail if one of the jobs is not known any more, and print all others.
            done = self._run(self.system.status(part), can_fail=True)
            if done.returncode and not done.stdout.strip() and not _is_unknown(done.stderr):
                raise BatchSystemError(_failed(self.system.status(part), done))
            found |= self.system.states(done.stdout) if done.stdout.strip() else {}
        now = time.monotonic()
        under = {job: (job, self.system.array_of(job)) for job in jobs}
        states = {job: found[one] for job in jobs for one in reversed(under[job]) if one in found}
        for job in jobs:
            state = states.get(job)
            if state is None or state.failed:
                state = self._end_of(job) or state
            if state is None and now - self._missing.get(job, now) >= _ACCOUNTING_S:
                text = f"{self.system.title} does not know it any more"
                state = JobState("ended", text, failed=None)
            if state is not None:
                states[job] = state
        self._missing = {job: self._missing.get(job, now) for job in jobs if job not in states}
        if self._keeper is not None:
            self._keeper.drop(job for job, state in states.items() if state.phase == "ended")
        return states

    def _end_of(self, job: str) -> JobState | None:
        """Return what the batch system knows about the end of a job; None = nothing."""
        for inquiry in self.system.inquiries:
            with contextlib.suppress(BatchSystemError):  # accounting is not everywhere
                done = self._run(inquiry.command(job), can_fail=True)
                if not done.returncode and (state := inquiry.read(done.stdout, job)):
                    return state
        return None

    def _run(
        self, command: Command, text: str = "", *, can_fail: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the batch system."""
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
                env={**os.environ, "LC_ALL": "C"},
                # Ctrl-C in a terminal is for the program, which cancels what this has begun.
                start_new_session=True,
            )
        except FileNotFoundError:
            raise BatchSystemError(
                f"{command[0]} is not installed here: a {type(self).__name__} is started where "
                f"jobs of {self.system.title} are submitted"
            ) from None
        except subprocess.TimeoutExpired:
            raise BatchSystemError(
                f"{self.system.title} has not answered `{command[0]}` within {_TIMEOUT_S:g} s"
            ) from None
        if done.returncode and not can_fail:
            raise BatchSystemError(_failed(command, done))
        return done

    def _remove_files(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
        super()._remove_files()


def _parts(items: Sequence[str], n: int) -> Iterable[Sequence[str]]:
    return (items[i : i + n] for i in range(0, len(items), n))


def _is_unknown(text: str) -> bool:
    """Return whether an error is that no job of these ids is known."""
    text = text.lower()
    return any(
        words in text for words in ("invalid job id", "unknown job", "not found", "is not found")
    )


def _failed(command: Command, done: subprocess.CompletedProcess[str]) -> str:
    why = lines_of(done.stderr) or lines_of(done.stdout) or f"exit code {done.returncode}"
    return f"`{shlex.join(command[:2])}` failed: {why}"


class SlurmCluster(BatchCluster[Mode]):
    """A cluster whose workers are jobs of Slurm; its arguments are those of `BatchCluster`."""

    system = SLURM
    default_name = "slurm"


class PBSCluster(BatchCluster[Mode]):
    """A cluster whose workers are jobs of OpenPBS or PBS Professional; its arguments are those of
    `BatchCluster`.
    """

    system = PBS
    default_name = "pbs"


class SGECluster(BatchCluster[Mode]):
    """A cluster whose workers are jobs of Grid Engine; its arguments are those of
    `BatchCluster`.

    How memory is asked for differs from site to site: `resource_spec="h_vmem=4G"`.
    """

    system = GRID_ENGINE
    default_name = "sge"


class LSFCluster(BatchCluster[Mode]):
    """A cluster whose workers are jobs of LSF; its arguments are those of
    `BatchCluster`.
    """

    system = LSF
    default_name = "lsf"
