"""The kinds of jobs: what amounts, conditions and the journal cost, beside plain calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from ..framework.work import Sample, Workload, check

#: Time of a call where a resource is scarce, seconds.
SCARCE_S: Final = 1e-3
#: Jobs that cannot run, for each call beside them.
WAITING: Final = 20

NO_CONDITIONS = "no conditions on states: an input is the nearest"
NO_RECORD = "no record of calls"
COMMANDS_ONLY = "its jobs are commands"


def pass_time(x: int) -> int:
    """Take a thread for a while, without the interpreter."""
    time.sleep(SCARCE_S)
    return x


def _timed(run: Callable[[], int], n: int, expected: int) -> Sample:
    began = time.perf_counter()
    found = run()
    seconds = time.perf_counter() - began
    return Sample(n / seconds, check(found, expected))


def _calls(verb: str) -> Callable[[Any, int], Sample]:
    """Return a workload that calls a function with each number below its size."""

    def run(system: Any, n: int) -> Sample:
        sample = _timed(lambda: getattr(system, verb)(abs, n), n, n * (n - 1) // 2)
        if hasattr(system, "wait_recorded"):
            system.wait_recorded()
        return sample

    return run


def _scarce(system: Any, n: int) -> Sample:
    return _timed(lambda: system.with_units(pass_time, n), n, n * (n - 1) // 2)


def _beside(system: Any, n: int) -> Sample:
    held = system.beside(abs, WAITING * n)
    try:
        return _timed(lambda: system.calls(abs, n), n, n * (n - 1) // 2)
    finally:
        other, waiting = held
        waiting.clear()
        other.close()


def _commands(system: Any, n: int) -> Sample:
    return _timed(lambda: system.commands(n), n, 0)


def _of_calls(title: str, verb: str, refusals: Mapping[str, str], size: int = 50_000) -> Workload:
    return Workload(
        title=title,
        run=_calls(verb),
        size=size,
        quick_size=500,
        unit="calls/s",
        refusals={"hyperqueue": COMMANDS_ONLY, **refusals},
    )


WORKLOADS: dict[str, Workload] = {
    "plain": _of_calls("calls without options", "calls", {}),
    "cores": _of_calls(
        "calls with cores=1 (dask: a resource that is never scarce)", "with_cores", {}
    ),
    "memory": _of_calls(
        "calls with memory=, never scarce", "with_memory", {"dask": "see the row of cores"}
    ),
    "scarce": Workload(
        title="calls of 1 ms for one unit of a resource, of which each worker has one",
        run=_scarce,
        size=4_000,
        quick_size=200,
        unit="calls/s",
        refusals={"hyperqueue": COMMANDS_ONLY},
    ),
    "after": _of_calls("calls with after= one that has not run", "after", {"dask": NO_CONDITIONS}),
    "detached": _of_calls("calls with detached=True", "detached", {"dask": NO_RECORD}),
    "beside": Workload(
        title=f"calls, beside {WAITING} times as many jobs that cannot run",
        run=_beside,
        size=50_000,
        quick_size=500,
        unit="calls/s",
        refusals={"hyperqueue": COMMANDS_ONLY, "dask": "no jobs that wait for a time"},
        patience=2.0,
    ),
    "commands": Workload(
        title="commands that do nothing", run=_commands, size=4_000, quick_size=50, unit="calls/s"
    ),
}
