"""Grid Engine (SGE): `qsub`, `qstat`, `qacct`, `qdel`. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree as ET

from ..jobs.ledger import JobState
from .system import (
    BatchSystem,
    Command,
    Inquiry,
    JobRequest,
    clock,
    exit_text,
    last_line,
    with_index,
)


def directives(request: JobRequest) -> list[str]:
    """Return what a job asks for; how memory is asked for differs from site to site."""
    lines = [f"-N {request.name}", "-S /bin/bash", "-cwd", "-j y", f"-o {request.logs}/"]
    lines += [f"-pe {request.parallel_environment} {request.cores}"] if request.cores > 1 else []
    lines += [f"-l h_rt={clock(request.walltime_s)}"] if request.walltime_s is not None else []
    lines += [f"-l {request.resource_spec}"] if request.resource_spec else []
    lines += [f"-q {request.queue}"] if request.queue else []
    lines += [f"-P {request.account}"] if request.account else []
    return [*lines, f"-t 1-{request.n}"] if request.n > 1 else lines


def submitted(text: str, n: int) -> list[str]:
    """Return the ids, from `4711` or, of an array, `4711.1-4:1`."""
    return with_index(last_line(text).partition(".")[0], n, "{base}.{i}")


def status(jobs: Sequence[str]) -> Command:
    """Return the command that asks for the jobs of this user, each one of an array by itself."""
    return ("qstat", "-xml", "-g", "d")


def states(text: str) -> dict[str, JobState]:
    """Read what `qstat -xml` prints. Jobs that have ended are not in it."""
    found = {}
    for row in ET.fromstring(text).iter("job_list"):
        number, task = row.findtext("JB_job_number", ""), row.findtext("tasks", "")
        job = f"{number}.{task}" if task else number
        letters = row.findtext("state", "")
        if "E" in letters:
            hint = f"it could not be started: qstat -j {number} has the reason, qmod -cj clears it"
            found[job] = JobState("waiting", f"state {letters}", hint=hint)
        elif "h" in letters and "q" in letters:
            found[job] = JobState("waiting", "held", hint="it is held: qrls")
        elif "q" in letters:
            found[job] = JobState("waiting")
        else:
            found[job] = JobState("running")
    return found


def _accounting(job: str) -> Command:
    number, _, task = job.partition(".")
    return ("qacct", "-j", number, *(("-t", task) if task else ()))


def read_accounting(text: str, job: str) -> JobState | None:
    """Read what `qacct -j` prints: lines of a name and a value; the last entry counts."""
    block = re.split(r"(?m)^=+\s*$", text)[-1]
    pairs = [line.strip().partition(" ") for line in block.splitlines()]
    fields = {name: rest.strip() for name, _, rest in pairs}
    code = fields.get("exit_status", "").partition(" ")[0]
    if not code.isdigit():
        return None
    failed, _, why = fields.get("failed", "0").partition(":")
    parts = [re.sub(r"\s+", " ", why).strip()] if failed.strip() not in ("0", "") else []
    parts += [exit_text(int(code))] if code != "0" else []
    return JobState("ended", ", ".join(filter(None, parts)), failed=bool(parts))


GRID_ENGINE: Final = BatchSystem(
    title="Grid Engine",
    prefix="#$",
    directives=directives,
    submit=("qsub", "-terse"),
    submitted=submitted,
    index="SGE_TASK_ID",
    cancel=("qdel",),
    status=status,
    states=states,
    inquiries=(Inquiry(_accounting, read_accounting),),
)
