"""Options that say where processes listen, and how long they live, with real processes."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack

import pytest

import weft
from tests.deploy.daemons import address_of, daemon, file_of, run, scheduler
from tests.leaks import wait_until
from weft.protocol.host.exits import EXIT_NO_SCHEDULER

pytestmark = pytest.mark.slow


def free_ports(n: int) -> int:
    """Return the first of some consecutive ports that are free now."""
    for first in range(20000 + os.getpid() % 1000 * 10, 60000, 10):
        try:
            with ExitStack() as stack:
                for port in range(first, first + n):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def workers_of(client) -> dict[str, str]:
    """{name: address}"""
    return {w["name"]: address for address, w in client.scheduler_info()["workers"].items()}


def test_workers_listen_at_the_ports_of_their_range(tmp_path):
    first = free_ports(2)
    ports = f"{first}:{first + 1}"
    with (
        scheduler("--interface", "lo", folder=tmp_path) as started,
        daemon(
            *("worker", "--interface", "lo", "--nworkers", "2", "--worker-port", ports),
            *("--name", "w"),
            folder=tmp_path,
        ) as workers,
    ):
        workers.wait_for("registered", 2)
        with weft.Client(connection_file=file_of(started)) as client:
            assert workers_of(client) == {
                f"w-{i}": f"tcp://127.0.0.1:{first + i}" for i in range(2)
            }
            n = 5_000_000
            here = client.submit(bytes, n, workers="w-0")
            assert client.submit(len, here, workers="w-1").result(timeout=30) == n
            # One that is started again gets its port again.
            os.kill(client.submit(os.getpid, workers="w-1").result(timeout=30), 9)
            workers.wait_for("registered", 3)
            assert client.submit(len, here, workers="w-1", pure=False).result(timeout=30) == n
            assert workers_of(client)["w-1"] == f"tcp://127.0.0.1:{first + 1}"


def test_workers_announce_another_address_than_the_one_at_which_they_listen(tmp_path):
    with (
        scheduler("--protocol", "tls", folder=tmp_path) as started,
        daemon(
            *("worker", "--nworkers", "2", "--listen-address", "0.0.0.0"),
            *("--contact-address", "localhost"),
            folder=tmp_path,
        ) as workers,
    ):
        workers.wait_for("registered", 2)
        with weft.Client(connection_file=file_of(started)) as client:
            assert all(a.startswith("tls://localhost:") for a in workers_of(client).values())
            parts = client.map(bytes, [2_000_000] * 4)
            assert client.submit(lambda *p: sum(map(len, p)), *parts).result(30) == 8_000_000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--interface", "nowhere0"], ["--interface: 'nowhere0' is no network interface", "lo"]),
        (["--interface", "lo", "--host", "127.0.0.1"], ["give --host or --interface, not both"]),
        (["--nworkers", "2", "--worker-port", "9000"], ["2 workers need a port each", "9000:9001"]),
        (["--worker-port", "9001:9000"], ["--worker-port: '9001:9000' is neither a port nor"]),
        (["--listen-address", "0.0.0.0"], ["--listen-address: 0.0.0.0 is no", "--contact-address"]),
        (["--listen-address", "203.0.113.1"], ["'203.0.113.1' is not an address of this machine"]),
        (
            ["--contact-address", "tcp://h:1"],
            ["--contact-address: 'tcp://h:1' is not a host alone"],
        ),
        (["--pid-file", "no/such/place"], ["--pid-file: cannot write no/such/place"]),
    ],
)
def test_a_wrong_place_is_one_line_and_code_2(options, words, tmp_path):
    with scheduler(folder=tmp_path):
        done = run("worker", *options, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert [word for word in words if word not in done.stderr] == []


def test_workers_leave_after_their_lifetime_when_their_tasks_have_ended(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--lifetime", "1s", folder=tmp_path) as workers,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        future = client.submit(time.sleep, 2)  # workload
        assert workers.process.wait(60) == 0
        assert workers.err.count("leaves: its lifetime is over") == 2
        assert "the lifetime of all workers" in workers.err or "have ended" in workers.err
        # Results of which a worker had the only copy would be computed again: this one was sent.
        assert future.result(timeout=30) is None
        assert "WARNING" not in workers.err


@pytest.mark.parametrize("first", ["lifetime", "signal"])
def test_a_worker_that_is_to_leave_for_two_reasons_finishes_its_task(first, tmp_path):
    path = {name: tmp_path / name for name in ("begun", "first", "second", "runs")}

    def work(begun: str, first: str, second: str, runs: str) -> None:
        with open(runs, "a") as file:
            file.write("once ")
        open(begun, "w").close()
        while not os.path.exists(first):
            time.sleep(0.01)  # workload
        time.sleep(1.5)  # workload, after which a signal is not the same request
        open(second, "w").close()
        time.sleep(2.5)  # workload

    lifetime = "1s" if first == "lifetime" else "3s"
    with (
        scheduler(folder=tmp_path) as started,
        daemon(
            *("worker", "--nworkers", "1", "--lifetime", lifetime, "--grace-period", "60"),
            folder=tmp_path,
        ) as workers,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        future = client.submit(work, **{name: str(each) for name, each in path.items()})
        wait_until(path["begun"].exists, 60, "the task")
        if first == "lifetime":
            workers.wait_for("its lifetime is over")
            path["first"].touch()
            wait_until(path["second"].exists, 60, "a second of the task")
            workers.process.terminate()
        else:
            workers.process.terminate()
            workers.wait_for("supervisor stops: SIGTERM")
            path["first"].touch()
        assert workers.process.wait(60) == 0
        assert future.result(timeout=30) is None
    assert path["runs"].read_text() == "once "


def test_another_worker_takes_the_place_of_one_whose_lifetime_is_over(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon(
            *("worker", "--nworkers", "1", "--lifetime", "1s", "--lifetime-restart"),
            *("--lifetime-stagger", "0.2s"),
            folder=tmp_path,
        ) as workers,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        pids = set()

        def has_changed() -> bool:
            pids.add(client.submit(os.getpid, pure=False).result(timeout=30))
            return len(pids) == 3

        wait_until(has_changed, 60, "three workers, one after the other")
        assert workers.process.poll() is None


def test_a_module_is_imported_before_the_first_task(tmp_path):
    (tmp_path / "prepared.py").write_text(
        "import os\nos.environ['PREPARED'] = 'yes'\n"
        "def weft_setup(worker): os.environ['SET_UP'] = worker.name\n"
        "async def dask_teardown(worker): open('torn_down', 'w').close()\n"
    )
    with (
        scheduler(folder=tmp_path) as started,
        daemon(
            *("worker", "--nworkers", "1", "--preload", "prepared.py", "--preload", "colorsys"),
            folder=tmp_path,
        ) as worker,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        worker.wait_for("registered")
        assert client.submit(os.getenv, "PREPARED").result(timeout=30) == "yes"
        assert client.submit(os.getenv, "SET_UP").result(timeout=30)
    assert (tmp_path / "torn_down").exists()


def test_a_preloaded_module_whose_setup_fails_ends_the_workers_with_one_error(tmp_path):
    (tmp_path / "unlucky.py").write_text("def dask_setup(worker): raise KeyError('luck')\n")
    with scheduler(folder=tmp_path):
        done = run("worker", "--nworkers", "1", "--preload", "unlucky.py", folder=tmp_path)
    assert done.returncode == 2
    assert "the setup of preloaded module 'unlucky' raised KeyError: 'luck'" in done.stderr


def test_a_module_that_cannot_be_imported_ends_the_workers_with_one_error(tmp_path):
    with scheduler(folder=tmp_path):
        done = run("worker", "--nworkers", "2", "--preload", "no_such_module", folder=tmp_path)
    assert done.returncode == 2
    assert "--preload: cannot import 'no_such_module' before the first task" in done.stderr
    assert "ModuleNotFoundError" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("options", [(), ("--no-restart",)])
def test_a_pid_file_has_the_process_for_signals_and_is_removed(options, tmp_path):
    path = tmp_path / "s.pid"
    path.write_text("1\n")  # of an earlier one
    with scheduler("--pid-file", str(path), *options, folder=tmp_path) as started:
        assert int(path.read_text()) == started.process.pid
        with daemon("worker", "--pid-file", "w.pid", folder=tmp_path) as worker:
            worker.wait_for("registered")
            assert int((tmp_path / "w.pid").read_text()) == worker.process.pid
            assert worker.stop() == 0
            assert not (tmp_path / "w.pid").exists()
        assert started.stop() == 0
    assert not path.exists()


def test_an_idle_cluster_ends_and_a_busy_one_does_not(tmp_path):
    with (
        scheduler("--idle-timeout", "2s", folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path) as worker,
        weft.Client(connection_file=file_of(started)) as client,
    ):
        assert client.submit(time.sleep, 4).result(timeout=30) is None  # workload
        assert started.process.poll() is None
        assert started.process.wait(60) == 0
        assert worker.process.wait(60) == 0
        assert "the cluster ends: no task ran or came for 2 s (--idle-timeout)" in started.err


def test_an_idle_scheduler_that_nobody_ever_finds_ends(tmp_path):
    done = run(
        *("scheduler", "--port", "0", "--no-dashboard", "--idle-timeout", "1s"), folder=tmp_path
    )
    assert done.returncode == 0
    assert "(--idle-timeout)" in done.stderr


def test_the_death_timeout_stands_for_both_waits_for_a_scheduler(tmp_path):
    done = run("worker", "--death-timeout", "0.2", folder=tmp_path)
    assert done.returncode == EXIT_NO_SCHEDULER
    assert "within 0.2 s" in done.stderr
    with scheduler(folder=tmp_path) as started:
        address = address_of(started)
        with daemon(
            *("worker", address, "--death-timeout", "1s", "--connect-timeout", "20s"),
            folder=tmp_path,
        ) as worker:
            worker.wait_for("registered")
            started.process.kill()
            started.process.wait(30)
            assert worker.process.wait(60) == EXIT_NO_SCHEDULER
