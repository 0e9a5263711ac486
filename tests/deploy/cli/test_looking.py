"""`weft info`, `weft info KEY` and `weft logs` of a running cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import weft
from tests.deploy.daemons import Daemon, address_of, daemon, file_of, run, scheduler
from weft.deploy.cli.addressing import is_address
from weft.deploy.cli.log_rows import show
from weft.deploy.overview.wording import describe_task

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon, weft.Client]]:
    """A scheduler, two workers, and a client."""
    with scheduler(folder=tmp_path) as master:
        file = file_of(master)
        options = ("--nworkers", "2", "--nthreads", "1", "--name", "w")
        with (
            daemon("worker", *options, folder=tmp_path) as workers,
            weft.Client(connection_file=file, name="me") as client,
        ):
            client.wait_for_workers(2, timeout=60)
            yield master, workers, client


def log(text):
    import logging

    logging.getLogger("mine").warning(text)
    return text


def test_a_task_is_described_with_its_story(cluster, tmp_path):
    master, _, client = cluster
    future = client.submit(log, "a text", workers=["w-1"])
    assert future.result(60) == "a text"
    done = run("info", future.key, folder=tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    lines = done.stdout.splitlines()
    assert lines[0] == f"task {future.key}: memory"
    words = done.stdout.split()
    assert {"log", "w-1", "me"} <= set(words)
    assert "submitted by me" in done.stdout
    assert lines[-1].endswith("finished on w-1")
    described = run("info", address_of(master), future.key, "--json", folder=tmp_path)
    task = json.loads(described.stdout)
    assert (task["state"], task["holders"], task["wanted_by"]) == ("memory", ["w-1"], ["me"])
    assert task["story"][-1][1] == "finished on w-1"
    explained = run("explain", future.key, folder=tmp_path)
    assert explained.stdout.startswith(f"task {future.key} is finished: its result is on w-1\n")
    plain = json.loads(run("explain", future.key, "--json", folder=tmp_path).stdout)
    assert plain["times"]["run"] > 0
    key = future.key
    future.release()
    del future
    client.submit(abs, 1).result(60)
    forgotten = run("info", key, folder=tmp_path)
    assert forgotten.stdout.startswith(f"task {key}: forgotten\n")


def test_a_task_that_finds_no_worker_is_explained(cluster, tmp_path):
    _, _, client = cluster
    future = client.submit(abs, 1, workers="nowhere", key=("x", 0))
    client.submit(abs, 2).result(60)
    done = run("info", "('x', 0)", folder=tmp_path)
    assert done.stdout.startswith("task ('x', 0): no_worker\n")
    assert "no connected worker is named nowhere; there are w-" in done.stdout
    future.release()


def test_an_unknown_task_is_one_line(cluster, tmp_path):
    done = run("info", "nothing", folder=tmp_path)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith("weft: the scheduler knows no task 'nothing': ")
    assert len(done.stderr.splitlines()) == 1
    done = run("explain", "nothing", folder=tmp_path)
    assert "knows no task 'nothing'" in done.stderr
    done = run("explain", "one", "two", folder=tmp_path)
    assert done.stderr == "weft explain: one key is expected, not 2: one two\n"
    done = run("explain", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "weft explain: which task? Give its key: weft explain KEY\n"
    done = run("info", "one", "two", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "weft info: one key is expected, not 2: one two\n"


def test_logs_of_all_processes_are_merged_by_time(cluster, tmp_path):
    _, _, client = cluster
    client.submit(log, "first", workers=["w-0"]).result(60)
    client.submit(log, "second", workers=["w-1"]).result(60)
    done = run("logs", folder=tmp_path)
    assert (done.stderr, done.returncode) == ("", 0)
    lines = done.stdout.splitlines()
    (first,) = [i for i, line in enumerate(lines) if line.endswith("WARNING: first")]
    (second,) = [i for i, line in enumerate(lines) if line.endswith("WARNING: second")]
    assert first < second
    assert "worker w-0 mine WARNING" in lines[first]
    assert any(" scheduler weft.scheduler INFO: " in line for line in lines)
    records = json.loads(run("logs", "--json", "-n", "1", folder=tmp_path).stdout)
    assert [(r["process"], r["text"]) for r in records] == [("worker w-1", "second")]
    only = run("logs", "--worker", "w-0", folder=tmp_path).stdout
    assert "first" in only
    assert "second" not in only
    assert "weft.scheduler" not in only


def test_logs_name_workers_that_do_not_exist_or_do_not_answer(cluster, tmp_path):
    _, _, client = cluster
    done = run("logs", "--worker", "nobody", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(
        "weft: no connected worker has the name, address or host 'nobody'"
    )
    found = client.scheduler_info()["workers"].values()
    (hanging,) = [psutil.Process(w["pid"]) for w in found if w["name"] == "w-0"]
    hanging.suspend()
    try:
        done = run("logs", folder=tmp_path)
    finally:
        hanging.resume()
    assert done.returncode == 1
    assert done.stderr == "weft logs: worker w-0: it did not answer within 10 s\n"
    assert "worker w-1" in done.stdout


def test_a_viewer_may_look_at_tasks_and_not_at_logs(cluster, tmp_path):
    _, _, client = cluster
    future = client.submit(abs, -1)
    future.result(60)
    file = tmp_path / "view.json"
    assert run("token", "--role", "view", "--output", str(file), folder=tmp_path).returncode == 0
    option = ("--connection-file", str(file))
    assert run("info", future.key, *option, folder=tmp_path).returncode == 0
    done = run("logs", *option, folder=tmp_path)
    assert done.returncode == 2
    assert "needs a token of role client, and this one is of role view" in done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://host:8786", True),
        ("unix:///run/s.sock", True),
        ("localhost:8786", True),
        ("[::1]:8786", True),
        ("inc-0123abcd", False),
        ("('x', 0)", False),
        ("a:b", False),
        ("s3://bucket/object", False),
    ],
)
def test_addresses_are_distinguished_from_keys(text, expected):
    assert is_address(text) is expected


def test_a_description_leaves_out_what_a_task_does_not_have():
    task = {
        "key": "t",
        "state": "waiting",
        "why": "it needs a (processing)",
        "function": "f",
        "worker": "",
        "nbytes": None,
        "holders": [],
        "n_holders": 0,
        "inputs": ["a"],
        "n_inputs": 3,
        "dependents": [],
        "n_dependents": 0,
        "wanted_by": [],
        "restrictions": "any worker",
        "span": ["nightly", "load"],
        "attempts": [["w-1", "the worker died: signal SIGKILL"]],
        "story": [[1.5, "submitted by me"]],
    }
    assert describe_task(task).splitlines() == [
        "task t: waiting",
        "  why            it needs a (processing)",
        "  function       f",
        "  inputs         a and 2 more",
        "  may run on     any worker",
        "  in span        nightly, load",
        "  attempt        on w-1: the worker died: signal SIGKILL",
        "      1.500 s ago  submitted by me",
    ]


def test_a_line_of_the_log_names_the_process():
    line = show((0.25, "worker w", "INFO", "weft.worker", "it works"))
    assert line.endswith(",250 worker w weft.worker INFO: it works")


def test_blocked_workers_are_shown_with_the_reason(cluster, tmp_path):
    done = run("block", "w-0", "--reason", "its disk is full", folder=tmp_path)
    assert (done.stdout, done.stderr) == ("1 connected worker is blocked\n", "")
    shown = run("info", folder=tmp_path).stdout.splitlines()
    assert [line for line in shown if line.startswith("no tasks")] == [
        "no tasks  w-0: blocked by weft block: its disk is full"
    ]
    assert "no problem is known" in run("status", folder=tmp_path).stdout
    run("block", "w-1", folder=tmp_path)
    shown = " ".join(run("status", folder=tmp_path).stdout.split())
    assert "2 workers are blocked and there is no other, so no task begins" in shown
    assert "no problem is known" not in shown
    run("unblock", "w-0", "w-1", folder=tmp_path)
    assert "no tasks" not in run("info", folder=tmp_path).stdout


def test_a_block_of_no_worker_says_so(cluster, tmp_path):
    done = run("block", "w-7", folder=tmp_path)
    assert done.stdout == "0 connected workers are blocked\n"
    assert "no connected worker has the name, address or host 'w-7'" in done.stderr
    done = run("block", "w-0", "--for", "0", folder=tmp_path)
    assert done.returncode == 2
    assert "--for" in done.stderr
