"""`weft logs --follow`: which processes are asked, and real ones followed over a restart."""

from __future__ import annotations

import json
import logging
import os
import signal

import pytest

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from tests.leaks import wait_until
from weft.deploy.cli.following import Following


def test_each_process_has_its_turn_and_a_round_is_bounded():
    following = Following()
    following.update({f"id{i}": f"w{i}" for i in range(60)})
    asked = [[p.name for p in following.next_round(25)] for _ in range(3)]
    assert [len(names) for names in asked] == [25, 25, 25]
    assert {name for names in asked for name in names} == {f"w{i}" for i in range(60)}


def test_a_process_that_has_not_answered_yet_is_not_asked_again():
    following = Following()
    following.update({"a": "w-a", "b": "w-b"})
    (first, _) = following.next_round()
    first.is_asked = True
    assert [p.name for p in following.next_round()] == ["w-b"]
    first.is_asked = False
    assert {p.name for p in following.next_round()} == {"w-a", "w-b"}


def test_processes_come_and_go_and_those_that_stay_go_on_at_their_place():
    following = Following()
    assert following.update({"a": "w-a", "": "scheduler"}) == []
    following.processes["a"].since = 7
    assert following.update({"a": "w-a", "b": "w-b"}) == ["scheduler"]
    assert following.processes["a"].since == 7
    assert following.processes["b"].since is None
    following.restart("a")
    following.restart("gone")
    assert following.processes["a"].since == 0


def test_a_worker_that_is_listed_again_after_a_restart_goes_on_at_its_place():
    following = Following()
    following.update({"a": "w-a", "b": "w-b"})
    following.processes["a"].since = 7
    # A new scheduler lists the workers that have come back so far.
    assert following.update({"b": "w-b"}) == ["w-a"]
    assert following.update({"a": "w-a", "b": "w-b"}) == []
    assert following.processes["a"].since == 7


def log(text: str, level: int = logging.WARNING) -> int:
    logging.getLogger("mine").log(level, text)
    return os.getpid()


@pytest.mark.slow
def test_lines_are_followed_over_a_restart_of_the_scheduler(tmp_path):
    with (
        scheduler("--name", "one", folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--name", "w", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        client.submit(log, "before", workers="w-0", pure=False).result(60)
        with daemon("logs", "-f", "--level", "warning", "-n", "1", folder=tmp_path) as followed:
            followed.wait_for("before")
            client.submit(log, "first", workers="w-1", pure=False).result(60)
            client.submit(log, "quiet", logging.INFO, workers="w-0", pure=False).result(60)
            followed.wait_for("first")
            family = started.family()
            os.kill(family[1].pid, signal.SIGKILL)
            followed.wait_for("the connection to the scheduler is lost")
            followed.wait_for("the scheduler is back")
            client.submit(log, "second", workers="w-0", pure=False).result(60)
            followed.wait_for("second")
            lines = [line for line in followed.out.splitlines() if " mine " in line]
            assert [line.rpartition(" ")[2] for line in lines] == ["before", "first", "second"]
            assert "worker w-1 mine WARNING" in lines[1]
            assert followed.stop(signal.SIGINT) == 0
            assert "Traceback" not in followed.err


@pytest.mark.slow
def test_records_of_one_worker_are_followed_as_json(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--name", "w", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        arguments = ("logs", "-f", "-n", "0", "--json", "--worker", "w-0")
        with daemon(*arguments, folder=tmp_path) as followed:
            n = 0

            def found() -> bool:
                # The first line may come before it follows, and is one of those before then.
                nonlocal n
                n += 1
                client.submit(log, f"{n} on w-1", workers="w-1", pure=False).result(60)
                client.submit(log, f"{n} on w-0", workers="w-0", pure=False).result(60)
                return " on w-0" in followed.out

            wait_until(found, 30, "a line")
            (line, *_) = followed.out.splitlines()
            record = json.loads(line)
            assert (record["process"], record["logger"]) == ("worker w-0", "mine")
            assert "w-1" not in followed.out
        done = run("logs", "-f", "--worker", "nobody", folder=tmp_path)
        assert done.returncode == 1
        assert done.stderr.startswith("weft: no connected worker has the name")


@pytest.mark.slow
def test_a_token_that_only_reads_may_not_follow(tmp_path):
    with scheduler(folder=tmp_path):
        view = str(tmp_path / "view.json")
        assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
        done = run("logs", "-f", "--connection-file", view, folder=tmp_path)
    assert done.returncode == 2
    assert "needs a token of role client" in done.stderr


@pytest.mark.slow
def test_without_a_scheduler_there_is_nothing_to_follow(tmp_path):
    done = run("logs", "-f", folder=tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    assert "weft scheduler" in done.stderr
