"""Airflow with the executor of weft: a DAG in which a try fails and a worker dies."""

from __future__ import annotations

import contextlib
import signal
import socket
import sqlite3
import sys
from pathlib import Path

import pytest

from tests.frameworks.hosts import LIMIT_S, ended, required, run, started
from tests.leaks import wait_until

pytestmark = pytest.mark.slow

DAG = """
import datetime, os, pathlib
import psutil
from airflow.sdk import dag, task

HERE = pathlib.Path(__file__).parents[1]
AGAIN = {"retries": 1, "retry_delay": datetime.timedelta(seconds=1)}

def is_first(name):
    path = HERE / name
    is_new = not path.exists()
    path.touch()
    return is_new

@dag(schedule="@once", start_date=datetime.datetime(2024, 1, 1), catchup=False)
def squares():
    @task
    def load():
        return [1, 2, 3]

    @task(executor_config={"weft": {"priority": 5}})
    def square(x):
        return x * x

    @task(**AGAIN)
    def total(numbers):
        if is_first("total"):
            raise ValueError("the first try")
        return sum(numbers)

    @task(**AGAIN)
    def killed(number):
        if is_first("killed"):
            above = psutil.Process().parents()
            worker = next(p for p in above if " ".join(p.cmdline()).startswith("weft worker"))
            supervisor = above[0]
            worker.kill()
            supervisor.wait()
            os._exit(1)
        return number

    @task(queue="gpu")
    def elsewhere():
        is_first("elsewhere")

    @task
    def end(number):
        (HERE / "end").write_text(str(number))

    end(killed(total(square.expand(x=load()))))
    elsewhere()

squares()
"""


@pytest.fixture
def settings(tmp_path):
    """The settings of an Airflow in the folder of the test."""
    required("apache-airflow", "airflow")
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "squares.py").write_text(DAG, encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("", 0)) as other:
        port, log_port = free.getsockname()[1], other.getsockname()[1]
    return {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "false",
        "AIRFLOW__CORE__EXECUTOR": "weft.compat.airflow.AirflowExecutor",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(log_port),
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",  # its first answer takes long
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


@contextlib.contextmanager
def part(name, folder, settings):
    """Run a program of Airflow; end it as its users do, and yield its process."""
    with open(folder / f"{name}.log", "w", encoding="utf-8") as log:
        process = started([sys.executable, "-m", "airflow", name], folder, log, **settings)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        ended(process)
        print((folder / f"{name}.log").read_text(encoding="utf-8"))


def answers(settings):
    port = int(settings["AIRFLOW__API__PORT"])
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
        return True
    return False


def test_tasks_depend_fail_are_tried_again_and_outlive_a_worker(tmp_path, settings):
    code, printed = run([sys.executable, "-m", "airflow", "db", "migrate"], tmp_path, **settings)
    assert code == 0, printed
    with part("api-server", tmp_path, settings) as api:
        wait_until(lambda: answers(settings) or api.poll() is not None, LIMIT_S, "the API")
        with (
            part("dag-processor", tmp_path, settings),
            part("scheduler", tmp_path, settings) as own,
        ):
            wait_until(
                lambda: (tmp_path / "end").exists() or own.poll() is not None, LIMIT_S, "the end"
            )
    assert (tmp_path / "end").read_text() == "14"
    with contextlib.closing(sqlite3.connect(tmp_path / "airflow.db")) as database:
        rows = database.execute("select task_id, try_number, state from task_instance").fetchall()
    states = {name: (tries, state) for name, tries, state in rows if name != "end"}
    assert states == {
        "elsewhere": (1, "failed"),
        "killed": (2, "success"),
        "load": (1, "success"),
        "square": (1, "success"),
        "total": (2, "success"),
    }
    assert not (tmp_path / "elsewhere").exists()
