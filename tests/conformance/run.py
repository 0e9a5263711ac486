"""Run dask's own tests on weft's engines, and on dask's for comparison; print one table.

And Python's own tests of executors on `weft.Executor`: `--engine executor` (executor_suite.py).

    python -m tests.conformance.run                                     # all of PLAN
    python -m tests.conformance.run --engine threaded --suite bag
    python -m tests.conformance.run --engine threaded -- -k rechunk -x  # arguments for pytest

Owns the plan, the table and the verdict. Each engine has a pytest of its own, since an engine is
put into dask for a whole process. The exit code is 1 if a test failed on weft (and not on dask in
the same run), or if one that is deselected passes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from . import executor_suite, suites
from .engines import ENGINES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

ALL = tuple(suites.SUITES)
#: {engine: the suites that `make conformance` runs on it}. See README.md for the choice.
PLAN: dict[str, tuple[str, ...]] = {
    "threaded": ALL,
    "sync": ALL,
    "ordered": ("engines", "base"),
    "processes": ALL,
    "cluster": ALL,
    "dask-threaded": ALL,
    "dask-sync": ("bag", "delayed", "engines", "base"),
    "dask-processes": ("bag", "delayed", "engines", "base"),
}
#: Not an engine: the tests of `concurrent.futures`, on `weft.Executor`.
EXECUTOR = "executor"
#: Modules without which tests fail. For want of others that dask uses, tests are skipped.
NEEDED = ("dask", "numpy", "pandas", "pyarrow", "pytest_mock", "pytest_timeout", "tblib", "xdist")
INSTALL = "pip install -e '.[test,conformance]'"
COUNTED = ("passed", "failed", "skipped", "deselected")


class Found(TypedDict):
    """The outcome of a test, as plugin.py writes it."""

    #: One of COUNTED, or "listed": passed, though it is in the list of deselected tests.
    outcome: str
    seconds: float
    #: Run by the engines on behalf of the test.
    graphs: int
    #: Of a failure, or the reason why not.
    text: str


@dataclass
class Run:
    """The outcomes of the tests on one engine."""

    engine: str
    wall_s: float
    #: {node id below the folder of dask: ...}.
    tests: dict[str, Found] = field(default_factory=dict)
    #: The end of what pytest printed, if it did not get through.
    broken: str = ""

    def having(self, outcome: str) -> list[str]:
        """Return the tests with an outcome."""
        return [test for test, found in self.tests.items() if found["outcome"] == outcome]


def why_not() -> str:
    """Return why dask's tests cannot be run here, and what to do about it; "" if they can."""
    for name in NEEDED:
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed: {INSTALL}"
    if not (dask_folder() / "array" / "tests").is_dir():
        return f"{dask_folder()} comes without its tests: install dask from its wheel"
    return ""


def dask_folder() -> Path:
    """Return the folder of the installed dask."""
    spec = importlib.util.find_spec("dask")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def command(engine: str, places: Sequence[str], report: Path, n_processes: int) -> list[str]:
    """Return the command that runs tests of dask on one engine.

    Args:
        engine: one of `engines.ENGINES`.
        places: files, folders and node ids below the folder of dask.
        report: where plugin.py is to write the outcomes.
        n_processes: of pytest-xdist; 0 = none.
    """
    folder = dask_folder()
    return [
        *(sys.executable, "-m", "pytest", "-q", "--tb=short"),
        *("-c", str(HERE / "dask_suites.ini"), f"--rootdir={folder}"),
        *("-m", "not network and not gpu and not array_expr"),
        *("-n", str(n_processes), "--dist=worksteal"),
        *(f"--engine={engine}", f"--conformance-report={report}"),
        f"--basetemp={report.parent / 'tmp'}",
        *(f"--ignore={folder / place}" for place in suites.LEFT_OUT if suites.suite_of(place)),
        *(str(folder / place) for place in places),
    ]


def run_engine(
    engine: str, places: Sequence[str], n_processes: int, more: Sequence[str] = ()
) -> tuple[Run, str]:
    """Run tests of dask on one engine; return their outcomes, and the output of pytest."""
    # The tests leave files in the current folder.
    with tempfile.TemporaryDirectory(prefix="weft-conformance-") as scratch:
        report = Path(scratch, "report.json")
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            # The tests themselves are run in parallel.
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        began_s = time.monotonic()
        done = subprocess.run(
            [*command(engine, places, report, n_processes), *more],
            cwd=scratch,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        run = Run(engine, wall_s=time.monotonic() - began_s)
        if report.exists():
            run.tests = json.loads(report.read_text(encoding="utf-8"))["tests"]
        if done.returncode not in {0, 1} or not run.tests:  # 1 = tests failed
            run.broken = f"pytest ended with {done.returncode}\n{done.stdout[-4000:]}"
    return run, done.stdout


def run_executor(more: Sequence[str] = ()) -> tuple[Run, str]:
    """Run the interpreter's own executor tests; return their outcomes, and what was printed."""
    with tempfile.TemporaryDirectory(prefix="weft-conformance-") as scratch:
        report = Path(scratch, "report.json")
        began_s = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "tests.conformance.executor_suite", str(report), *more],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        run = Run(EXECUTOR, wall_s=time.monotonic() - began_s)
        if report.exists():
            run.tests = json.loads(report.read_text(encoding="utf-8"))["tests"]
        if done.returncode or not run.tests:
            run.broken = f"the tests ended with {done.returncode}\n{done.stdout[-4000:]}"
    return run, done.stdout


def rows(run: Run) -> Iterator[list[str]]:
    """Yield the rows of the table for one engine: one per suite, and one for all."""
    counts: dict[str, Counter[str]] = {}
    seconds: dict[str, float] = {}
    for test, found in run.tests.items():
        suite = EXECUTOR
        if run.engine != EXECUTOR:
            suite = suites.suite_of(test.partition("::")[0])
        outcome = "deselected" if found["outcome"] == "listed" else found["outcome"]
        for name in (suite, "all"):
            counts.setdefault(name, Counter())[outcome] += 1
            counts[name]["graphs"] += found["graphs"]
            seconds[name] = seconds.get(name, 0.0) + found["seconds"]
    seconds["all"] = run.wall_s
    for suite in (*ALL, EXECUTOR, "all"):
        if suite in counts:
            numbers = [counts[suite][name] for name in (*COUNTED, "graphs")]
            yield [run.engine, suite, *(f"{n:,}" for n in numbers), f"{seconds[suite]:.0f}"]


def print_table(runs: Sequence[Run]) -> None:
    """Print the outcomes of all runs."""
    table = [["engine", "suite", *COUNTED, "graphs", "seconds"]]
    table += [row for run in runs for row in rows(run)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print()
    for row in table:
        names = [text.ljust(width) for text, width in zip(row[:2], widths, strict=False)]
        numbers = [text.rjust(width) for text, width in zip(row[2:], widths[2:], strict=True)]
        print("  ".join(names + numbers))
    print("\nseconds: of a suite, added up over its tests; of all, from the start to the end")


def judge(runs: Sequence[Run]) -> bool:
    """Print every unexpected outcome; return whether there was none."""
    #: {default scheduler: what fails with dask's engine}. Nothing that weft could be blamed for.
    excused: dict[str, set[str]] = {}
    for run in runs:
        if run.engine != EXECUTOR and ENGINES[run.engine].provider == "dask":
            excused.setdefault(ENGINES[run.engine].default, set()).update(run.having("failed"))
    wrong, remarks = [], []
    for run in runs:
        if run.broken:
            wrong.append(f"{run.engine}: {run.broken}")
        wrong += [
            f"{run.engine}: {test} passes: take it from {_list_of(run)}"
            for test in run.having("listed")
        ]
        of_dask: set[str] = set()
        if run.engine != EXECUTOR:
            of_dask = excused.get(ENGINES[run.engine].default, set())
        for test in run.having("failed"):
            if test not in of_dask:
                wrong.append(f"{run.engine}: {test} failed\n{run.tests[test]['text']}")
            elif ENGINES[run.engine].provider == "dask":
                remarks.append(f"{run.engine}: {test} failed: put it into deselected.py")
    if remarks:
        print("", *remarks, sep="\n")
    if wrong:
        print("", *wrong, sep="\n\n")
    return not wrong


def _list_of(run: Run) -> str:
    return "executor_deselected.py" if run.engine == EXECUTOR else "deselected.py"


def read_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.run",
        description="Run dask's own tests on weft's engines, and Python's own tests of executors.",
        epilog="Arguments after -- go to pytest; for `executor` they are parts of names of tests.",
    )
    parser.add_argument(
        "--engine",
        action="append",
        choices=[*ENGINES, EXECUTOR],
        help="only this one; may be repeated",
    )
    parser.add_argument(
        "--suite", action="append", choices=ALL, help="only this one; may be repeated"
    )
    parser.add_argument(
        "-n", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    parser.add_argument(
        "--output", type=Path, help="folder for what pytest prints, and all outcomes"
    )
    parser.add_argument("pytest_args", nargs="*", metavar="-- ...", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    """Carry out the command line; return the exit code."""
    options = read_arguments()
    engines = options.engine or [*PLAN, *([] if options.suite else [EXECUTOR])]
    needs_dask = any(engine != EXECUTOR for engine in engines)
    hindrances = [why_not() if needs_dask else ""]
    hindrances += [executor_suite.why_not() if EXECUTOR in engines else ""]
    if any(hindrances):
        print(*filter(None, hindrances), sep="\n", file=sys.stderr)
        return 2
    # Programs that a shell starts in the background ignore Ctrl-C, which dask's tests of it need.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    version = importlib.metadata.version("dask") if needs_dask else ""
    print(f"dask {version}, {options.n} processes" if needs_dask else f"Python {sys.version}")
    if needs_dask and version != suites.DASK_VERSION:
        print(
            f"warning: the list of deselected tests is for dask {suites.DASK_VERSION}, so some "
            "failures may not be weft's",
            file=sys.stderr,
        )
    runs = []
    for engine in engines:
        if engine == EXECUTOR:
            print(f"{engine}: the tests of {executor_suite.MODULE} ...", flush=True)
            run, printed = run_executor(options.pytest_args)
        else:
            chosen = options.suite or (ALL if options.engine else PLAN[engine])
            chosen = [suite for suite in chosen if suite not in suites.NOT_ON.get(engine, {})]
            places = [place for suite in chosen for place in suites.SUITES[suite]]
            print(f"{engine}: {', '.join(chosen)} ...", flush=True)
            run, printed = run_engine(engine, places, options.n, options.pytest_args)
        runs.append(run)
        if options.output is not None:
            options.output.mkdir(parents=True, exist_ok=True)
            Path(options.output, f"{engine}.txt").write_text(printed, encoding="utf-8")
            Path(options.output, f"{engine}.json").write_text(
                json.dumps({"dask": version, "tests": run.tests}, indent=1), encoding="utf-8"
            )
    print_table(runs)
    return 0 if judge(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
