"""`weft.Command` on workers: futures as inputs, ends from outside, files that are removed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]

#: Two processes, which write their numbers and go on for ever.
TWO = 'sleep 1000 & echo "$! $$ $PWD" > {0}.tmp; mv {0}.tmp {0}; wait'


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=2) as client:
        yield client


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def begun(path, wait_until):
    """Wait until `TWO` runs; return the numbers of its processes, and its folder."""
    wait_until(path.exists)
    one, two, folder = path.read_text().split()
    return [int(one), int(two)], Path(folder)


def test_commands_read_the_files_of_others(client):
    names = client.submit(lambda: "b\na\n")
    sort = weft.Command("sort names > sorted", inputs=["names"], outputs=["sorted"])
    head = weft.Command("head -n {n} sorted", inputs=["sorted"])
    first = client.submit(sort, inputs={"names": names})
    second = client.submit(head, inputs={"sorted": first}, n=1, timeout="60s")
    assert second.result(60).stdout == "a\n"
    assert (first.key[:5], second.key[:5]) == ("sort-", "head-")


def test_one_command_is_mapped_over_arguments(client):
    results = client.gather(client.map(weft.Command("echo {0}-{1}"), range(20), range(20)))
    assert [result.stdout for result in results] == [f"{i}-{i}\n" for i in range(20)]


def test_each_call_of_a_map_has_its_own_inputs_which_may_be_futures(client, tmp_path):
    texts = client.map(str.upper, ["a", "b"])
    command = weft.Command("cat in", stdout=tmp_path / "out-{0}", inputs=["in"])
    results = client.gather(client.map(command, range(2), [{"in": text} for text in texts]))
    assert [(tmp_path / f"out-{i}").read_text() for i in range(2)] == ["A", "B"]
    assert all(result.worker for result in results)


def test_a_future_inside_a_command_is_an_error_that_says_where_it_belongs(client):
    name = client.submit(lambda: "a")
    with pytest.raises(weft.SerializationError, match="pass it as an argument of the call"):
        client.submit(weft.Command("cat a", inputs={"a": name}))


def test_a_failure_reaches_the_client_with_what_was_printed(client):
    with pytest.raises(weft.CommandFailed, match=r"exit code 7.*\nno such thing"):
        client.submit(weft.Command("echo no such thing >&2; exit 7")).result(60)


def test_a_command_that_is_cancelled_ends_with_all_its_processes_and_files(
    client, tmp_path, wait_until
):
    future = client.submit(weft.Command(TWO), tmp_path / "pids")
    pids, folder = begun(tmp_path / "pids", wait_until)
    future.cancel(running=True)
    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: not folder.exists())
    wait_until(lambda: future.attempts() and "ended" in str(future.attempts()[-1]))
    assert "its process was ended" not in str(future.attempts()[-1])


def test_a_command_that_runs_for_too_long_ends_with_all_its_processes(client, tmp_path, wait_until):
    future = client.submit(weft.Command(TWO), tmp_path / "pids", timeout=1)
    pids, _ = begun(tmp_path / "pids", wait_until)
    with pytest.raises(weft.TaskTimedOut):
        future.result(60)
    wait_until(lambda: not any(map(is_alive, pids)))


def test_nothing_is_left_of_a_command_whose_worker_is_killed(client, tmp_path, wait_until):
    pid = client.submit(os.getpid, pure=False).result(60)
    future = client.submit(weft.Command(TWO), tmp_path / "pids")
    pids, folder = begun(tmp_path / "pids", wait_until)
    (tmp_path / "pids").unlink()
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, pids)))
    wait_until(lambda: not folder.exists())
    pids, _ = begun(tmp_path / "pids", wait_until)  # it runs again
    future.cancel(running=True)
    wait_until(lambda: not any(map(is_alive, pids)))
