"""Run the tests of other people's programs; write which versions of them passed.

    python -m tests.frameworks.table                         # with this interpreter
    python -m tests.frameworks.table --python a/bin/python --python b/bin/python --write

Not all of them can be installed together, so each runs with the first interpreter that has it. With
`--write` the table takes its place in docs/compatibility.md; a program that was not run keeps the
row that it has there.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- made by tests.frameworks.table -->\n", "<!-- end -->\n"
HEAD = "| program | version | with weft by | tests |\n|---|---|---|---|\n"


class Program(NamedTuple):
    """A program, and the tests that run it.

    Attributes:
        name: as its distribution is called.
        way: how it gets to weft.
        tests: a file of this folder, and perhaps the name of a test in it.
    """

    name: str
    way: str
    tests: str

    @property
    def target(self) -> str:
        """The tests, as pytest takes them."""
        return f"tests/frameworks/{self.tests}"


#: Tests of the names of dask.distributed.
_D = "test_distributed.py::test_"

PROGRAMS = [
    Program("joblib", '`parallel_config("weft")`: [executor](executor.md)', "test_joblib.py"),
    Program("scikit-learn", "joblib, by the name `dask`", _D + "joblib_and_scikit_learn_take_the_"
            "backend_of_the_name_dask"),
    Program("xarray", "[collections](collections.md)", "test_xarray.py"),
    Program("pandas", "dask's data frames: [collections](collections.md)", "test_data_frames.py"),
    Program("optuna", "ask and tell: [Optuna](with_optuna.md)", "test_optuna.py"),
    Program("tqdm", "`as_completed`", "test_programs.py::test_tqdm_counts_what_completes"),
    Program("adaptive", "[`install()`](from_dask.md), `executor=client`", _D + "adaptive_finds_the_"
            "cores_of_a_client_and_of_its_executor"),
    Program("dask-ml", "[`install()`](from_dask.md)", _D + "hyperband_of_dask_ml"),
    Program("xgboost-cpu", "[`install()`](from_dask.md): `xgboost.dask`", _D + "xgboost_trains_on_"
            "all_workers_and_predicts"),
    Program("coffea", "its own executors: [coffea](with_coffea.md)", "test_coffea.py"),
    Program("papermill", "an engine: [papermill](with_papermill.md)", "test_papermill.py"),
    Program("apache-airflow", "an executor: [Airflow](with_airflow.md)", "test_airflow.py"),
    Program("parsl", "an executor: [Parsl](with_parsl.md)", "test_parsl.py"),
    Program("prefect", "a task runner: [Prefect](with_prefect.md)", "test_prefect.py"),
    Program("snakemake", "an executor plug-in: [Snakemake](with_snakemake.md)",
            "test_snakemake.py"),
]  # fmt: skip


def version_of(python: str, name: str) -> str:
    """Return the version that an interpreter has of a distribution; "" if it has none."""
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def outcome_of(python: str, program: Program) -> tuple[str, bool]:
    """Run the tests of a program; return what came of them, and whether none failed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [python, "-m", "pytest", "-q", "-p", "no:xdist", f"--junit-xml={report}"]
        done = subprocess.run([*command, program.target], cwd=ROOT, check=False)
        if not report.exists():
            return f"pytest ended with {done.returncode}", False
        suite = ET.parse(report).getroot()[0].attrib  # our own
    n_failed = int(suite["failures"]) + int(suite["errors"])
    n_skipped = int(suite["skipped"])
    texts = [f"{int(suite['tests']) - n_failed - n_skipped} passed"]
    texts += [f"{n} {what}" for n, what in ((n_failed, "failed"), (n_skipped, "skipped")) if n]
    return ", ".join(texts), not n_failed


def rows_of(page: str) -> dict[str, str]:
    """Return the rows of a page by the names of their programs."""
    return {m[1]: m[0] + "\n" for m in re.finditer(r"^\| (\S+) \|.*$", page, re.MULTILINE)}


def main() -> int:
    """Run the tests, and show or write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", action="append", help="an interpreter (default: this one)")
    parser.add_argument("--only", nargs="*", help="names of programs (default: all)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()

    rows: dict[str, str] = {}
    all_passed = True
    for program in PROGRAMS:
        found = {}
        if not given.only or program.name in given.only:
            for python in given.python or [sys.executable]:
                if version := version_of(python, program.name):
                    found = {"version": version, "python": python}
                    break
        if not found:
            continue
        outcome, passed = outcome_of(found["python"], program)
        all_passed &= passed
        row = f"| {program.name} | {found['version']} | {program.way} | {outcome} |\n"
        rows[program.name] = row
    page = PAGE.read_text(encoding="utf-8")
    rows = {**rows_of(page), **rows}
    table = HEAD + "".join(rows.get(program.name, "") for program in PROGRAMS)
    print(table)
    if given.write:
        start, rest = page.split(BEGIN)
        text = start + BEGIN + table + END + rest.split(END)[1]
        PAGE.write_text(text, encoding="utf-8")
    return 0 if all_passed else 1


if __name__ == "__main__":
    sys.exit(main())
