"""`weft ssh` with real ssh processes and a real sshd on loopback."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import weft
from tests.deploy.daemons import daemon, gone, run
from tests.deploy.ssh_kit import sshd
from tests.leaks import wait_until
from weft.protocol.trust.connection_file import ConnectionFile

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> Iterator[str]:
    with sshd(tmp_path, "one", "two") as path:
        yield str(path)


def arguments(config: str, *hosts: str) -> list[str]:
    # The far end has the environment of a login, not of the test.
    return [
        *("ssh", *hosts, "--ssh-config", config, "--nworkers", "1", "--nthreads", "1"),
        *("--port", "0", "--connection-file", "cluster.json"),
        *("--dashboard-address", "127.0.0.1:0"),
    ]


def far_ends_of(server: Path) -> list[psutil.Process]:
    """The processes of the far ends, all below the sshd of the test."""
    sshd_process = psutil.Process(int(server.joinpath("ssh", "pid").read_text()))
    below = sshd_process.children(recursive=True)
    return [process for process in below if "python" in process.name()]


def test_workers_of_two_machines_compute_and_ctrl_c_ends_all(config, tmp_path):
    with daemon(*arguments(config, "one", "two"), folder=tmp_path) as started:
        started.wait_for("registered", 2)
        token = ConnectionFile.read(tmp_path / "cluster.json").token
        with weft.Client(connection_file=tmp_path / "cluster.json") as client:
            names = {w["name"] for w in client.scheduler_info()["workers"].values()}
            assert names == {"one", "two"}
            pids = {client.submit(os.getpid, workers=name, pure=False).result(30) for name in names}
        assert len(pids) == 2
        workers = [psutil.Process(pid) for pid in pids]
        far_ends = far_ends_of(tmp_path)
        assert len(far_ends) >= 2
        for process in [*started.family(), *workers, *far_ends]:
            assert token not in " ".join(process.cmdline())
        assert "one: " in started.out
        assert "two: " in started.out
        assert "scheduler: " in started.out
        family = started.family()
        assert started.stop(signal.SIGINT) == 0
        wait_until(lambda: gone([*family, *workers, *far_ends]), 30, "the end of all processes")
        assert not (tmp_path / "cluster.json").exists()
        assert token not in started.out + started.err


def test_a_machine_that_fails_is_named_with_the_reason_and_the_others_go_on(config, tmp_path):
    hosts = ("one", "closed", "no.such.invalid")
    with daemon(*arguments(config, *hosts), folder=tmp_path) as started:
        started.wait_for("registered")
        for host, reason in (("closed", "Connection refused"), ("no.such.invalid", "resolve")):
            started.wait_for(f"weft ssh: {host}: ssh cannot log in: ")
            (line,) = [line for line in started.err.splitlines() if f" {host}: " in line]
            assert reason in line
            assert f"'ssh {host} true' must work" in line
        with weft.Client(connection_file=tmp_path / "cluster.json") as client:
            assert client.submit(abs, -1).result(timeout=30) == 1
        assert started.stop() == 0


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", "there is no /no/such/python there; give the path of its Python"),
        ("/usr/bin/python3", "weft is not installed for /usr/bin/python3 there; install the same"),
    ],
)
def test_a_wrong_python_on_all_machines_is_one_line_and_the_end(python, words, config, tmp_path):
    if not Path(python).exists() and "no" not in python:
        pytest.skip(f"{python} is missing: apt-get install python3")
    done = run(*arguments(config, "one"), "--python", python, folder=tmp_path)
    assert done.returncode == 1
    assert f"weft ssh: one: {words}" in done.stderr
    assert "no worker is left" in done.stderr


def test_the_far_ends_end_when_the_connections_are_killed(config, tmp_path):
    with daemon(*arguments(config, "one", "two"), folder=tmp_path) as started:
        started.wait_for("registered", 2)
        with weft.Client(connection_file=tmp_path / "cluster.json") as client:
            pid = client.submit(os.getpid).result(timeout=30)
        far_ends = far_ends_of(tmp_path)
        assert psutil.pid_exists(pid)
        started.process.kill()
        started.process.wait(30)
        wait_until(
            lambda: gone(far_ends) and not psutil.pid_exists(pid), 60, "the end of the far ends"
        )


def test_the_scheduler_may_run_on_the_first_machine(config, tmp_path):
    command = [*arguments(config, "one", "two"), "--scheduler", "first"]
    with daemon(*command, folder=tmp_path) as started:
        started.wait_for("registered", 2)
        started.wait_for("connect with weft.Client(connection_file=")
        started.wait_for("sign in with: weft token ")
        command = started.err.partition("sign in with: weft ")[2].partition("\n")[0]
        assert run(*shlex.split(command), folder=tmp_path).stdout.startswith("view.")
        with weft.Client(connection_file=tmp_path / "cluster.json") as client:
            assert client.gather(client.map(abs, range(-3, 0))) == [3, 2, 1]
            client.shutdown()
        assert started.process.wait(60) == 0, started.out + started.err
        assert not (tmp_path / "cluster.json").exists()


def test_a_scheduler_s_machine_that_fails_is_named_as_the_user_did(config, tmp_path):
    command = [*arguments(config, "one"), "--scheduler", "closed"]
    done = run(*command, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert "weft ssh: scheduler: ssh cannot log in to closed: " in done.stderr
    assert "'ssh closed true' must work" in done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "no host is given; name one or more"),
        (("--hostfile", "missing"), "missing"),
        (("one two",), "'one two' is not the name of a host"),
        (("--", "-oProxyCommand=x"), "'-oProxyCommand=x' is not the name of a host"),
        (("-o", "NoSuchOption=1", "one"), "ssh refuses 'one': "),
        (("--ssh-private-key", "missing", "one"), "'--ssh-private-key': File 'missing' does not"),
        (("--ssh-config", "missing", "one"), "'--ssh-config': File 'missing' does not exist"),
    ],
)
def test_a_mistake_is_one_line_and_code_2(options, words, tmp_path):
    done = run("ssh", *options, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def test_hosts_come_from_a_file(config, tmp_path):
    (tmp_path / "hosts").write_text("# machines\none   # the first\n\n")
    with daemon(*arguments(config, "--hostfile", "hosts"), folder=tmp_path) as started:
        started.wait_for("registered")
        assert started.stop() == 0
