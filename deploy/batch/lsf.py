"""LSF: `bsub`, `bjobs`, `bkill`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from ..jobs.ledger import JobState
from .system import BatchSystem, Command, JobRequest, bases, exit_text, mebibytes, with_index

_WAITING: Final = ("PEND", "PSUSP", "WAIT", "PROV")
_RUNNING: Final = ("RUN", "USUSP", "SSUSP", "UNKWN")
_FIELDS: Final = "jobid jobindex stat exit_code exit_reason pend_reason delimiter='|'"


def directives(request: JobRequest) -> list[str]:
    """Return what a job asks for."""
    array = f"[1-{request.n}]" if request.n > 1 else ""
    lines = [f'-J "{request.name}{array}"', f"-n {request.cores}"]
    lines.append(f'-R "{request.resource_spec or "span[hosts=1]"}"')
    if request.memory and request.resource_spec is None:
        lines += [f"-M {mebibytes(request.memory)}MB"]
        lines += [f'-R "rusage[mem={mebibytes(request.memory)}MB]"']
    if request.walltime_s is not None:
        minutes = -(-int(request.walltime_s) // 60)
        lines.append(f"-W {minutes // 60:02d}:{minutes % 60:02d}")
    lines += [f"-q {request.queue}"] if request.queue else []
    lines += [f"-P {request.account}"] if request.account else []
    return [*lines, f"-o {request.logs}/lsf-%J{'_%I' if request.n > 1 else ''}.out"]


def submitted(text: str, n: int) -> list[str]:
    """Return the ids, from `Job <4711> is submitted to queue <normal>.`"""
    found = re.search(r"Job <(\d+)>", text)
    return with_index(found[1] if found else "", n, "{base}[{i}]")


def status(jobs: Sequence[str]) -> Command:
    """Return the command that asks for jobs, also for those that have ended."""
    return ("bjobs", "-a", "-noheader", "-o", _FIELDS, *bases(jobs, "["))


def states(text: str) -> dict[str, JobState]:
    """Read lines of `id|number in the array|state|exit code|reason of the end|why it waits`."""
    found = {}
    for line in text.splitlines():
        parts = [
            part.strip().replace("-", "", 1) if part.strip() == "-" else part.strip()
            for part in line.split("|", 5)
        ]
        if len(parts) != 6 or not parts[0].isdigit():
            continue
        number, index, word, code, ended, waits = parts
        job = f"{number}[{index}]" if index not in ("", "0") else number
        found[job] = _state(word, code, ended, waits)
    return found


def _state(word: str, code: str, ended: str, waits: str) -> JobState:
    if word in _WAITING:
        hint = "it is held: bresume" if word == "PSUSP" else ""
        return JobState("waiting", waits.rstrip("; "), hint=hint)
    if word in _RUNNING:
        return JobState("running")
    if word == "DONE":
        return JobState("ended")
    parts = [ended, exit_text(int(code)) if code.isdigit() and code != "0" else ""]
    return JobState("ended", ", ".join(filter(None, parts)) or word, failed=True)


LSF: Final = BatchSystem(
    title="LSF",
    prefix="#BSUB",
    directives=directives,
    submit=("bsub",),
    submitted=submitted,
    index="LSB_JOBINDEX",
    cancel=("bkill",),
    status=status,
    states=states,
)
