"""`weft scheduler` that dies, is started again, or is started twice: real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import psutil
import pytest

import weft
from tests.deploy.daemons import address_of, daemon, file_of, gone, run, scheduler
from tests.leaks import wait_until
from weft.deploy.scheduler import restarting
from weft.protocol.errors import WeftError
from weft.protocol.trust.connection_file import ConnectionFile

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def real_pid(started) -> int:
    """The process of the scheduler itself, below its parent; as its connection file says."""
    return ConnectionFile.read(file_of(started)).pid


def restarted(started, pid: int) -> int:
    """Kill the scheduler, wait for the next one, and return its process."""
    os.kill(pid, signal.SIGKILL)

    def is_back() -> bool:
        try:
            return ConnectionFile.read(file_of(started)).pid != pid
        except WeftError:
            return False

    wait_until(is_back, 60, "another scheduler in the connection file")
    return real_pid(started)


@pytest.mark.parametrize("protocol", ["tcp", "tls", "unix"])
def test_a_killed_scheduler_is_started_again_as_the_same_one(short_folder, protocol):
    with (
        scheduler("--protocol", protocol, folder=short_folder) as started,
        daemon("worker", "--nworkers", "2", folder=short_folder) as workers,
    ):
        workers.wait_for("registered", 2)
        before = ConnectionFile.read(file_of(started))
        with weft.Client(connection_file=file_of(started)) as client:
            assert client.submit(abs, -1).result(60) == 1
            pid = before.pid
            assert pid != started.process.pid
            for n in (1, 2):
                pid = restarted(started, pid)
                after = ConnectionFile.read(file_of(started))
                assert after.addresses == before.addresses
                assert after.token == before.token
                assert after.cluster_id == before.cluster_id
                assert after.certificate_pem == before.certificate_pem
                workers.wait_for("the scheduler is back", n)
                client.wait_for_workers(2, timeout=60)
                assert client.submit(abs, -n - 1).result(60) == n + 1
        lines = [line for line in started.err.splitlines() if "WARNING" in line]
        assert ["ended: killed by SIGKILL; it is started again" in line for line in lines] == [
            True
        ] * 2
        assert started.out.count("connect ") == 1
        family = started.family()
        assert started.stop() == 0
        assert gone(family)
        assert not file_of(started).exists()
        assert not list((short_folder / "run" / "weft").glob("s*"))


def test_the_pages_come_back_at_their_port(tmp_path):
    with scheduler("--dashboard-address", "127.0.0.1:0", folder=tmp_path) as started:
        before = ConnectionFile.read(file_of(started))
        restarted(started, before.pid)
        assert ConnectionFile.read(file_of(started)).dashboard == before.dashboard
        done = run("info", folder=tmp_path)
        assert done.returncode == 0, done.stderr
        assert f"pages    {before.dashboard}" in done.stdout


def test_scheduler_started_later_is_the_same_cluster_with_a_higher_epoch(tmp_path):
    port = free_port()
    options = ("--port", str(port), "--no-restart")
    files, epochs = [], []
    with daemon(
        *("worker", f"127.0.0.1:{port}", "--nworkers", "1", "--connect-timeout", "60"),
        folder=tmp_path,
    ) as worker:
        for n in range(2):
            with scheduler(*options, folder=tmp_path) as started:
                assert real_pid(started) == started.process.pid
                files.append(ConnectionFile.read(file_of(started)))
                worker.wait_for("registered" if n == 0 else "is back")
                state = tmp_path / "run" / ".local" / "state" / "weft" / str(port)
                epochs.append(json.loads((state / "epoch.json").read_text())["epoch"])
                members = state / "members.json"
                wait_until(
                    lambda members=members: (
                        members.exists() and len(json.loads(members.read_text())["worker_ids"]) == 1
                    ),
                    30,
                )
                assert state.stat().st_mode & 0o777 == 0o700
                started.process.kill()
                started.process.wait(30)
    first, second = files
    assert first.token == second.token
    assert first.cluster_id == second.cluster_id
    assert epochs[0] < epochs[1]


def test_no_member_is_expected_after_a_shutdown(tmp_path):
    state = tmp_path / "state"
    with scheduler("--state-dir", str(state), folder=tmp_path) as started:
        with (
            daemon("worker", "--nworkers", "1", folder=tmp_path) as worker,
            weft.Client(connection_file=file_of(started)) as client,
        ):
            client.wait_for_workers(1, timeout=60)
            members = state / "members.json"
            wait_until(lambda: members.exists() and json.loads(members.read_text())["client_ids"])
            client.shutdown()
            assert worker.process.wait(30) == 0
        assert started.process.wait(30) == 0
    content = json.loads(members.read_text())
    assert (content["worker_ids"], content["client_ids"]) == ([], [])


def test_an_epoch_is_above_the_last_one_whatever_the_clock_says(tmp_path):
    state = tmp_path / "state"
    with scheduler("--state-dir", str(state), folder=tmp_path):
        pass
    content = json.loads((state / "epoch.json").read_text())
    far = time.time_ns() + 10**18
    (state / "epoch.json").write_text(json.dumps({**content, "epoch": far}))
    with scheduler("--state-dir", str(state), folder=tmp_path) as started:
        assert json.loads((state / "epoch.json").read_text())["epoch"] > far
        address = address_of(started)
    # The port is restored, too, although any free one was asked for.
    with scheduler("--state-dir", str(state), folder=tmp_path) as started:
        assert address_of(started) == address


def test_a_port_that_is_restored_or_given_never_falls_back(tmp_path):
    state = tmp_path / "state"
    with scheduler("--state-dir", str(state), folder=tmp_path) as started:
        port = int(address_of(started).rpartition(":")[2])
    before = {path.name: path.read_bytes() for path in state.glob("*.json")}
    with socket.create_server(("127.0.0.1", port)):
        done = run(
            *("scheduler", "--port", "0", "--no-dashboard", "--state-dir", str(state)),
            folder=tmp_path,
        )
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert f"port {port} of 127.0.0.1 is taken by another program" in done.stderr
        assert f"the cluster in {state} look for it there" in done.stderr
    after = {path.name: path.read_bytes() for path in state.glob("*.json")}
    assert after["identity.json"] == before["identity.json"]


def test_a_port_that_another_scheduler_of_the_user_has_is_named_as_such(tmp_path):
    pages = f"127.0.0.1:{free_port()}"
    with scheduler("--name", "one", "--dashboard-address", pages, folder=tmp_path) as started:
        address = address_of(started)
        port = address.rpartition(":")[2]
        done = run("scheduler", "--port", port, "--name", "two", folder=tmp_path)
        assert done.returncode == 2
        assert f"port {port} of 127.0.0.1 is taken by another scheduler of yours, process " in (
            done.stderr
        )
        options = ("--port", "0", "--dashboard-address", pages)
        done = run("scheduler", *options, folder=tmp_path)
        assert done.returncode == 2
        assert f"the scheduler of yours at {address} has its pages there" in done.stderr


def test_mistakes_about_the_state_directory_are_one_line_and_overwrite_nothing(tmp_path):
    state = tmp_path / "state"
    options = ("--port", "0", "--no-dashboard", "--state-dir", str(state))

    def fails(*words: str, more: tuple[str, ...] = ()) -> None:
        before = {path.name: path.read_bytes() for path in state.glob("*.json")}
        done = run("scheduler", *options, *more, folder=tmp_path)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
        for word in words:
            assert word in done.stderr
        assert {path.name: path.read_bytes() for path in state.glob("*.json")} == before

    with scheduler("--state-dir", str(state), folder=tmp_path) as started:
        pid = real_pid(started)
        fails("is in use by another running scheduler", f"process {pid} on ", "--state-dir")
        named = ("--name", "one")
    token = tmp_path / "token"
    token.write_text("x" * 43)
    token.chmod(0o600)
    fails("is of another cluster", str(token), more=("--token-file", str(token)))
    state.chmod(0o755)
    fails("can be used by others", "chmod 700")
    state.chmod(0o700)
    (state / "identity.json").write_text("{")
    fails("identity.json is damaged", "remove it")
    (state / "identity.json").unlink()
    fails("cannot make the directory /proc/nowhere", more=("--state-dir", "/proc/nowhere/x"))
    # By name, the default place is refused in the same way.
    with scheduler(*named, folder=tmp_path):
        done = run("scheduler", "--port", "0", "--no-dashboard", *named, folder=tmp_path)
        assert done.returncode == 2
        assert "is running" in done.stderr or "in use" in done.stderr


def test_a_default_place_that_cannot_be_used_is_one_warning(tmp_path):
    with scheduler("--name", "one", folder=tmp_path, XDG_STATE_HOME="/proc/nowhere") as started:
        (line,) = [line for line in started.err.splitlines() if "WARNING" in line]
        assert "cannot make the directory /proc/nowhere" in line
        assert "give a directory of yours with --state-dir" in line
        # It still comes back as the same one.
        before = ConnectionFile.read(file_of(started))
        restarted(started, before.pid)
        assert ConnectionFile.read(file_of(started)).cluster_id == before.cluster_id


def test_a_second_scheduler_without_options_is_a_cluster_of_its_own(tmp_path):
    with (
        daemon("scheduler", "--no-dashboard", folder=tmp_path) as one,
        daemon("scheduler", "--no-dashboard", folder=tmp_path) as two,
    ):
        for started in (one, two):
            started.wait_for("connect ")
        first, second = (ConnectionFile.read(file_of(started)) for started in (one, two))
        assert first.cluster_id != second.cluster_id
        assert first.addresses != second.addresses


def test_a_failed_first_start_is_final_and_leaves_no_directory(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("scheduler", "--no-dashboard", "--port", port, folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    home = tmp_path / "run" / ".local" / "state" / "weft"
    assert list(home.iterdir()) == []


def test_a_token_in_a_file_is_not_copied_into_the_state_directory(tmp_path):
    token = tmp_path / "token"
    token.write_text("a-token-of-the-user-in-a-file-of-theirs")
    token.chmod(0o600)
    state = tmp_path / "state"
    options = ("--state-dir", str(state))
    with scheduler(*options, "--token-file", str(token), folder=tmp_path) as started:
        first = ConnectionFile.read(file_of(started))
        assert first.token == token.read_text()
        for path in state.iterdir():
            assert token.read_text() not in path.read_text()
    done = run("scheduler", "--port", "0", "--no-dashboard", *options, folder=tmp_path)
    assert done.returncode == 2
    assert "give it with --token-file, as at the first start" in done.stderr
    with scheduler(*options, "--token-file", str(token), folder=tmp_path) as started:
        assert ConnectionFile.read(file_of(started)).cluster_id == first.cluster_id


def test_under_a_manager_nothing_is_started_again(tmp_path):
    # As systemd does: the variables are those of the process that it starts.
    code = (
        "import os, sys; os.environ['SYSTEMD_EXEC_PID'] = str(os.getpid()); "
        "os.execv(sys.executable, [sys.executable, '-m', 'weft', *sys.argv[1:]])"
    )
    arguments = ("scheduler", "--port", "0", "--no-dashboard")
    with daemon(*arguments, folder=tmp_path, code=code, INVOCATION_ID="x") as started:
        started.wait_for("connect ")
        assert real_pid(started) == started.process.pid
        assert len(started.family()) == 1


SERVICE = {"INVOCATION_ID": "x"}
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    ("environ", "pid", "parent", "manager"),
    [
        ({}, 50, 40, ""),
        ({}, 1, 0, "the container's runtime"),
        (POD, 50, 1, "the container's runtime"),
        (POD, 50, 0, "the container's runtime"),
        (POD, 50, 40, ""),  # a terminal of a notebook server in the pod
        (SERVICE | {"SYSTEMD_EXEC_PID": "50"}, 50, 40, "systemd"),
        (SERVICE | {"SYSTEMD_EXEC_PID": "7"}, 50, 1, ""),  # a terminal of a desktop
        (SERVICE, 50, 1, "systemd"),  # an older systemd
        ({"NOTIFY_SOCKET": "/x"}, 50, 1, "systemd"),
        pytest.param(SERVICE, 50, os.getpid(), "", id="a parent that is no manager"),
        (SERVICE, 50, 2**22 + 1, ""),  # its parent has ended
    ],
)
def test_only_what_starts_this_process_again_is_a_manager(environ, pid, parent, manager):
    assert restarting.manager(environ, pid, parent) == manager


def test_another_port_than_that_of_the_state_directory_is_a_warning(tmp_path):
    state = str(tmp_path / "state")
    options = ("scheduler", "--no-dashboard", "--state-dir", state)
    with daemon(*options, "--port", "0", folder=tmp_path) as started:
        started.wait_for("connect ")
        old = address_of(started).rpartition(":")[2]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with daemon(*options, "--port", str(port), folder=tmp_path) as started:
        started.wait_for("connect ")
        assert f"was at port {old} before: its workers and clients find" in started.err


@pytest.mark.parametrize(
    ("code", "expected"), [(0, 0), (-signal.SIGINT, 0), (-signal.SIGKILL, 137), (1, 1)]
)
def test_a_scheduler_that_another_order_to_stop_ends_has_stopped(code, expected):
    """Ctrl-C reaches both processes, and the one passes it on, perhaps at the end of the other."""
    parent = restarting._Parent()
    parent._numbers = [signal.SIGCHLD, signal.SIGTERM, signal.SIGINT]
    parent._wakes, waker = os.pipe()
    try:
        os.set_blocking(parent._wakes, False)
        os.write(waker, bytes([signal.SIGINT]))
        with pytest.raises(SystemExit) as ended:
            parent._judge(code, 1.0)
        assert ended.value.code == expected
    finally:
        os.close(parent._wakes)
        os.close(waker)


def test_orders_to_stop_reach_the_scheduler_and_end_a_pause(tmp_path):
    with scheduler(folder=tmp_path) as started:
        # Ctrl-C in a terminal reaches both processes.
        os.kill(real_pid(started), signal.SIGINT)
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(30) == 0
        assert "started again" not in started.err
        assert started.err.count("scheduler stops") == 1
    with scheduler(folder=tmp_path) as started:
        pid = real_pid(started)
        for n in range(1, 6):
            os.kill(pid, signal.SIGKILL)
            started.wait_for("is started again", n)
            if n < 5:
                wait_until(lambda last=pid: real_or(started, last) != last, 60)
                pid = real_pid(started)
        assert "is started again in 1.6 s" in started.err
        assert started.stop() == 0
        assert not list((tmp_path / "run" / "weft").glob("state-*"))


def real_or(started, last: int) -> int:
    try:
        return real_pid(started)
    except WeftError:
        return last


def test_a_scheduler_ends_with_its_parent(tmp_path):
    with scheduler(folder=tmp_path) as started:
        real = psutil.Process(real_pid(started))
        started.process.kill()
        started.process.wait(30)
        wait_until(lambda: gone([real]), 30)
        started.wait_for("its parent process is gone")
        assert not file_of(started).exists()
        left = list((tmp_path / "run" / "weft").glob("state-*"))
        assert [path.name for path in left] == [f"state-{started.process.pid}"]
    # The next one clears it away.
    with scheduler(folder=tmp_path) as started:
        (state,) = (tmp_path / "run" / "weft").glob("state-*")
        assert state.name == f"state-{started.process.pid}"


ENDING = """
import sys, os
from pathlib import Path
sys.path.insert(0, {root!r})
from weft.deploy.scheduler import starting
from weft.deploy.cli.command import main
real = starting.SchedulerStart._on_ready
def on_ready(self, server, url):
    real(self, server, url)
    Path("starts").open("a").write("x")
    os._exit({code})
starting.SchedulerStart._on_ready = on_ready
main(["scheduler", "--port", "0", "--no-dashboard"])
"""


@pytest.mark.parametrize(
    ("code", "n_starts", "words"),
    [
        (0, 1, ""),
        (2, 1, "is not started again: its options or configuration are at fault (exit code 2)"),
        (75, 1, "is not started again: another scheduler of this cluster has taken over"),
        (70, 3, "ended: exit code 70; it is started again in 0.2 s"),
    ],
)
def test_some_exit_codes_are_final(tmp_path, code, n_starts, words):
    root = str(Path(__file__).resolve().parents[3])
    with daemon(folder=tmp_path, code=ENDING.format(root=root, code=code)) as started:
        starts = tmp_path / "starts"
        wait_until(lambda: starts.exists() and len(starts.read_text()) >= n_starts, 60)
        if n_starts == 1:
            assert started.process.wait(30) == code
            assert starts.read_text() == "x"
        assert words in started.err
