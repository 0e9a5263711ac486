"""`weft top` in a real pseudo-terminal, and `weft status`, on a real cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from tests.deploy.daemons import Daemon, address_of, daemon, file_of, run, scheduler
from tests.deploy.terminal import terminal

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Daemon, weft.Client]]:
    """A scheduler, two workers, and a client."""
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--nthreads", "1", "--name", "w", folder=tmp_path),
        weft.Client(connection_file=file_of(started), name="me") as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield started, client


def nap(i: int) -> int:
    time.sleep(0.05)  # workload
    return i


def fail(text: str) -> None:
    raise ValueError(text)


def test_the_screen_follows_the_cluster_and_obeys_the_keys(cluster, tmp_path):
    started, client = cluster
    failing = client.submit(fail, "oops")
    assert failing.exception(60) is not None
    futures = client.map(nap, range(10_000))
    with terminal("top", folder=tmp_path) as top:
        screen = top.wait_for("w-0", "w-1", "2 workers, sorted by name", "tasks/s", "[workers]")
        assert address_of(started) in screen
        top.press("/w-1\r")
        top.wait_until(lambda screen: "w-0" not in screen, "the filter")
        top.press("\x1bs")
        top.wait_for("w-0", "by memory")
        top.press("\t")
        top.wait_for("[hosts]", "1 host")
        top.press("\t")
        top.wait_for("[functions]", "nap", "per second")
        top.press("\t")
        top.wait_for("[failures]", "ValueError: oops")
        top.press("\x1b[Be")
        top.wait_for(f"task {failing.key}: erred", "submitted by me")
        top.press("x")
        top.press("h")
        top.wait_for("any key goes back".capitalize())
        top.press("x")
        top.resize(50, 12)
        top.press("\t")
        top.wait_for("[workers]", "w-0")
        assert b"\x1b[?1049h" in top.written  # the alternate screen
        assert b"\x1b[?1049l" not in top.written
        top.press("q")
        assert top.wait() == 0
        assert b"\x1b[?1049l" in top.written
    for future in futures:
        future.release()


def test_a_chosen_worker_is_retired_after_a_question(cluster, tmp_path):
    with terminal("top", folder=tmp_path) as top:
        top.wait_for("w-0", "w-1")
        top.press("j")
        top.press("r")
        top.wait_for("retire w-0? It finishes what it runs, and leaves (y/n)")
        top.press("y")
        top.wait_until(lambda screen: "w-0 " not in screen and "1 running" in screen, "the end")
        top.press("q")
        assert top.wait() == 0


def test_a_lost_scheduler_is_shown_and_found_again(cluster, tmp_path):
    started, _ = cluster
    with terminal("top", folder=tmp_path, NO_COLOR="1") as top:
        top.wait_for("w-0", "w-1")
        # Its parent starts it again.
        os.kill(started.family()[1].pid, signal.SIGSTOP)
        try:
            top.wait_for("down: the scheduler does not answer; trying again", "w-0")
        finally:
            os.kill(started.family()[1].pid, signal.SIGCONT)
        top.wait_until(lambda screen: "down:" not in screen and "w-1" in screen, "the return")
        assert b"\x1b[3" not in top.written.replace(b"\x1b[?", b"")
        top.process.send_signal(signal.SIGINT)
        assert top.wait() == 0


def test_without_a_terminal_there_are_plain_lines(cluster, tmp_path):
    done = run("top", "-n", "2", "--interval", "500ms", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count(" at tcp://") == 2
    assert "\x1b" not in done.stdout
    done = run("top", folder=tmp_path)  # it ends: `weft top | grep queued`
    assert (done.returncode, done.stdout.count(" at tcp://")) == (0, 1)
    with terminal("top", "--plain", "-n", "1", folder=tmp_path) as top:
        assert top.wait() == 0
        assert b"\x1b" not in top.written
    done = run("top", folder=tmp_path / "run")
    assert done.returncode == 69
    assert "no running scheduler was found" in done.stderr


def test_without_rich_there_is_one_line_that_names_the_extra(cluster, tmp_path):
    (tmp_path / "rich.py").write_text("raise ImportError('no rich')\n")
    with terminal("top", folder=tmp_path) as top:
        assert top.wait() == 2
        screen = top.read().replace("\n", "")
    assert "pip install 'weft[cli]'" in screen
    assert "Traceback" not in screen


def test_the_status_has_an_exit_code_for_scripts(tmp_path):
    done = run("status", folder=tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith("down: no running scheduler was found")
    assert "weft scheduler" in done.stderr
    with scheduler(folder=tmp_path) as started:
        done = run("status", folder=tmp_path)
        assert done.returncode == 1  # without workers
        assert "weft worker" in done.stdout
        with daemon("worker", "--nworkers", "1", folder=tmp_path) as workers:
            workers.wait_for("registered")
            done = run("status", folder=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            assert "1 running" in done.stdout
            view = str(tmp_path / "view.json")
            assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
            done = run("status", "--json", "--connection-file", view, folder=tmp_path)
            found = json.loads(done.stdout)
            assert (done.returncode, found["n_workers"]["running"]) == (0, 1)
            assert found["address"] == address_of(started)


@pytest.mark.parametrize("more", [(), ("--watch",), ("--json",)])
def test_a_status_that_cannot_be_asked_for_is_not_called_down(more, tmp_path):
    with scheduler("--name", "one", folder=tmp_path) as started:
        address = address_of(started)
        done = run("status", *more, folder=tmp_path, WEFT_FOO="1")
        assert (done.returncode, done.stderr.split("$")[0]) == (2, "weft: there is no setting ")
        done = run("status", *more, "foo://x", folder=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("weft: 'foo://x' is not an address")
        other = tmp_path / "other.token"
        other.write_text("0" * 64)
        other.chmod(0o600)
        done = run("status", *more, address, folder=tmp_path, WEFT_TOKEN_FILE=str(other))
        assert done.returncode == 77
        assert "did not accept our token" in done.stderr
        with scheduler("--name", "two", folder=tmp_path):
            done = run("status", *more, folder=tmp_path)
            assert done.returncode == 2
            assert done.stderr.startswith("weft: 2 schedulers were found: ")
    with socket.create_server(("127.0.0.1", 0)) as there:
        done = run("status", *more, f"tcp://127.0.0.1:{there.getsockname()[1]}", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("weft: no token was found for ")


def test_a_status_that_is_watched_outlives_the_scheduler(tmp_path):
    with scheduler("--name", "one", folder=tmp_path) as started:
        port = address_of(started).rpartition(":")[2]
        with daemon("status", "-w", "--interval", "500ms", folder=tmp_path) as watched:
            watched.wait_for("no worker", 2)
            assert started.stop() == 0
            watched.wait_for("down: ")
            with scheduler("--port", port, "--name", "one", folder=tmp_path):
                n = watched.out.count("no worker")
                watched.wait_for("no worker", n + 2)
            assert watched.stop(signal.SIGINT) == 0
            assert "Traceback" not in watched.err


def test_a_status_in_a_terminal_is_drawn_in_place(cluster, tmp_path):
    with terminal("status", "--watch", folder=tmp_path, lines=20) as watched:
        watched.wait_for("2 running", " late")
        watched.wait_until(lambda _: watched.written.count(b"\x1b[H") >= 2, "the second one")
        assert watched.read().count(" at tcp://") == 1
        watched.press("\x03")
        assert watched.wait() == 0
