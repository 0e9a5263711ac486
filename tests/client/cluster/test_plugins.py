"""Plugins on real workers, in this process and in processes of their own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.client.cluster import plugin_waits
from weft.protocol.errors import NotSupported, QuestionFailed

pytestmark = pytest.mark.slow


@pytest.fixture
def client() -> Iterator[weft.Client]:
    with weft.Client(processes=False, n_workers=2, threads_per_worker=1) as client:
        yield client


class Noting(weft.WorkerPlugin):
    """A plugin that notes what happens to it, for workers in this process."""

    notes: list[tuple[str, str, str]] = []  # noqa: RUF012 - shared by all copies

    def __init__(self, text: str, fails: bool = False) -> None:
        self.text = text
        self.fails = fails

    def setup(self, worker):
        self.notes.append(("setup", self.text, worker.name))
        if self.fails:
            raise ValueError(f"no {self.text}")

    async def teardown(self, worker):
        self.notes.append(("teardown", self.text, worker.name))


@pytest.fixture(autouse=True)
def _no_notes():
    Noting.notes.clear()


def steps(step: str) -> list[str]:
    return sorted(text for what, text, _ in Noting.notes if what == step)


def plugins_here() -> list[str]:
    return sorted(weft.get_worker().plugins)


def test_all_workers_set_it_up_once_and_tasks_see_it(client):
    done = client.register_plugin(Noting("a"), name="noting")
    assert {*done} == {*client.nthreads()}
    assert {*map(str, done.values())} == {"{'status': 'OK'}"}
    assert steps("setup") == ["a", "a"]
    assert client.submit(plugins_here).result() == ["noting"]
    client.register_plugin(Noting("a"), name="noting")
    assert steps("setup") == ["a", "a"], "the same plugin again changes nothing"


def test_another_plugin_of_the_name_replaces_it_and_it_can_be_ended(client):
    client.register_plugin(Noting("a"), name="noting")
    client.register_plugin(Noting("b"), name="noting")
    assert (steps("teardown"), steps("setup")) == (["a", "a"], ["a", "a", "b", "b"])
    client.unregister_worker_plugin("noting")
    assert steps("teardown") == ["a", "a", "b", "b"]
    assert client.submit(plugins_here, pure=False).result() == []
    with pytest.raises(QuestionFailed, match="no plugin 'noting'; they have: none"):
        client.unregister_plugin("noting")


class Connecting(weft.WorkerPlugin):
    """A plugin that keeps what it makes on the worker."""

    def setup(self, worker):
        worker.conn = f"connection of {worker.name}"

    def teardown(self, worker):
        del worker.conn


def conn_here() -> tuple[str, str]:
    worker = weft.get_worker()
    return worker.conn, f"connection of {worker.name}"


async def conn_in_coroutine() -> tuple[str, str]:
    await asyncio.sleep(0)
    return conn_here()


class ConnActor:
    def __init__(self):
        self.made_with = conn_here()

    def conn(self) -> tuple[str, str]:
        assert conn_here() == self.made_with
        return conn_here()


class AsyncConnActor:
    async def conn(self) -> tuple[str, str]:
        return conn_here()


def count_here() -> int:
    worker = weft.get_worker()
    worker.count = getattr(worker, "count", 0) + 1
    return int(worker.count)


def check_attributes(client: weft.Client) -> None:
    """Check that all that runs on a worker finds what was set there, and nothing of another."""
    client.register_plugin(Connecting(), name="connecting")
    names = [worker["name"] for worker in client.scheduler_info()["workers"].values()]
    assert len(names) == 2
    found = [*client.run(conn_here).values()]
    for name in names:
        on_it: dict[str, Any] = {"workers": [name], "pure": False}
        found += [client.submit(task, **on_it).result() for task in (conn_here, conn_in_coroutine)]
        actors = [
            client.submit(cls, actor=True, workers=[name]).result()
            for cls in (ConnActor, AsyncConnActor)
        ]
        found += [actor.conn().result() for actor in actors]
        assert [client.submit(count_here, **on_it).result() for _ in range(3)] == [1, 2, 3]
        del actors
    assert {mine for mine, _ in found} == {f"connection of {name}" for name in names}
    assert all(mine == expected for mine, expected in found)
    client.unregister_plugin("connecting")
    with pytest.raises(AttributeError, match="the worker has no attribute 'conn'"):
        client.submit(conn_here, pure=False).result()


def test_attributes_of_a_worker_are_seen_by_all_that_runs_there(client):
    check_attributes(client)


def test_attributes_of_a_worker_process_are_seen_by_all_that_runs_there(apart):
    check_attributes(apart)


class Overwriting(weft.WorkerPlugin):
    def setup(self, worker):
        worker.name = "mine"


def test_a_plugin_does_not_overwrite_the_names_of_weft(client):
    with pytest.raises(AttributeError, match="the attribute 'name' of a worker is weft's own"):
        client.register_plugin(Overwriting())


class OnlyOnce(Noting):
    name = "once"
    idempotent = True


def test_an_idempotent_plugin_is_not_set_up_again(client):
    client.register_plugin(OnlyOnce("a"))
    assert len(client.register_plugin(OnlyOnce("b"))) == 2
    client.register_plugin(Noting("c"), name="once", idempotent=True)
    assert steps("setup") == ["a", "a"]
    client.register_plugin(OnlyOnce("d"), idempotent=False)
    assert (steps("teardown"), steps("setup")) == (["a", "a"], ["a", "a", "d", "d"])


class Hanging(weft.WorkerPlugin):
    """A plugin whose set-up ends only if it is let go, and does not let itself be interrupted."""

    name = "hanging"
    may_end = threading.Event()

    def setup(self, worker):
        with suppress(weft.TaskInterrupted):
            self.may_end.wait()

    def teardown(self, worker):
        Noting.notes.append(("teardown", "hanging", worker.name))


class Looping(weft.WorkerPlugin):
    """A plugin whose set-up does not end."""

    name = "looping"

    def setup(self, worker):
        try:
            while True:
                pass
        finally:
            Noting.notes.append(("teardown", "looping", worker.name))


def test_a_set_up_that_hangs_is_named_and_left_by_unregistering_it(
    client, caplog, monkeypatch, wait_until
):
    monkeypatch.setattr(plugin_waits, "FIRST_WARNING_S", 0.1)
    late = r"plugin 'hanging' is not set up on 2 of 2 workers after .*: worker \S+, worker \S+\. It"
    try:
        with pytest.raises(TimeoutError, match=late):
            client.register_plugin(Hanging(), timeout=1)
        warnings = [r.getMessage() for r in caplog.records if r.name == "weft.client"]
        assert re.match(late, warnings[0])
        assert client.submit(plugins_here).result() == []
        client.unregister_plugin("hanging")
        client.register_plugin(Noting("after"), name="after")
        assert client.submit(plugins_here, pure=False).result() == ["after"]
        assert steps("teardown") == []
    finally:
        Hanging.may_end.set()
    wait_until(lambda: steps("teardown") == ["hanging", "hanging"])


def test_a_set_up_that_never_ends_is_interrupted_when_it_is_unregistered(client, wait_until):
    with pytest.raises(TimeoutError, match="'looping' is not set up on 2 of 2 workers"):
        client.register_plugin(Looping(), timeout=0.1)
    client.unregister_plugin("looping", timeout=30)
    wait_until(lambda: steps("teardown") == ["looping", "looping"])


def test_plugins_end_with_their_workers():
    with weft.Client(processes=False, n_workers=1) as client:
        client.register_plugin(Noting("a"))
    assert steps("teardown") == ["a"]


def test_a_failure_is_raised_and_the_plugin_is_not_kept(client):
    with pytest.raises(ValueError, match="no luck") as caught:
        client.register_plugin(Noting("luck", fails=True), name="unlucky")
    assert any("the set-up of plugin 'unlucky' on worker" in n for n in caught.value.__notes__)
    assert any("on 2 workers" in note for note in caught.value.__notes__)
    assert client.submit(plugins_here).result() == []
    with pytest.raises(QuestionFailed, match="no plugin 'unlucky'"):
        client.unregister_plugin("unlucky")


def test_the_log_says_that_a_plugin_is_set_up_only_when_it_is(client, caplog):
    caplog.set_level("INFO", "weft.worker")
    with pytest.raises(ValueError, match="no luck"):
        client.register_plugin(Noting("luck", fails=True), name="unlucky")
    client.register_plugin(Noting("a"), name="noting")
    lines = [r.getMessage() for r in caplog.records if "is set up on worker" in r.getMessage()]
    assert len(lines) == 2
    assert all("'noting'" in line for line in lines)


def test_callbacks_get_the_worker(client):
    def note(dask_worker):
        Noting.notes.append(("setup", "called", dask_worker.name))

    client.register_worker_callbacks(note)
    assert steps("setup") == ["called", "called"]


async def test_an_asynchronous_client_awaits():
    async with weft.Client(processes=False, n_workers=1, asynchronous=True) as client:
        await client.register_plugin(Noting("a"), name="noting")
        assert await client.submit(plugins_here) == ["noting"]
        await client.unregister_plugin("noting")
    assert steps("teardown") == ["a"]


class SchedulerPlugin:
    """A class of this name is one of dask's."""


class NotOne:
    pass


class Watching(weft.WorkerPlugin):
    def transition(self, key, start, finish):
        raise AssertionError


@pytest.mark.parametrize(
    ("plugin", "error", "text"),
    [
        (SchedulerPlugin(), NotSupported, "the scheduler runs no code of users"),
        (NotOne(), TypeError, "not NotOne"),
        (Noting, TypeError, r"pass Noting\(\)"),
        (Watching(), NotSupported, "a method transition"),
    ],
)
def test_objects_that_are_no_plugins_of_workers_are_refused(client, plugin, error, text):
    with pytest.raises(error, match=text):
        client.register_plugin(plugin)


def test_plugins_of_distributed_are_taken_or_refused_with_the_reason(client):
    plugins = pytest.importorskip(
        "distributed.diagnostics.plugin",
        reason="distributed is missing: pip install distributed",
    )

    class Theirs(plugins.WorkerPlugin):
        def setup(self, worker):
            Noting.notes.append(("setup", "theirs", worker.name))

    client.register_plugin(Theirs())
    assert steps("setup") == ["theirs", "theirs"]
    with pytest.raises(NotSupported, match="the scheduler runs no code of users"):
        client.register_plugin(plugins.PipInstall(["x"]))


@pytest.mark.parametrize(("name", "error"), [(3, TypeError), ("", ValueError)])
def test_names_are_checked(client, name, error):
    with pytest.raises(error, match="the name of a plugin"):
        client.register_plugin(Noting("a"), name=name)
    with pytest.raises(error, match="the name of a plugin"):
        client.unregister_plugin(name)


def test_a_plugin_that_is_too_large_is_refused(client):
    plugin = Noting("x" * (65 << 20))
    with pytest.raises(QuestionFailed, match="more than the limit of 64 MiB"):
        client.register_plugin(plugin, name="large")


def test_a_closed_client_registers_nothing():
    with weft.Client(processes=False, n_workers=1) as client:
        pass
    with pytest.raises(weft.ClientClosed):
        client.register_plugin(Noting("a"))


def register_in_a_task() -> None:
    weft.get_client().register_plugin(weft.Environ({"A": 1}))


def upload_in_a_task() -> None:
    weft.get_client().upload_file(__file__)


@pytest.mark.parametrize("task", [register_in_a_task, upload_in_a_task])
def test_tasks_may_not_register_plugins(apart, task):
    with pytest.raises(weft.NotPermitted):
        apart.submit(task).result(timeout=60)


def seen_by(i: int) -> str | None:
    return os.getenv("WEFT_TEST_NEW")


class FailsLater(weft.WorkerPlugin):
    """A plugin that fails where a file is not."""

    name = "fails-later"

    def __init__(self, path: Path) -> None:
        self.path = path

    def setup(self, worker):
        self.path.read_text()


def test_new_workers_set_plugins_up_before_their_tasks_or_end(tmp_path, caplog):
    needed = tmp_path / "needed"
    needed.write_text("")
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        client.wait_for_workers(1)
        client.register_plugin(weft.Environ({"WEFT_TEST_NEW": "yes"}))
        (first,) = client.run(os.getpid).values()
        os.kill(first, signal.SIGKILL)
        assert {*client.gather(client.map(seen_by, range(50)))} == {"yes"}
        client.register_plugin(FailsLater(needed))
        needed.unlink()
        (second,) = client.run(os.getpid).values()
        assert second != first
        os.kill(second, signal.SIGKILL)
        future = client.submit(seen_by, -1)
        logged = ""
        while "could not be set up here: FileNotFoundError" not in logged:
            logged = " ".join(line for _, line in client.get_scheduler_logs())
        assert not future.done()
        needed.write_text("")
        assert future.result(timeout=60) == "yes"


def test_names_are_imported_only_when_they_are_used():
    code = "import weft, sys; assert not [m for m in sys.modules if 'plugins' in m]"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


class Fatal(weft.WorkerPlugin):
    """A plugin that stands for a crash of a C extension."""

    def __init__(self, code: int) -> None:
        self.code = code

    def setup(self, worker):
        os._exit(self.code)


@pytest.mark.parametrize("code", [4, 0])
def test_a_plugin_that_ends_the_process_is_refused_and_workers_are_there_afterwards(code):
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        client.wait_for_workers(2)
        with pytest.raises(weft.PluginFailed, match="'fatal' could not be set up on worker") as got:
            client.register_plugin(Fatal(code), name="fatal")
        how = f"its process ended during the set-up: exit code {code}. It is not kept"
        assert how in str(got.value)
        assert client.submit(plugins_here).result(timeout=60) == []
        with pytest.raises(QuestionFailed, match="no plugin 'fatal'"):
            client.unregister_plugin("fatal")


def test_an_upload_that_ends_the_process_is_refused(tmp_path):
    module = tmp_path / "weft_fatal.py"
    module.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        client.wait_for_workers(1)
        with pytest.raises(weft.PluginFailed, match=r"'upload-weft_fatal.py' .* killed by SIGSEGV"):
            client.upload_file(module)
        assert client.submit(plugins_here).result(timeout=60) == []


class FatalLater(weft.WorkerPlugin):
    """A plugin of which workers die where a file is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def setup(self, worker):
        if self.path.exists():
            os._exit(4)


def test_a_plugin_of_which_later_workers_die_is_set_aside_and_tasks_run(tmp_path):
    path = tmp_path / "fatal"
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        client.wait_for_workers(1)
        client.register_plugin(FatalLater(path), name="later")
        path.touch()
        (worker,) = client.run(os.getpid).values()
        os.kill(worker, signal.SIGKILL)
        assert client.submit(plugins_here).result(timeout=60) == []
        assert "plugin 'later' is set aside" in str(client.get_scheduler_logs())
        path.unlink()
        client.register_plugin(FatalLater(path), name="later")
        assert client.submit(plugins_here, pure=False).result(timeout=60) == ["later"]
