"""Plugins over the restart of a scheduler: clients state them anew, workers keep what they have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from tests.deploy.cli.test_restarts import real_pid, restarted
from tests.deploy.daemons import daemon, file_of, scheduler

pytestmark = pytest.mark.slow


class Noting(weft.WorkerPlugin):
    """A plugin that adds a line to a file for each worker that sets it up."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def setup(self, worker):
        with self.path.open("a") as file:
            file.write(f"{worker.name}\n")


class Prepared(weft.SupervisorPlugin):
    """A plugin that needs a file, and whose workers have a variable."""

    name = "prepared"

    def __init__(self, needed: Path) -> None:
        self.needed = needed

    def setup(self, supervisor):
        supervisor.env["WEFT_TEST_PREPARED"] = self.needed.read_text()


def pid_and_plugins() -> tuple[int, list[str]]:
    return os.getpid(), [*weft.get_worker().plugins]


def test_later_workers_of_the_next_scheduler_have_the_plugins(tmp_path):
    notes = tmp_path / "notes"
    with (
        scheduler(folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        file = str(file_of(started))
        worker = ("worker", "--connection-file", file, "--nworkers", "1", "--nthreads", "1")
        with daemon(*worker, "--name", "first", folder=tmp_path):
            client.wait_for_workers(1, timeout=60)
            client.register_plugin(Noting(notes), name="noting")
            restarted(started, real_pid(started))
            first, plugins = client.submit(pid_and_plugins, pure=False).result(timeout=60)
            assert plugins == ["noting"]
            assert len(notes.read_text().splitlines()) == 1, "the worker has kept it"
        with daemon(*worker, "--name", "second", folder=tmp_path):
            second, plugins = client.submit(pid_and_plugins, pure=False).result(timeout=60)
            assert second != first
            assert plugins == ["noting"]


def test_later_families_start_their_workers_after_the_plugins_of_supervisors_or_end(tmp_path):
    needed = tmp_path / "needed"
    needed.write_text("yes")
    with (
        scheduler(folder=tmp_path) as started,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        file = str(file_of(started))
        worker = ("worker", "--connection-file", file, "--nworkers", "2", "--nthreads", "1")
        assert client.register_plugin(Prepared(needed)) == {}
        restarted(started, real_pid(started))
        with daemon(*worker, "--name", "first", folder=tmp_path):
            future = client.submit(os.getenv, "WEFT_TEST_PREPARED", pure=False)
            assert future.result(timeout=60) == "yes"
            assert {*client.run(os.getenv, "WEFT_TEST_PREPARED").values()} == {"yes"}
            needed.unlink()
            ended = subprocess.run(
                [sys.executable, "-m", "weft", *worker, "--name", "second"],
                capture_output=True,
                text=True,
                timeout=60,
                cwd=tmp_path,
                check=False,
            )
            assert ended.returncode == 1
            assert "the workers end: plugin 'prepared' could not be set up here" in ended.stderr
