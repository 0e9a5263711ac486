"""Run the executor tests of the interpreter at hand on `weft.Executor`; write the outcomes as JSON.

    python -m tests.conformance.executor_suite REPORT [TEST ...]

The tests are those of CPython for its own pools (`test.test_concurrent_futures`: a module before
Python 3.12, a package since). Each class of them is run once, with an executor of weft in the place
of each pool: also where a test names a pool of the module `concurrent.futures`, and in the scripts
that tests run in other processes. `run.py` starts this and prints the table.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import importlib.util
import json
import multiprocessing
import sys
import time
import types
import unittest
from pathlib import Path
from typing import Any

import cloudpickle

import weft

from .executor_deselected import DESELECTED

MODULE = "test.test_concurrent_futures"
#: Where packages of Linux distributions have the tests of an interpreter.
ELSEWHERE = (
    f"/usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}",
    f"/usr/lib64/python{sys.version_info[0]}.{sys.version_info[1]}",
)
#: Modules of the package, and the classes of tests that are run. A class that has no executor of
#: its own is combined with one.
CLASSES = {
    "test_init": ("InitializerMixin", "FailingInitializerMixin"),
    "test_shutdown": ("ExecutorShutdownTest", "ThreadPoolShutdownTest", "ProcessPoolShutdownTest"),
    "test_wait": ("WaitTests", "ThreadPoolWaitTests"),
    "test_as_completed": ("AsCompletedTests",),
    "executor": ("ExecutorTest",),
    "test_thread_pool": ("ThreadPoolExecutorTest",),
    "test_process_pool": ("ProcessPoolExecutorTest",),
    "test_deadlock": ("ExecutorDeadlockTest",),
}


class ExecutorUnderTest(weft.Executor):
    """`weft.Executor`, with a parameter of process pools that says how to start processes."""

    def __init__(self, max_workers: int | None = None, mp_context: Any = None, **rest: Any) -> None:
        super().__init__(max_workers, **rest)


class InPlaceOfThreads(ExecutorUnderTest):
    pass


class InPlaceOfProcesses(ExecutorUnderTest):
    pass


def folder_of_tests() -> str | None:
    """Return the folder that the tests must be read from besides the interpreter's; "" = none."""
    if importlib.util.find_spec("test") is None:
        return None
    if importlib.util.find_spec(MODULE) is not None:
        return ""
    for folder in ELSEWHERE:
        if Path(folder, "test", "test_concurrent_futures.py").exists() or (
            Path(folder, "test", "test_concurrent_futures", "__init__.py").exists()
        ):
            return str(Path(folder, "test"))
    return None


def why_not() -> str:
    """Return why the tests cannot be run here, and what to do about it; "" if they can."""
    if folder_of_tests() is not None:
        return ""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return (
        f"{sys.executable} has no {MODULE}: install the tests of Python {version} (Debian, Ubuntu: "
        f"apt install libpython{version}-testsuite; Fedora: python{version}-test), or make the "
        "environment with an interpreter that has them"
    )


def load() -> dict[str, types.ModuleType]:
    """Import the tests; return {name of a module of the package: module}."""
    folder = folder_of_tests()
    if folder:
        importlib.import_module("test").__path__.append(folder)
    package = importlib.import_module(MODULE)
    modules = dict.fromkeys(CLASSES, package)  # all of them are one module before Python 3.12
    if hasattr(package, "__path__"):
        modules = {name: importlib.import_module(f"{MODULE}.{name}") for name in CLASSES}
        modules["util"] = importlib.import_module(f"{MODULE}.util")
    for module in modules.values():
        # Workers may not find it.
        cloudpickle.register_pickle_by_value(module)
        _replace_pools(module, folder or "")
    return modules


def _replace_pools(module: types.ModuleType, folder: str) -> None:
    pools = types.SimpleNamespace(
        **{name: getattr(concurrent.futures, name) for name in dir(concurrent.futures)}
    )
    pools.process = importlib.import_module("concurrent.futures.process")
    pools.ThreadPoolExecutor, pools.ProcessPoolExecutor = InPlaceOfThreads, InPlaceOfProcesses
    if hasattr(module, "futures"):
        module.futures = pools
    run = getattr(module, "assert_python_ok", None)
    if run is None:
        return

    def run_script(option: str, script: str) -> Any:
        lines = script.split("\n")
        # The first line opens a block, whose indentation is that of the second.
        indent = lines[1][: len(lines[1]) - len(lines[1].lstrip())]
        begin = ["import cloudpickle, importlib, test"]
        if folder:
            begin += [f"test.__path__.append({folder!r})"]
        begin += [
            f"cloudpickle.register_pickle_by_value(importlib.import_module({module.__name__!r}))"
        ]
        body = [
            line
            if "from concurrent.futures import" not in line
            else line.replace("concurrent.futures", "weft").replace(
                " import ", " import Executor #"
            )
            for line in lines[1:]
        ]
        text = "\n".join([lines[0], *(indent + line for line in begin), *body])
        for name in ("InPlaceOfThreads", "InPlaceOfProcesses", "ThreadPoolExecutor"):
            text = text.replace(f"{name}(", "Executor(")
        return run(option, text.replace(", mp_context=context", ""))

    module.assert_python_ok = run_script


def cases(modules: dict[str, types.ModuleType]) -> list[unittest.TestCase]:
    """Return all tests, each with an executor of weft."""
    util = modules.get("util", modules["executor"])
    found: list[unittest.TestCase] = []
    for module_name, names in CLASSES.items():
        for name in names:
            given = getattr(modules[module_name], name)
            members: dict[str, Any] = {"executor_type": InPlaceOfThreads}
            bases = (given,)
            if not issubclass(given, unittest.TestCase):
                mixins = (util.ExecutorMixin,) if not issubclass(given, util.ExecutorMixin) else ()
                bases = (given, *mixins, util.BaseTestCase)
            if name.startswith("Process") or name == "ExecutorDeadlockTest":
                members |= {"executor_type": InPlaceOfProcesses, "ctx": "spawn"}
            made = type(name, bases, members)
            found += unittest.defaultTestLoader.loadTestsFromTestCase(made)  # type: ignore[arg-type]
    # A class that inherits the tests of another adds its own only.
    seen: set[str] = set()
    plain = {
        method
        for name in ("ExecutorTest", "ExecutorShutdownTest", "WaitTests")
        for module in modules.values()
        for method in dir(getattr(module, name, object))
        if method.startswith("test")
    }
    chosen = []
    for case in found:
        test = test_name(case)
        kind, _, method = test.partition(".")
        is_inherited = kind.startswith(("Thread", "Process")) and method in plain
        if not is_inherited and test not in seen:
            seen.add(test)
            chosen.append(case)
    return chosen


def test_name(case: unittest.TestCase) -> str:
    """Return the name of a test in the report and in the list of deselected ones."""
    return f"{type(case).__name__}.{case._testMethodName}"


class Outcomes(unittest.TestResult):
    """Collects {test: outcome, seconds, text}."""

    def __init__(self) -> None:
        super().__init__()
        self.tests: dict[str, dict[str, Any]] = {}
        self._began_s = 0.0

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began_s = time.monotonic()

    def _note(self, test: unittest.TestCase, outcome: str, text: str = "") -> None:
        name = test_name(test)
        if name in DESELECTED and outcome != "skipped":
            outcome = "listed" if outcome == "passed" else "deselected"
            text = text or DESELECTED[name].reason
        self.tests[name] = {
            "outcome": outcome,
            "seconds": time.monotonic() - self._began_s,
            "graphs": 0,
            "text": text,
        }
        print(outcome, name, text if outcome == "failed" else "", flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._note(test, "passed")

    def addFailure(self, test: Any, err: Any) -> None:
        self._note(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, "skipped", reason)


def main(report: str, chosen: list[str]) -> int:
    """Run the tests; return 0, whatever the outcomes."""
    multiprocessing.set_start_method("spawn", force=True)
    outcomes = Outcomes()
    for case in cases(load()):
        name = test_name(case)
        if chosen and not any(part in name for part in chosen):
            continue
        entry = DESELECTED.get(name)
        if entry is not None and not entry.run:
            outcomes._began_s = time.monotonic()
            outcomes._note(case, "deselected", entry.reason)
            continue
        case.run(outcomes)
    Path(report).write_text(json.dumps({"tests": outcomes.tests}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    if hindrance := why_not():
        sys.exit(hindrance)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
