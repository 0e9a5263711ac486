"""The script of a job: directives of its batch system, then the same lines for all. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from .system import BatchSystem, JobRequest

_LIFETIME: Final = """\
# Workers leave in time by themselves: nothing is lost, and a job that is over frees its place.
lifetime=()
left={left}
{end}test -z "$left" || lifetime=(--lifetime "$((left > {margin} ? left - {margin} : 1))s")
"""
_END: Final = """\
if end=$(exec 2>/dev/null; {command}); then left=$((end - $(date +%s))); fi
"""
_REST: Final = """\
{command} \\
  --name "$name" ${{lifetime[@]+"${{lifetime[@]}}"}} &
workers=$!
# The first signal lets the workers finish their tasks, give away what only they have, and leave.
trap 'kill -TERM "$workers"; trap "" USR1 USR2 TERM' USR1 USR2 TERM

# `wait` returns when a signal has come; then the process may still run.
while :; do
  wait "$workers"
  code=$?
  kill -0 "$workers" 2>/dev/null || exit "$code"
done
"""


def make_script(
    system: BatchSystem,
    request: JobRequest,
    names: Sequence[str],
    command: Sequence[str],
    *,
    logs: str,
    shebang: str = "#!/bin/bash",
    prologue: Sequence[str] = (),
) -> str:
    """Return the script of jobs.

    Args:
        system: of the directives.
        request: what each job asks for.
        names: of the jobs, numbered on: the number of the first and its place in an array make
            those of the others.
        command: that runs the workers, without the name and the lifetime.
        logs: the folder for what jobs write.
        shebang: the first line.
        prologue: lines of shell before the workers, such as `module load`.
    """
    asked = [*system.directives(request), *request.extra]
    kept = [line for line in asked if not any(text in line for text in request.skip)]
    prefix, _, first = names[0].rpartition("-")
    lines = [shebang, *(f"{system.prefix} {line}" for line in kept), ""]
    if len(names) > 1:
        lines += [f"name={shlex.quote(prefix)}-$(({int(first) - 1} + ${system.index}))"]
    else:
        lines += [f"name={shlex.quote(names[0])}"]
    lines += [f'exec >>{shlex.quote(logs)}/"$name.log" 2>&1', *prologue]
    text = "\n".join(lines) + "\n"
    end = _END.format(command=system.end_of_job) if system.end_of_job else ""
    left = '""' if request.walltime_s is None else f"$(({int(request.walltime_s)} - SECONDS))"
    text += _LIFETIME.format(left=left, end=end, margin=int(2 * request.grace_s))
    return text + _REST.format(command=shlex.join(command))
