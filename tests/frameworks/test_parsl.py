"""Parsl on a cluster: its own tests, and what its users notice when something goes wrong."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.frameworks.hosts import ended, required, run, run_python, started

pytestmark = pytest.mark.slow

START = """
import os, signal, threading, time
import parsl
from parsl import python_app, bash_app
from parsl.config import Config
from weft.compat.parsl import WeftExecutor
"""

#: Files of Parsl's own tests that run apps on the executor that is loaded.
PYTHON_APPS = """basic dependencies depfail_propagation exception fail fibonacci_recursive futures
    import_fail join lifted mapred memoize_1 outputs pipeline timeout"""
BASH_APPS = "apptimeout basic error_codes multiline pipeline"
ERRORS = "fail python_walltime"
OWN = {"python_apps": PYTHON_APPS, "bash_apps": BASH_APPS, "error_handling": ERRORS}


@pytest.fixture(autouse=True)
def parsl():
    return required("parsl", "parsl")


def test_tests_of_parsl_itself_pass(tmp_path):
    import parsl

    folder = Path(parsl.__file__).parent / "tests"
    if not folder.is_dir():
        pytest.skip("this Parsl has come without its tests: pip install parsl")
    files = [
        str(folder / f"test_{group}" / f"test_{name}.py")
        for group, names in OWN.items()
        for name in names.split()
    ]
    options = [
        "-q",
        "--noconftest",
        "-p",
        "tests.frameworks.parsl_suite",
        "--import-mode=importlib",
    ]
    options += ["--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-p", "no:xdist"]
    root = str(Path(__file__).resolve().parents[2])
    code, printed = run(
        [sys.executable, "-m", "pytest", *options, *files], tmp_path, PYTHONPATH=root
    )
    assert code == 0, printed
    assert " passed" in printed


def test_a_failed_app_raises_its_error_where_its_result_is_read(tmp_path):
    printed = run_python(
        START
        + """
@python_app
def divide(x):
    return 1 / x

with parsl.load(Config(executors=[WeftExecutor(max_workers=1)])):
    try:
        divide(0).result()
    except ZeroDivisionError:
        import traceback
        traceback.print_exc()
    dependent = divide(divide(0))
    print(type(dependent.exception()).__name__)
""",
        tmp_path,
    )
    assert "return 1 / x" in printed
    assert "ZeroDivisionError: division by zero" in printed
    assert "DependencyError" in printed


def test_an_app_whose_worker_is_killed_runs_again(tmp_path):
    printed = run_python(
        START
        + """
@python_app
def fragile(path):
    import os, signal
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"

with parsl.load(Config(executors=[WeftExecutor(max_workers=1)])):
    print(fragile(os.path.abspath("once")).result())
""",
        tmp_path,
    )
    assert "survived" in printed


def test_resources_of_an_app_are_options_of_its_task_and_others_are_refused(tmp_path):
    printed = run_python(
        START
        + """
import weft

@python_app
def options(parsl_resource_specification={}):
    return os.getpid()

with weft.LocalCluster(n_workers=1, threads_per_worker=2, resources={"GPU": 1}) as cluster:
    with weft.Client(cluster) as client:
        with parsl.load(Config(executors=[WeftExecutor(client=client)])):
            wanted = {"cores": 2, "memory": 10, "gpus": 1, "priority": 3}
            assert options(parsl_resource_specification=wanted).result() != os.getpid()
            print(options(parsl_resource_specification={"disk": 5}).exception())
        assert client.submit(abs, -1).result() == 1
        print("still open")
""",
        tmp_path,
    )
    assert "WeftExecutor knows cores, memory, gpus, priority" in printed
    assert "disk" in printed
    assert "still open" in printed


def test_ctrl_c_ends_a_program_and_its_cluster_while_apps_run(tmp_path):
    program = (
        START
        + """
@python_app
def long(path):
    import time
    open(path, "w").close()
    time.sleep(600)  # workload

with parsl.load(Config(executors=[WeftExecutor(max_workers=1)])):
    future = long(os.path.abspath("begun"))
    while not os.path.exists("begun"):
        time.sleep(0.01)
    print("begun", flush=True)
    future.result()
"""
    )
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    process = started([sys.executable, "-u", str(path)], tmp_path)
    lines = []
    while "begun\n" not in lines:
        line = process.stdout.readline()
        assert line, lines
        lines.append(line)
    process.send_signal(signal.SIGINT)
    code, printed = ended(process)
    assert code != 0
    assert "KeyboardInterrupt" in printed
