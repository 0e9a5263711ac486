"""Slurm: `sbatch`, `squeue`, `scontrol`, `sacct`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..jobs.ledger import JobState, Phase
from .system import (
    BatchSystem,
    Command,
    Inquiry,
    JobRequest,
    bases,
    clock,
    exit_text,
    last_line,
    mebibytes,
    with_index,
)

#: States in which a job is not there yet, and in which it is. All others are ends.
_WAITING: Final = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED")
_RUNNING: Final = (
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
)
#: What ends mean, where the word alone does not tell.
_ENDS: Final = {
    "TIMEOUT": "the time limit",
    "DEADLINE": "the deadline of the job",
    "OUT_OF_MEMORY": "the job took more memory than it had asked for",
    "NODE_FAIL": "its node has failed",
    "PREEMPTED": "a job of higher priority took its place",
    "BOOT_FAIL": "its node did not boot",
    "LAUNCH_FAILED": "it could not be launched",
}
#: Reasons for which a job waits until somebody does something.
_HINTS: Final = {
    "PartitionTimeLimit": "walltime= is longer than the partition allows",
    "PartitionNodeLimit": "the partition has no such nodes",
    "PartitionConfig": "the partition does not allow such jobs",
    "BadConstraints": "no node has what the job asks for",
    "InvalidAccount": "account= is not valid",
    "InvalidQOS": "the quality of service is not valid",
    "AccountNotAllowed": "account= may not use this partition",
    "JobHeldUser": "it is held: scontrol release",
    "JobHeldAdmin": "an administrator holds it",
    "AssocMaxWallDurationPerJobLimit": "walltime= is longer than your account allows",
    "QOSMaxWallDurationPerJobLimit": "walltime= is longer than the quality of service allows",
    "AssocMaxCpuPerJobLimit": "cores= are more than your account allows",
    "QOSMaxCpuPerJobLimit": "cores= are more than the quality of service allows",
    "QOSMaxMemoryPerJob": "memory= is more than the quality of service allows",
    "Dependency never satisfied": "it depends on a job that has failed",
}
#: A reason that only repeats the state.
_NO_REASON: Final = ("None", "(null)", "")


def directives(request: JobRequest) -> list[str]:
    """Return what a job asks for."""
    lines = [f"--job-name={request.name}", "--nodes=1", "--ntasks=1"]
    if request.resource_spec is not None:
        lines.append(request.resource_spec)
    else:
        lines.append(f"--cpus-per-task={request.cores}")
        lines += [f"--mem={mebibytes(request.memory)}M"] if request.memory else []
    lines += [f"--time={_time(request.walltime_s)}"] if request.walltime_s is not None else []
    lines += [f"--partition={request.queue}"] if request.queue else []
    lines += [f"--account={request.account}"] if request.account else []
    # To the shell of the script, before the limit, if workers have not left by then; also before a
    # preemption, where Slurm does so.
    lines.append(f"--signal=B:USR1@{max(int(1.5 * request.grace_s), 1)}")
    pattern = "%A_%a" if request.n > 1 else "%j"
    lines += ["--open-mode=append", f"--output={request.logs}/slurm-{pattern}.out"]
    lines += [f"--array=1-{request.n}"] if request.n > 1 else []
    return lines


def _time(seconds: float) -> str:
    days, rest = divmod(seconds, 86_400)
    return f"{int(days)}-{clock(rest)}" if days else clock(rest)


def submitted(text: str, n: int) -> list[str]:
    """Return the ids, from `4711` or `4711;cluster`."""
    return with_index(last_line(text).partition(";")[0], n, "{base}_{i}")


def status(jobs: Sequence[str]) -> Command:
    """Return the command that asks for jobs."""
    ids = ",".join(bases(jobs, "_"))
    return ("squeue", "--noheader", "--array", "--states=all", "--format=%i|%T|%r", f"--jobs={ids}")


def states(text: str) -> dict[str, JobState]:
    """Read lines of `id|state|reason`."""
    found = {}
    for line in text.splitlines():
        job, _, rest = line.strip().partition("|")
        state, _, reason = rest.partition("|")
        if state:
            found[job] = _state(state.strip(), reason.strip())
    return found


def _state(word: str, reason: str, exit_code: str = "") -> JobState:
    word = word.partition(" ")[0].rstrip("+")  # "CANCELLED by 1000"
    reason = "" if reason in _NO_REASON else reason.replace("_", " ")
    phase: Phase = "waiting" if word in _WAITING else "running" if word in _RUNNING else "ended"
    if phase == "running":
        return JobState(phase)
    if phase == "waiting":
        hint = next((hint for known, hint in _HINTS.items() if known == reason), "")
        return JobState(phase, reason, hint=hint)
    if word == "COMPLETED":
        return JobState(phase)
    code, _, number = exit_code.partition(":")
    parts = [_ENDS.get(word, "" if word == "FAILED" else "by the batch system or its user")]
    parts += [exit_text(int(code))] if code.isdigit() and code != "0" else []
    parts += [f"signal {number}"] if number.isdigit() and number != "0" else []
    told = ", ".join(filter(None, parts)) or reason
    return JobState(phase, f"{word}: {told}" if told else word, failed=True)


def read_job(text: str, job: str) -> JobState | None:
    """Read `scontrol --oneliner show job`, of one job."""
    fields = dict(re.findall(r"(JobState|Reason|ExitCode)=(\S*)", last_line(text)))
    if "JobState" not in fields:
        return None
    return _state(fields["JobState"], fields.get("Reason", ""), fields.get("ExitCode", ""))


def read_accounting(text: str, job: str) -> JobState | None:
    """Read `sacct --parsable2`: lines of `id|state|exit code`."""
    for line in text.splitlines():
        job_id, *rest = line.split("|")
        if job_id == job and len(rest) >= 2:
            return _state(rest[0], "", rest[1])
    return None


SLURM: Final = BatchSystem(
    title="Slurm",
    prefix="#SBATCH",
    directives=directives,
    submit=("sbatch", "--parsable"),
    submitted=submitted,
    index="SLURM_ARRAY_TASK_ID",
    cancel=("scancel", "--quiet"),
    status=status,
    states=states,
    inquiries=(
        Inquiry(lambda job: ("scontrol", "--oneliner", "show", "job", job), read_job),
        Inquiry(
            lambda job: (
                *("sacct", "--noheader", "--allocations", "--parsable2"),
                *("--format=JobID,State,ExitCode", f"--jobs={job}"),
            ),
            read_accounting,
        ),
    ),
    array_of=lambda job: job.partition("_")[0],
    end_of_job=(
        'end=$(squeue --noheader --jobs "$SLURM_JOB_ID" --format %e) && '
        'test -n "$end" && date --date "$end" +%s'
    ),
)
