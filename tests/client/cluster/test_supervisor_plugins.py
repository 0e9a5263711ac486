"""Plugins of supervisors on real families of workers, and ready-made ones that replace workers."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

import weft
from tests.client.cluster.test_uploads import wheel
from weft.protocol.errors import NotSupported, QuestionFailed

pytestmark = pytest.mark.slow


@pytest.fixture
def client() -> Iterator[weft.Client]:
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        client.wait_for_workers(2)
        yield client


class Noting(weft.SupervisorPlugin):
    """A plugin that notes what happens to it in a file, and sets a variable."""

    name = "noting"

    def __init__(self, path: Path, value: str = "1", restart: bool = False) -> None:
        self.path = path
        self.value = value
        self.restart = restart

    def setup(self, supervisor):
        self.note("setup")
        supervisor.env["WEFT_TEST_NOTED"] = self.value

    async def teardown(self, supervisor):
        self.note("teardown")
        del supervisor.env["WEFT_TEST_NOTED"]

    def note(self, step: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{step} {self.value} {os.getpid()}\n")

    def steps(self) -> list[str]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [line.rpartition(" ")[0] for line in lines]

    def pid(self) -> int:
        return int(self.path.read_text().split()[-1])


def noted() -> str | None:
    return os.getenv("WEFT_TEST_NOTED")


def test_a_plugin_is_set_up_once_beside_the_supervisor_and_for_later_workers(client, tmp_path):
    plugin = Noting(tmp_path / "notes")
    workers = client.scheduler_info()["workers"].values()
    done = client.register_plugin(plugin)
    assert [*done] == [*{worker["nanny"] for worker in workers}]
    assert {*map(str, done.values())} == {"{'status': 'OK'}"}
    client.register_plugin(Noting(tmp_path / "notes"))
    assert plugin.steps() == ["setup 1"]
    pids = client.run(os.getpid)
    assert plugin.pid() not in {*pids.values(), os.getpid()}
    assert {*client.run(noted).values()} == {None}
    client.restart_workers()
    assert {*client.run(noted).values()} == {"1"}
    client.unregister_worker_plugin("noting", nanny=True)
    assert plugin.steps() == ["setup 1", "teardown 1"]
    client.restart_workers()
    assert {*client.run(noted).values()} == {None}
    with pytest.raises(QuestionFailed, match="no plugin 'noting'"):
        client.unregister_plugin("noting")


def test_workers_are_replaced_and_their_tasks_run_again(client, tmp_path, wait_until):
    began = tmp_path / "began"

    def wait_to_be_replaced() -> str | None:
        began.touch()
        while noted() is None:
            time.sleep(0.01)  # workload
        return noted()

    future = client.submit(wait_to_be_replaced)
    before = {*client.run(os.getpid).values()}
    wait_until(began.exists)
    client.register_plugin(Noting(tmp_path / "notes", restart=True))
    after = {*client.run(os.getpid).values()}
    assert len(after) == 2
    assert not before & after
    assert future.result(timeout=60) == "1"


def test_a_plugin_is_torn_down_when_the_workers_end(tmp_path):
    plugin = Noting(tmp_path / "notes")
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        client.register_plugin(plugin)
    assert plugin.steps() == ["setup 1", "teardown 1"]


class Failing(weft.SupervisorPlugin):
    def setup(self, supervisor):
        supervisor.env["WEFT_TEST_NOTED"] = "failed"
        raise ValueError("no luck")


class Wrong(weft.SupervisorPlugin):
    def setup(self, supervisor):
        supervisor.env["WEFT_TEST_NOTED"] = 3


class Deadly(weft.SupervisorPlugin):
    def setup(self, supervisor):
        os._exit(7)


class Forking(weft.SupervisorPlugin):
    def setup(self, supervisor):
        self.child = os.fork()  # which returns from here as well

    def teardown(self, supervisor):
        os.waitpid(self.child, 0)


def test_failures_are_raised_and_leave_nothing(client):
    with pytest.raises(ValueError, match="no luck") as caught:
        client.register_plugin(Failing(), name="unlucky")
    note = "the set-up of plugin 'unlucky' on the supervisor on"
    assert any(note in line for line in caught.value.__notes__)
    with pytest.raises(TypeError, match=r"supervisor\.env is a dict of names and values"):
        client.register_plugin(Wrong())
    with pytest.raises(weft.PluginFailed, match="has ended: exit code 7"):
        client.register_plugin(Deadly())
    client.register_plugin(Forking(), name="forking")
    client.unregister_plugin("forking")
    client.restart_workers()
    assert {*client.run(noted).values()} == {None}


class Hanging(weft.SupervisorPlugin):
    name = "hanging"

    def __init__(self, path: Path) -> None:
        self.path = path

    def setup(self, supervisor):
        self.path.touch()
        signal.pause()


async def test_a_set_up_that_hangs_is_ended_by_unregistering_it(tmp_path, wait_until):
    began = tmp_path / "began"
    async with weft.Client(n_workers=1, threads_per_worker=1, asynchronous=True) as client:
        await client.register_plugin(Noting(tmp_path / "notes"))
        registering = asyncio.ensure_future(client.register_plugin(Hanging(began)))
        with ThreadPoolExecutor(1) as pool:
            await asyncio.get_running_loop().run_in_executor(pool, wait_until, began.exists)
        await client.unregister_plugin("hanging")
        with pytest.raises(QuestionFailed, match="unregistered, or replaced, before all"):
            await registering
        await client.restart_workers()
        assert {*(await client.run(noted)).values()} == {"1"}


def test_plugins_of_a_dead_process_are_set_up_again(client, tmp_path, wait_until):
    plugin = Noting(tmp_path / "notes")
    client.register_plugin(plugin)
    os.kill(plugin.pid(), signal.SIGKILL)
    wait_until(lambda: plugin.steps() == ["setup 1", "setup 1"])
    client.restart_workers()
    assert {*client.run(noted).values()} == {"1"}


class Daemon(weft.SupervisorPlugin):
    def setup(self, supervisor):
        self.process = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        supervisor.env["WEFT_TEST_NOTED"] = str(self.process.pid)


def test_processes_that_it_starts_end_with_the_family(wait_until):
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        client.register_plugin(Daemon())
        client.restart_workers()
        (pid,) = client.run(noted).values()
        assert psutil.pid_exists(int(pid))
    wait_until(lambda: not psutil.pid_exists(int(pid)))


def test_a_family_that_is_started_again_has_it_before_its_tasks(tmp_path):
    plugin = Noting(tmp_path / "notes")
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        client.register_plugin(plugin)
        (pid,) = client.run(os.getpid).values()
        spawner = psutil.Process(pid).parent()
        spawner.kill()
        assert client.submit(noted).result(timeout=60) == "1"
        assert plugin.steps().count("setup 1") == 2


def test_threads_have_no_supervisor():
    with weft.Client(processes=False, n_workers=1) as client:
        with pytest.raises(NotSupported, match=r"threads of this program \(processes=False\)"):
            client.register_plugin(Failing())
        with pytest.raises(NotSupported, match="could replace them"):
            client.register_plugin(weft.Environ({"A": 1}, restart=True))


def test_variables_are_there_before_workers_import_anything(client):
    client.register_plugin(weft.Environ({"WEFT_TEST_NOTED": 3}, restart=True), name="variables")
    assert {*client.run(noted).values()} == {"3"}
    client.unregister_plugin("variables")
    client.restart_workers()
    assert {*client.run(noted).values()} == {None}


def test_workers_that_have_imported_an_older_version_are_replaced(client, tmp_path):
    options = ["--no-index", "--no-deps", "--target", str(tmp_path / "target")]
    before = {*client.run(os.getpid).values()}
    client.register_plugin(
        weft.PipInstall([str(wheel(tmp_path))], pip_options=options, restart_workers=True)
    )
    assert (tmp_path / "target" / "weft_wheel.py").exists()
    assert not before & {*client.run(os.getpid).values()}


def test_any_function_can_be_run_once_per_machine(client, tmp_path):
    path = tmp_path / "installed"

    def install() -> None:
        with path.open("a") as file:
            file.write("x")

    client.register_plugin(weft.InstallPlugin(install))
    assert path.read_text() == "x"
    with pytest.raises(TypeError, match="install_fn= is a function, not str"):
        weft.InstallPlugin("install")  # type: ignore[arg-type]


def test_plugins_of_distributed_are_taken(client):
    plugins = pytest.importorskip(
        "distributed.diagnostics.plugin",
        reason="distributed is missing: pip install distributed",
    )
    before = {*client.run(os.getpid).values()}
    client.register_plugin(plugins.Environ({"WEFT_TEST_NOTED": 5}))
    assert {*client.run(noted).values()} == {"5"}
    assert not before & {*client.run(os.getpid).values()}
