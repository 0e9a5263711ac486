"""A flow of Prefect on a cluster, and what its users notice when something goes wrong."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.frameworks.hosts import LIMIT_S, ended, required, run_python, started

pytestmark = pytest.mark.slow

START = """
import os, signal, time
from prefect import flow, task
from weft.compat.prefect import WeftTaskRunner
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The settings of Prefect's temporary server, with one database, and nothing over the network.

    To make the database takes most of the 15 s of a processor that the first start needs: on a busy
    machine that is minutes.
    """
    required("prefect", "prefect")
    return {
        "PREFECT_HOME": str(tmp_path_factory.mktemp("prefect")),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": str(LIMIT_S),
    }


def test_a_flow_has_its_results_failures_and_calls_of_workers_that_died(server, tmp_path):
    printed = run_python(
        START
        + """
@task
def square(x):
    return x * x

@task
async def add(numbers):
    return sum(numbers), os.getpid()

@task
def divide(x):
    return 1 / x

@task
def fragile(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"

@task
def outer(x):
    return square.submit(x).result()

@flow(task_runner=WeftTaskRunner(max_workers=2))
def main():
    total, pid = add.submit(square.map(range(5))).result()
    assert total == 30 and pid != os.getpid()
    assert square.submit(3, wait_for=[divide.submit(1)]).result() == 9
    failed = divide.submit(0)
    dependent = square.submit(failed)
    for future in (failed, dependent):
        future.wait()
    print(failed.state.name, dependent.state.name)
    try:
        failed.result()
    except ZeroDivisionError:
        print("raised")
    print(fragile.submit(os.path.abspath("once")).result())
    assert outer.submit(4).result() == 16
    square.submit(7)                                    # the end of the flow waits for it
    return "flow done"

print(main())
""",
        tmp_path,
        **server,
    )
    assert "Failed NotReady" in printed
    assert "return 1 / x" in printed
    assert "raised" in printed
    assert "survived" in printed
    assert "flow done" in printed


def test_ctrl_c_ends_the_flow_and_its_tasks(server, tmp_path):
    program = (
        START
        + """
@task
def long(path):
    open(path, "w").write(str(os.getpid()))
    time.sleep(600)  # workload

@flow(task_runner=WeftTaskRunner(max_workers=1))
def main():
    long.submit(os.path.abspath("begun")).result()

main()
"""
    )
    path = tmp_path / "program.py"
    path.write_text(program, encoding="utf-8")
    process = started([sys.executable, str(path)], tmp_path, **server)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None, ended(process)
    process.send_signal(signal.SIGINT)
    code, printed = ended(process)
    assert code != 0
    assert "KeyboardInterrupt" in printed
