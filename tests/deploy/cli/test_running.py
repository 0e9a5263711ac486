"""`weft info --all`, `weft selftest` and `weft stop` on real clusters."""

from __future__ import annotations

import json

import pytest

import weft
from tests.deploy.daemons import address_of, daemon, file_of, gone, run, scheduler
from tests.leaks import wait_until
from weft.deploy.cli.info_all import Running, arguments_of, option_of, processes_without_file
from weft.deploy.cli.stop import unfinished_text
from weft.deploy.selftest import SelfTest

# --- weft info --all ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/usr/bin/python", "/bin/weft", "scheduler", "--port", "0"], ["--port", "0"]),
        (["python", "-m", "weft", "scheduler"], []),
        (["weft", "scheduler", "--name", "x"], ["--name", "x"]),
        (["python", "-X", "dev", "/bin/weft", "scheduler"], []),
        (["/venv/bin/python3.13t", "/venv/bin/weft", "scheduler"], []),
        (["timeout", "600", "weft", "scheduler"], None),
        (["nohup", "python", "-m", "weft", "scheduler"], None),
        (["/usr/bin/sudo", "weft", "scheduler"], None),
        (["python", "-m", "weft", "worker"], None),
        (["vi", "weft", "notes"], None),
        ([], None),
    ],
)
def test_commands_that_run_a_scheduler_are_recognised(command, expected):
    assert arguments_of(command) == expected


def test_the_value_of_an_option_is_found_in_both_forms():
    assert option_of(["--a", "1", "--file", "f"], "--file") == "f"
    assert option_of(["--file=f", "x"], "--file") == "f"
    assert option_of(["--files", "f", "--file"], "--file") == ""


def test_a_scheduler_and_its_parent_are_one_and_those_with_a_file_are_left_out():
    running = [Running(10, 1, ""), Running(11, 10, ""), Running(20, 1, ""), Running(21, 20, "")]
    left = processes_without_file([*running, Running(30, 1, "")], {("here", 21)}, "here")
    assert [process.pid for process in left] == [10, 30]
    assert len(processes_without_file(running, {("there", 21)}, "here")) == 2


@pytest.mark.slow
def test_all_schedulers_are_listed_wherever_their_files_are(tmp_path):
    elsewhere = tmp_path / "elsewhere" / "cluster.json"
    lost = tmp_path / "lost.json"
    with (
        scheduler(folder=tmp_path) as one,
        scheduler("--connection-file", str(elsewhere), folder=tmp_path) as two,
        scheduler("--connection-file", str(lost), folder=tmp_path) as three,
    ):
        lost.unlink()
        stale = json.loads(file_of(one).read_text()) | {"pid": 2**22 + 1}
        (file_of(one).parent / "stale.json").write_text(json.dumps(stale))
        (file_of(one).parent / "stale.json").chmod(0o600)
        done = run("info", "--all", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert f"scheduler at {address_of(one)}" in done.stdout
        assert f"scheduler at {address_of(two)}" in done.stdout
        assert str(elsewhere) in done.stdout
        assert "0 workers with 0 threads, 0 clients, tasks: none" in done.stdout
        assert "stale.json (skipped: its scheduler" in done.stdout
        plain = json.loads(run("info", "--all", "--json", folder=tmp_path).stdout)
        found = {s["address"]: s for s in plain["schedulers"] if s["cluster"]}
        assert found.keys() >= {address_of(one), address_of(two)}
        # Only its process is left to find it by; those of other tests may be found as well.
        pids = {s["pid"] for s in plain["schedulers"] if not s["address"]}
        assert pids & {process.pid for process in three.family()}


@pytest.mark.slow
def test_all_takes_no_address(tmp_path):
    done = run("info", "--all", "tcp://127.0.0.1:1", folder=tmp_path)
    assert done.returncode == 2
    assert "--all takes neither" in done.stderr


# --- weft selftest --------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_self_test_passes_on_a_cluster_and_a_killed_worker_is_back(tmp_path):
    with (
        scheduler(folder=tmp_path),
        daemon("worker", "--nworkers", "2", "--name", "w", folder=tmp_path) as workers,
    ):
        client = str(tmp_path / "client.json")
        assert run("token", "--role", "client", "--output", client, folder=tmp_path).returncode == 0
        option = ("--connection-file", client)
        arguments = ("--workers", "2", "--kill-worker")
        done = run("selftest", *arguments, *option, folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        names = [line[8:27].strip() for line in done.stdout.splitlines()]
        assert names == [
            *("workers", "results", "each worker", "errors", "arguments", "transfer"),
            "death of a worker",
        ]
        workers.wait_for("registered", 3)
        found = json.loads(run("selftest", "--json", *option, folder=tmp_path).stdout)
        assert [outcome["is_ok"] for outcome in found] == [True] * 6
        overview = json.loads(run("status", "--json", *option, folder=tmp_path).stdout)
        counted = {function["name"] for function in overview["functions"]}
        assert counted >= {"weft-selftest-where", "weft-selftest-fail"}
        # Large arguments are tasks of their own.
        others = [name for name in counted if not name.startswith("weft-selftest-")]
        assert others == ["shared_argument"]
        failed = overview["failures"][0]
        assert failed["key"].startswith("weft-selftest-fail-")
        assert failed["function"] == "weft-selftest-fail"
        view = str(tmp_path / "view.json")
        assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
        done = run("selftest", "--connection-file", view, folder=tmp_path)
        assert done.returncode == 2
        assert "needs a token of role client" in done.stderr


@pytest.mark.slow
def test_the_self_test_fails_without_workers(tmp_path):
    with scheduler(folder=tmp_path):
        done = run("selftest", "--timeout", "300ms", folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    assert line.startswith("FAILED  workers")
    assert "within 0.3 s" in line


@pytest.mark.slow
def test_a_wrong_result_fails_one_check_and_the_others_go_on(monkeypatch):
    monkeypatch.setattr("weft.deploy.selftest.add_one", lambda x, mark: x)
    with weft.Client(processes=False, n_workers=2, threads_per_worker=1) as client:
        outcomes = list(SelfTest(client, 1, 30, False).run())
    assert [outcome.name for outcome in outcomes if not outcome.is_ok] == ["results"]
    assert len(outcomes) == 6


# --- weft stop ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        ({"memory": 3, "erred": 1, "released": 2}, ""),
        ({"processing": 1}, "1 task of 2 clients is unfinished"),
        ({"waiting": 1, "queued": 2, "no_worker": 3, "processing": 4, "memory": 9}, "10 tasks of"),
    ],
)
def test_only_unfinished_tasks_are_asked_about(tasks, expected):
    assert unfinished_text({"tasks": tasks, "n_clients": 2}).startswith(expected)
    assert bool(unfinished_text({"tasks": tasks, "n_clients": 2})) is bool(expected)


@pytest.mark.slow
def test_a_cluster_is_stopped_with_its_workers(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 2)
        family = started.family() + workers.family()
        done = run("stop", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"the scheduler at {address_of(started)} has ended, with 2 workers\n"
        assert started.process.wait(30) == 0
        assert workers.process.wait(30) == 0
        assert gone(family)
    done = run("stop", folder=tmp_path)
    assert done.returncode == 69
    assert "no running scheduler was found" in done.stderr


@pytest.mark.slow
def test_a_cluster_with_unfinished_tasks_is_stopped_only_on_demand(tmp_path):
    with scheduler(folder=tmp_path) as started:
        with weft.Client(connection_file=file_of(started)) as client:
            futures = client.map(abs, [-1, -2, -3])
            wait_until(lambda: len(client.story(futures[2])) > 0, 30, "the tasks")
            done = run("stop", folder=tmp_path)
            assert done.returncode == 1
            assert "3 tasks of 1 client are unfinished" in done.stderr
            assert "--yes" in done.stderr
            assert started.process.poll() is None
            for future in futures:
                future.release()
        assert run("stop", "--yes", folder=tmp_path).returncode == 0
        assert started.process.wait(30) == 0


@pytest.mark.slow
def test_a_token_that_is_not_an_admin_s_stops_nothing(tmp_path):
    with scheduler(folder=tmp_path) as started:
        client = str(tmp_path / "client.json")
        assert run("token", "--role", "client", "--output", client, folder=tmp_path).returncode == 0
        done = run("stop", "--connection-file", client, folder=tmp_path)
        assert done.returncode == 2
        assert "needs a token of role admin" in done.stderr
        assert started.process.poll() is None
