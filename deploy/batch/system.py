"""The description of a batch system: its directives, its commands, and how they answer.

Pure: it makes texts and reads texts, and runs nothing. Each system is a `BatchSystem` in a
module of its own; `script.py` makes the script of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..jobs.ledger import JobState

_MAX_CHARS: Final = 500
#: Jobs of one array: the usual limit of several systems.
MAX_ARRAY: Final = 1000

Command = tuple[str, ...]


@dataclass(frozen=True)
class JobRequest:
    """The request of each job.

    Attributes:
        name: of the job, for display.
        cores: of one machine.
        memory: bytes, 0 = what the system gives.
        walltime_s: None = the limit of the queue.
        queue: or partition; None = the default one.
        account: that is charged; None = the default one.
        grace_s: time that workers need to leave.
        logs: folder for what the system itself writes.
        resource_spec: replaces how cores and memory are asked for; None = as usual.
        parallel_environment: of Grid Engine.
        extra: more directives, without their prefix.
        skip: texts; a directive that has one of them is left out.
        n: jobs of the array; 1 = no array.
    """

    name: str
    cores: int = 1
    memory: int = 0
    walltime_s: float | None = None
    queue: str | None = None
    account: str | None = None
    grace_s: float = 60.0
    logs: str = "."
    resource_spec: str | None = None
    parallel_environment: str = "smp"
    extra: Sequence[str] = ()
    skip: Sequence[str] = ()
    n: int = 1


@dataclass(frozen=True)
class Inquiry:
    """A question about the end of one job, for what `status` does not know.

    Attributes:
        command: for the id of a job.
        read: the answer; None = it does not know the job either.
    """

    command: Callable[[str], Command]
    read: Callable[[str, str], JobState | None]


@dataclass(frozen=True)
class BatchSystem:
    """One batch system.

    Attributes:
        title: for display.
        prefix: of a line with a directive.
        directives: what a request asks for, one line each.
        submit: the command that reads a script from standard input.
        submitted: the ids of the `n` jobs, from what that has printed.
        index: the variable with a job's number in its array, from 1 on; other values = no array.
        cancel: the command that takes ids of jobs.
        status: the command that asks for jobs.
        states: the states of all jobs that its answer has.
        inquiries: asked in turn about a job that has failed, or is not known to `status`.
        array_of: the id under which `states` has a job of an array that never began.
        end_of_job: shell command that prints the end of the job in seconds since 1970; "" = none.
    """

    title: str
    prefix: str
    directives: Callable[[JobRequest], list[str]]
    submit: Command
    submitted: Callable[[str, int], list[str]]
    index: str
    cancel: Command
    status: Callable[[Sequence[str]], Command]
    states: Callable[[str], Mapping[str, JobState]]
    inquiries: Sequence[Inquiry] = field(default=())
    array_of: Callable[[str], str] = str
    end_of_job: str = ""


def clock(seconds: float) -> str:
    """Return a time as `hours:minutes:seconds`, rounded up to whole seconds."""
    whole = int(-(-seconds // 1))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def mebibytes(nbytes: int) -> int:
    """Return a size in MiB, rounded up."""
    return -(-nbytes // 2**20)


def with_index(base: str, n: int, form: str) -> list[str]:
    """Return the ids of the jobs of an array; `form` has `{base}` and `{i}`. Alone it is `base`."""
    return [base] if n == 1 else [form.format(base=base, i=i) for i in range(1, n + 1)]


def bases(jobs: Sequence[str], separator: str) -> list[str]:
    """Return the ids without the numbers in arrays, each once, in their order."""
    return list(dict.fromkeys(job.partition(separator)[0] for job in jobs))


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def lines_of(text: str) -> str:
    """Return an error text as one line; some systems add that they exit."""
    lines = [line.strip() for line in text.splitlines()]
    return "; ".join(line for line in lines if line and line != "Exiting.")[:_MAX_CHARS]


def exit_text(code: int) -> str:
    """Return how a job has ended, by the code of a shell."""
    if code == 127:
        return "exit code 127, a command was not found"
    if code > 128:
        return f"exit code {code}, as after signal {code - 128}"
    return f"exit code {code}"
