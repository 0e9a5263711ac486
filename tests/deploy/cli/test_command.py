from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
from pathlib import Path

import pytest

import weft
from tests.deploy.daemons import address_of, daemon, file_of, gone, run, scheduler
from tests.leaks import wait_until
from weft.protocol.host.exits import EXIT_NO_SCHEDULER
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import new_token
from weft.protocol.wire.failure import MAX_RELAYED_BYTES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--help"], ["connection file", "token", "weft scheduler", "weft worker"]),
        (["scheduler", "--help"], ["8786", "TLS", "--connection-file", "/metrics"]),
        (
            ["worker", "--help"],
            ["--nthreads", "4GB", "GPU=2", "WEFT_TOKEN_FILE", "OMP_NUM_THREADS"],
        ),
        (["info", "--help"], ["--json"]),
        (["--version"], ["weft", "Python"]),
    ],
)
def test_help_has_examples_and_explains_the_options(arguments, words, tmp_path):
    done = run(*arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [word for word in words if word not in done.stdout] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["shceduler"], ["no command 'shceduler'", "did you mean 'scheduler'?"]),
        (["shutdown"], ["no command 'shutdown'", "'weft stop'"]),
        (["start"], ["no command 'start'", "'weft scheduler'", "'weft worker'"]),
        (["ls"], ["no command 'ls'", "'weft info'"]),
        (["worker", "--nprocs", "2"], ["no option --nprocs; it is --nworkers here"]),
        (["ps"], ["no command 'ps'", "'weft info --all'"]),
        (["check"], ["no command 'check'", "'weft doctor'"]),
        (["help"], ["no command 'help'", "'weft --help'"]),
        (["scheduler", "8786"], ["(8786)", "--port 8786", "--host"]),
        (["scheduler", "--state-dir", ""], ["--state-dir: the path is empty"]),
        (["scheduler", "--host", "203.0.113.1"], ["--host: '203.0.113.1' is not an address of"]),
        (["scheduler", "--host", "no.such.invalid"], ["--host: 'no.such.invalid' is not an"]),
        (["qqq"], ["no command 'qqq'", "weft --help"]),
        (
            ["scheduler", "--prot", "1"],
            ["no option --prot;", "did you mean '--port' or '--protocol'?"],
        ),
        (["scheduler", "--prt", "1"], ["did you mean '--port'?"]),
        (["scheduler", "--port", "99999"], ["99999"]),
        (["worker", "--no-nanny"], ["--no-nanny", "supervisor"]),
        (["worker", "--local-dir", "x"], ["did you mean '--local-directory'?"]),
        (["worker", "--n-workers", "2"], ["did you mean '--nworkers'?"]),
        (["worker", "--quux"], ["no option --quux; see 'weft worker --help'"]),
        (["submit", "ls", "-la"], ["no option -l;", "put -- before that: weft submit -- PROGRAM"]),
        (["submit", "--zzz", "--", "ls", "-la"], ["no option --zzz; see 'weft submit --help'"]),
        (["worker", "--nthreads", "all"], ["--nthreads: 'all' is not a whole number", "or auto"]),
        (["worker", "--nthreads", "0"], ["--nthreads: 0 is not between 1 and 4096"]),
        (["scheduler", "--dashboard-address", "nowhere"], ["'nowhere'", "127.0.0.1:8787"]),
        (
            ["scheduler", "--dashboard-host-name", "http://weft.example"],
            ["--dashboard-host-name: 'http://weft.example' is not the name of a host", "port"],
        ),
        (["scheduler", "--host", "0.0.0.0", "--protocol", "tcp"], ["encrypt", "tls://"]),
        (["scheduler", "--name", "a/b"], ["'a/b'", "letters"]),
        (["scheduler", "--protocol", "unix", "--name", "../b"], ["'../b'", "letters"]),
        (
            ["scheduler", "--token-file", "nope"],
            ["no token file nope", "holds the cluster's token"],
        ),
        (["worker", "localhost/x"], ["not an address", "tcp://host:port"]),
        (
            ["worker", "--grace-period", "soon"],
            ["'soon' is not a time; ", "'15 min'"],
        ),
        (["worker", "--connect-timeout", "-1s"], ["--connect-timeout: '-1s' is not a time"]),
        (["scheduler", "--client-lease", "nan"], ["--client-lease: 'nan' is not a time"]),
        (["scheduler", "--liveness-timeout", "999ms"], ["'999ms' is less than 1 s"]),
        (["worker", "--memory-limit", "lots"], ["--memory-limit", "'lots'", "auto"]),
        (
            ["worker", "--memory-target", "0.9"],
            ["--memory-target: spill = 0.7 is lower than target = 0.9"],
        ),
        (["worker", "--memory-pause", "80"], ["--memory-pause: 80.0 is not a part", "0.7"]),
        (["worker", "--max-spill", "much"], ["--max-spill: 'much' is not a size"]),
        (["worker", "--resources", "GPU"], ["--resources", "NAME=AMOUNT"]),
        (["worker", "--resources", "GPU=1 GPU=2"], ["--resources", "GPU is given twice"]),
        (["scale", "two"], ["'two' is not valid: give a whole number, 0 or more"]),
        (["scale", "-12"], ["-12 is not valid: give a whole number, 0 or more"]),
        (["retire", "--keep", "-1"], ["--keep: -1 is not valid: give a whole number, 0 or more"]),
        (["selftest", "--workers", "0"], ["--workers: 0 is not valid", "1 or more"]),
        (["worker", "--nworkers", "0"], ["--nworkers: 0 is not", "1 to 4096, auto"]),
    ],
)
def test_a_mistake_is_one_line_with_a_hint_and_code_2(arguments, words, tmp_path):
    done = run(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("weft")
    assert [word for word in words if word not in done.stderr] == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info"], ["no running scheduler", "weft scheduler", "--connection-file"]),
        (
            ["info", "tcp://127.0.0.1:1"],
            ["weft: no process listens at tcp://127.0.0.1:1; start a scheduler there"],
        ),
        (["info", "tcp://no.such.invalid:1"], ["weft: the name no.such.invalid does not resolve"]),
        (["info", "--connection-file", "missing/c.json"], ["no connection file missing/c.json"]),
    ],
)
def test_an_absent_scheduler_is_one_line_with_a_hint_and_code_69(arguments, words, tmp_path):
    done = run(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert [word for word in words if word not in done.stderr] == []


def test_a_connection_file_that_cannot_be_written_is_found_out_before_listening(tmp_path):
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere.json")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "shared").mkdir(mode=0o777)
    (tmp_path / "shared").chmod(0o777)
    for place in ("link.json", "other.json", "shared/c.json"):
        done = run("scheduler", "--connection-file", place, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1, done.stderr
        assert place.split("/")[0] in done.stderr
    assert not (tmp_path / "elsewhere.json").exists()


def test_a_run_directory_that_others_can_read_is_found_out_before_listening(tmp_path):
    directory = tmp_path / "run" / "weft"
    directory.mkdir(parents=True)
    directory.chmod(0o755)
    done = run("scheduler", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert f"chmod 700 {directory}" in done.stderr


def test_the_command_alone_shows_its_help(tmp_path):
    alone, asked = run(folder=tmp_path), run("--help", folder=tmp_path)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, asked.stdout, "")


def test_an_address_needs_no_scheme(tmp_path):
    with scheduler(folder=tmp_path) as started:
        address = address_of(started).removeprefix("tcp://")
        assert run("info", address, folder=tmp_path).stdout.startswith("scheduler at tcp://")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_scheduler_prints_how_to_connect_and_leaves_no_file_behind(number, tmp_path):
    with scheduler("--dashboard-address", "127.0.0.1:0", folder=tmp_path) as started:
        path = file_of(started)
        assert path.parent == tmp_path / "run" / "weft"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        address = address_of(started)
        assert f"weft worker {address}" in started.out
        assert f"weft.Client('{address}')" in started.out
        assert re.search(r"status page +http://127\.0\.0\.1:\d+/", started.out)
        found = ConnectionFile.read(path)
        assert found.addresses == (address,)
        assert found.dashboard is not None
        family = started.family()
        assert len(family) == 3
        assert started.stop(number) == 0
        assert not path.exists()
        assert gone(family)
        assert "WARNING" not in started.err
        assert "ERROR" not in started.err


def test_a_scheduler_that_is_stopped_names_the_tasks_that_clients_wait_for(tmp_path):
    unfinished = "1 client has 3 unfinished tasks; clients wait for the next scheduler"
    with scheduler(folder=tmp_path) as started:
        with weft.Client(connection_file=file_of(started)) as client:
            futures = client.map(abs, [-1, -2, -3])
            wait_until(lambda: len(client.story(futures[2])) > 0, 30, "the tasks")
            assert started.stop(signal.SIGINT) == 0
        lines = started.err.splitlines()
    (line,) = [n for n, line in enumerate(lines) if unfinished in line]
    assert "scheduler stops: SIGINT" in lines[line + 1]


def test_an_explicit_port_that_is_taken_is_an_error(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("scheduler", "--no-dashboard", "--port", str(port), folder=tmp_path)
        assert done.returncode == 2
        assert f"port {port} of 127.0.0.1 is taken" in done.stderr
        assert "--port 0" in done.stderr
        done = run(
            "scheduler", "--port", "0", "--dashboard-address", f"127.0.0.1:{port}", folder=tmp_path
        )
        assert done.returncode == 2
        assert done.stderr.count("--dashboard-address") == 1


def test_the_default_port_falls_back_to_a_free_one(tmp_path):
    with (
        scheduler("--port", "0", folder=tmp_path),
        daemon("scheduler", "--no-dashboard", folder=tmp_path) as one,
        daemon("scheduler", "--no-dashboard", folder=tmp_path) as two,
    ):
        one.wait_for("connect ")
        two.wait_for("connect ")
        # At least one of them cannot have 8786, whichever other programs run on this machine.
        assert "port 8786 is taken" in one.err + two.err
        assert len({address_of(one), address_of(two), file_of(one), file_of(two)}) == 4


def test_pages_whose_port_is_taken_are_an_error_before_the_scheduler_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        pages = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("scheduler", "--port", "0", "--dashboard-address", pages, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(f"weft: cannot serve pages at {pages}: ")


def test_pages_fall_back_to_a_free_port_and_the_log_names_it(tmp_path):
    with (
        daemon("scheduler", "--port", "0", folder=tmp_path) as one,
        daemon("scheduler", "--port", "0", folder=tmp_path) as two,
    ):
        one.wait_for("connect ")
        two.wait_for("connect ")
        assert "port 8787 is taken, pages use a free one" in one.err + two.err


def test_workers_and_clients_find_the_only_scheduler_by_themselves(tmp_path, monkeypatch):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--name", "w", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 2)
        monkeypatch.setenv("WEFT_CONNECTION_FILE", str(file_of(started)))
        with weft.Client() as client:
            assert client.gather(client.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
            names = {w["name"] for w in client.scheduler_info()["workers"].values()}
            assert names == {"w-0", "w-1"}
        described = run("info", folder=tmp_path)
        assert "2 with" in described.stdout
        assert "w-0" in described.stdout
        told = json.loads(run("info", "--json", folder=tmp_path).stdout)
        assert told["n_workers"] == 2
        family = workers.family()
        assert len(family) == 4
        assert workers.stop(signal.SIGINT) == 0
        assert gone(family)
        assert "WARNING" not in workers.err + started.err


#: For documentation (RFC 5737), and so of no machine.
NOBODYS_HOST = "203.0.113.1"


@pytest.mark.parametrize("host", [NOBODYS_HOST, "0.0.0.0", "[::]", "x" * 64, ""])
def test_a_worker_host_that_is_no_address_of_this_machine_is_one_line(host, tmp_path):
    with scheduler(folder=tmp_path):
        done = run("worker", "--host", host, folder=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.count("\n") == 1, done.stderr
        assert done.stderr.startswith("weft: --host: ")
        assert host.strip("[]") in done.stderr
        assert "of this machine" in done.stderr


WORKERS_WITH_A_BAD_PORT = f"""
import logging, os, sys
from weft.deploy.workers.workers import run_daemon
from weft.protocol.trust import finding
from weft.worker.family.config import SupervisorConfig, WorkerSpec

def find():
    found = finding.find(None, None, os.environ)
    return found.addresses, found.to_security()

logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
options = {{"nthreads": 1, "resources": {{}}, "local_directory": sys.argv[1]}}
options["listen_address"] = "tcp://{NOBODYS_HOST}:0"
sys.exit(run_daemon(SupervisorConfig(find, [WorkerSpec("w", 0, options)], sys.argv[1])))
"""


def test_a_worker_that_cannot_listen_ends_its_family_with_one_error(tmp_path):
    """An error that is found late: the address disappeared after the command had checked it."""
    with scheduler(folder=tmp_path) as started:
        done = run(str(tmp_path), folder=tmp_path, code=WORKERS_WITH_A_BAD_PORT)
        assert done.returncode == 2
        (line,) = [line for line in done.stderr.splitlines() if not line.startswith("INFO ")]
        assert line.startswith("ERROR worker w: no data port")
        assert NOBODYS_HOST in line
        assert "--host" in line
        assert "WARNING" not in started.err


def test_a_worker_s_options_arrive(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon(
            *("worker", address_of(started), "--nworkers", "1", "--nthreads", "3"),
            *("--memory-limit", "1GB", "--name", "big", "--resources", "GPU=2 MEM=10e9"),
            *("--local-directory", str(tmp_path / "scratch"), "--host", "127.0.0.1"),
            folder=tmp_path,
        ) as worker,
    ):
        worker.wait_for("registered")
        assert len(list((tmp_path / "scratch").iterdir())) == 1
        with weft.Client(connection_file=file_of(started)) as client:
            (info,) = client.scheduler_info()["workers"].values()
            assert (info["name"], info["nthreads"], info["memory_limit"]) == ("big", 3, 10**9)
            offered = {"cores": info["nthreads"], "memory": 1e9, "places without cores": 100.0}
            assert info["resources"] == {"GPU": 2.0, "MEM": 1e10, **offered}
            assert client.submit(abs, -1, resources={"GPU": 2}).result(timeout=30) == 1
        assert worker.stop() == 0
        assert list((tmp_path / "scratch").iterdir()) == []


def test_a_wrong_token_is_refused_in_one_line(tmp_path):
    with scheduler(folder=tmp_path) as started:
        token_file = tmp_path / "token"
        token_file.write_text(new_token())
        token_file.chmod(0o600)
        done = run(
            *("worker", address_of(started), "--log-level", "error"),
            folder=tmp_path,
            WEFT_TOKEN_FILE=str(token_file),
        )
        assert done.returncode == 77  # a service manager need not try again
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith(f"weft worker: refused by {address_of(started)}: ")
        assert "token" in done.stderr
        assert "refused" in started.wait_for("refused")


def test_a_worker_waits_no_longer_for_a_scheduler_than_configured(tmp_path):
    token_file = tmp_path / "token"
    token_file.write_text(new_token())
    token_file.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        done = run(
            *("worker", f"tcp://127.0.0.1:{port}", "--connect-timeout", "200ms"),
            folder=tmp_path,
            WEFT_TOKEN_FILE=str(token_file),
        )
    assert done.returncode == EXIT_NO_SCHEDULER
    # An attempt of the usual length would have waited for 10 s, and its error would name that time.
    assert "within 0.2 s: no answer, though a process listens; is it a weft" in done.stderr


def test_a_family_of_workers_logs_the_loss_of_the_scheduler_once_and_its_return_once(
    tmp_path,
):
    with scheduler("--name", "one", folder=tmp_path) as first:
        address = address_of(first)
        with daemon("worker", "--nworkers", "2", folder=tmp_path) as worker:
            worker.wait_for("registered", 2)
            before = len(worker.err.splitlines())
            first.process.kill()
            first.process.wait(30)
            worker.wait_for("the scheduler is gone")
            port = address.rpartition(":")[2]
            with scheduler("--port", port, "--name", "one", folder=tmp_path) as second:
                worker.wait_for("the scheduler is back")
                with weft.Client(connection_file=file_of(second)) as client:
                    client.wait_for_workers(2, timeout=30)
            lines = worker.err.splitlines()[before:]
    told = [line for line in lines if "back after" in line or "is gone" in line]
    assert "the scheduler is gone: " in told[0]
    assert "the scheduler is back after" in told[1]
    assert lines[:2] == told[:2]


def test_a_token_file_serves_scheduler_worker_and_client(tmp_path, monkeypatch):
    token_file = tmp_path / "token"
    token_file.write_text(new_token() + "\n")
    token_file.chmod(0o600)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with scheduler("--token-file", str(token_file), folder=tmp_path) as started:
        address = address_of(started)
        with daemon(
            *("worker", address, "--nworkers", "1"),
            folder=elsewhere,
            WEFT_TOKEN_FILE=str(token_file),
        ) as worker:
            worker.wait_for("registered")
            monkeypatch.setenv("WEFT_TOKEN_FILE", str(token_file))
            with weft.Client(address) as client:
                assert client.submit(abs, -1).result(timeout=30) == 1


def test_a_worker_waits_for_its_scheduler_as_long_as_it_may(tmp_path):
    with scheduler(folder=tmp_path) as started:
        content = json.loads(file_of(started).read_text())
    content["host"] = "elsewhere"  # or the file would be known to be of a dead scheduler
    path = tmp_path / "old.json"
    path.write_text(json.dumps(content))
    path.chmod(0o600)
    done = run(
        "worker", "--connection-file", str(path), "--connect-timeout", "0.2", folder=tmp_path
    )
    assert done.returncode == EXIT_NO_SCHEDULER
    *_, last = done.stderr.splitlines()
    assert "no process listens there" in last
    assert content["addresses"][0] in last


def test_a_tls_cluster_computes_and_its_results_come_from_the_workers(tmp_path, caplog):
    with (
        scheduler("--protocol", "tls", folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", folder=tmp_path) as workers,
    ):
        assert address_of(started).startswith("tls://")
        workers.wait_for("registered", 2)
        with weft.Client(connection_file=file_of(started)) as client:
            parts = client.map(bytes, [200_000, 300_000])
            assert client.submit(lambda *p: sum(map(len, p)), *parts).result(timeout=30) == 500_000
            assert [len(part) for part in client.gather(parts)] == [200_000, 300_000]
            # The scheduler would not relay this, so the client reaches the workers directly.
            n = MAX_RELAYED_BYTES + 1
            assert len(client.submit(bytes, n).result(timeout=60)) == n
    assert caplog.text == ""


def test_a_unix_socket_cluster_computes(short_folder):
    with scheduler("--protocol", "unix", "--name", "u", folder=short_folder) as started:
        assert address_of(started).startswith("unix://")
        assert file_of(started).name == "u.json"
        with daemon("worker", "--nworkers", "1", folder=short_folder) as worker:
            worker.wait_for("registered")
            with weft.Client(connection_file=file_of(started)) as client:
                assert client.submit(abs, -1).result(timeout=30) == 1
                pid = client.submit(os.getpid).result(timeout=30)
                sockets = Path(address_of(started).removeprefix("unix://")).parent
                (killed,) = sockets.glob("weft-worker-*.sock")
                os.kill(pid, signal.SIGKILL)
                worker.wait_for("registered", 2)
                assert not killed.exists()


def test_workers_come_back_to_a_scheduler_that_was_started_again(tmp_path):
    file = tmp_path / "cluster.json"
    option = ("--connection-file", str(file))
    with (
        scheduler(*option, folder=tmp_path) as first,
        daemon("worker", *option, "--nworkers", "1", folder=tmp_path) as worker,
    ):
        worker.wait_for("registered")
        assert first.stop() == 0
        with scheduler(*option, folder=tmp_path):
            worker.wait_for("the scheduler is back")
            with weft.Client(connection_file=file) as client:
                assert client.submit(abs, -1).result(timeout=30) == 1


def test_workers_that_come_back_meet_new_ones_and_clients_as_one_cluster(tmp_path):
    file = tmp_path / "cluster.json"
    option = ("--connection-file", str(file))
    with (
        scheduler(*option, folder=tmp_path) as first,
        daemon("worker", *option, "--nworkers", "1", "--name", "old", folder=tmp_path) as old,
    ):
        old.wait_for("registered")
        first.process.kill()
        first.process.wait(30)
        with (
            scheduler(*option, folder=tmp_path),
            daemon("worker", *option, "--nworkers", "1", "--name", "new", folder=tmp_path) as new,
            weft.Client(connection_file=file) as client,
        ):
            old.wait_for("the scheduler is back")
            new.wait_for("registered")
            # The scheduler would not relay these, so the workers reach each other directly, too.
            n = MAX_RELAYED_BYTES + 1
            there = client.submit(bytes, n, workers="old")
            here = client.submit(bytes, n + 1, workers="new")
            lengths = client.map(lambda *a: sum(map(len, a)), [there] * 2, [here] * 2, [b"", b"x"])
            assert client.gather(lengths) == [2 * n + 1, 2 * n + 2]
            assert len(there.result(timeout=60)) == n


def test_a_client_s_shutdown_ends_scheduler_and_workers(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 2)
        family = started.family() + workers.family()
        weft.Client(connection_file=file_of(started)).shutdown()
        assert started.process.wait(30) == 0
        assert workers.process.wait(30) == 0
        assert gone(family)
        assert not file_of(started).exists()


def test_the_token_is_in_no_argument_and_no_environment(tmp_path):
    with (
        scheduler("--dashboard-address", "127.0.0.1:0", folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", folder=tmp_path) as worker,
    ):
        worker.wait_for("registered")
        token = ConnectionFile.read(file_of(started)).token
        family = started.family() + worker.family()
        assert len(family) == 6
        for process in family:
            for name in ("cmdline", "environ"):
                content = Path(f"/proc/{process.pid}/{name}").read_bytes()
                assert content
                assert token.encode() not in content
        assert token not in started.out + started.err + worker.out + worker.err
