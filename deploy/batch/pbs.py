"""PBS, as OpenPBS and PBS Professional are: `qsub`, `qstat`, `qdel`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from ..jobs.ledger import JobState
from .system import BatchSystem, Command, JobRequest, clock, last_line, mebibytes

#: States of `qstat`: queued, held, waiting, moved, in transit; running, ending, suspended, begun.
_WAITING: Final = "QHWTM"
_RUNNING: Final = "REUSB"
#: The exit status of a job that was ended by a signal is this and its number.
_SIGNALLED: Final = 256


def directives(request: JobRequest) -> list[str]:
    """Return what a job asks for."""
    memory = f":mem={mebibytes(request.memory)}mb" if request.memory else ""
    spec = request.resource_spec or f"select=1:ncpus={request.cores}{memory}"
    lines = [f"-N {request.name[:15]}", "-S /bin/bash", f"-l {spec}"]
    lines += [f"-l walltime={clock(request.walltime_s)}"] if request.walltime_s is not None else []
    lines += [f"-q {request.queue}"] if request.queue else []
    lines += [f"-A {request.account}"] if request.account else []
    lines += ["-j oe", f"-o {request.logs}/"]
    return [*lines, f"-J 1-{request.n}"] if request.n > 1 else lines


def submitted(text: str, n: int) -> list[str]:
    """Return the ids, from `4711.server` or, of an array, `4711[].server`."""
    base = last_line(text)
    return [base] if n == 1 else [base.replace("[]", f"[{i}]") for i in range(1, n + 1)]


def status(jobs: Sequence[str]) -> Command:
    """Return the command that asks for jobs, also for those that have ended."""
    arrays = dict.fromkeys(re.sub(r"\[\d+\]", "[]", job) for job in jobs)
    return ("qstat", "-x", "-f", "-t", *arrays)


def states(text: str) -> dict[str, JobState]:
    """Read what `qstat -f` prints: an id, then indented lines of `name = value`."""
    return {job: _state(fields) for job, fields in _jobs(text) if "job_state" in fields}


def _jobs(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    # A long value goes on in the next line, after a tab.
    for block in re.split(r"(?m)^Job Id:", text.replace("\n\t", ""))[1:]:
        first, *lines = block.splitlines()
        pairs = [line.partition(" = ") for line in lines]
        yield first.strip(), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _state(fields: dict[str, str]) -> JobState:
    letter = fields["job_state"][:1]
    comment = fields.get("comment", "")
    if letter in _WAITING:
        if letter == "H":
            return JobState("waiting", comment or "held", hint="it is held: qrls")
        return JobState("waiting", comment)
    if letter in _RUNNING:
        return JobState("running")
    code = fields.get("exit_status", "")
    if code == "0":
        return JobState("ended")
    why = [comment] if comment else []
    if re.fullmatch(r"-?\d+", code):
        number = int(code)
        is_signal = number > _SIGNALLED
        why.append(f"signal {number - _SIGNALLED}" if is_signal else f"exit status {number}")
    return JobState("ended", ", ".join(why), failed=True)


PBS: Final = BatchSystem(
    title="PBS",
    prefix="#PBS",
    directives=directives,
    submit=("qsub",),
    submitted=submitted,
    index="PBS_ARRAY_INDEX",
    cancel=("qdel",),
    status=status,
    states=states,
)
