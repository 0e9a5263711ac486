"""Tasks that run for longer than their `timeout=` allows, with real workers."""

from __future__ import annotations

import asyncio
import os
import re
import time

import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with weft.LocalCluster(n_workers=1, threads_per_worker=1) as started:
        with weft.Client(started) as client:
            client.wait_for_workers(1, timeout=60)
            # The client of tasks connects, which may take longer than the limits below.
            client.submit(set_an_event).result(60)
        yield started


def set_an_event():
    weft.Event("set").set()


def note(path, text):
    with open(path, "a") as file:
        file.write(text)


def read(path):
    return path.read_text() if path.exists() else ""


def spin(path):
    """Compute until an exception comes."""
    try:
        while True:
            sum(range(100))
    finally:
        note(path, "cleaned up ")


def look_at_the_flag(path):
    while not weft.get_worker().is_cancelled:
        time.sleep(0.01)  # workload
    note(path, "ended ")


async def await_nothing(path):
    try:
        await asyncio.sleep(600)  # workload
    finally:
        note(path, "cleaned up ")


def swallow(path):
    while True:
        try:
            while True:
                sum(range(100))
        except BaseException:
            note(path, "swallowed ")


def wait_for_nobody(path):
    try:
        weft.Event("never set").wait()
    finally:
        note(path, "woken ")


def spin_at_first(path):
    if not os.path.exists(path):
        note(path, "runs ")
        while True:
            sum(range(100))
    return "done"


def pid():
    return os.getpid()


def inc(x):
    return x + 1


def last_end(future, wait_until):
    """Return the record of the last attempt when it is complete."""
    wait_until(lambda: ";" in future.attempts()[-1].end, timeout_s=60)
    return future.attempts()[-1].end


@pytest.mark.parametrize(
    ("function", "left", "how"),
    [
        (spin, "cleaned up ", r"an exception \(TaskInterrupted\) ended it .* s later"),
        (look_at_the_flag, "ended ", "it ended by itself .* s later"),
        (await_nothing, "cleaned up ", r"an exception \(TaskInterrupted\) ended it .* s later"),
        (wait_for_nobody, "woken ", r"an exception \(TaskInterrupted\) ended it .* s later"),
    ],
)
def test_a_task_that_takes_too_long_fails_and_its_thread_is_free(
    client, tmp_path, wait_until, function, left, how
):
    path = tmp_path / "notes"
    process = client.submit(pid, pure=False).result(60)
    future = client.submit(function, str(path), timeout="500 ms")
    with pytest.raises(weft.TaskTimedOut, match=r"ran on .* for longer than its timeout=0\.5 s"):
        future.result(60)
    assert client.submit(inc, 1, pure=False).result(60) == 2
    wait_until(lambda: read(path) == left)
    assert client.submit(pid, pure=False).result(60) == process
    end = last_end(future, wait_until)
    assert re.fullmatch(f"took longer than its timeout of 0.5 s; {how}", end)


def test_a_task_that_does_not_end_costs_its_process(client, tmp_path, wait_until):
    path = tmp_path / "notes"
    process = client.submit(pid, pure=False).result(60)
    future = client.submit(swallow, str(path), timeout=0.2)
    behind = client.map(inc, range(20), pure=False)
    with pytest.raises(weft.TaskTimedOut, match="its process is ended if it goes on"):
        future.result(60)
    assert client.gather(behind) == list(range(1, 21))
    assert read(path).startswith("swallowed")
    assert client.submit(pid, pure=False).result(60) != process
    assert "; its process was ended" in last_end(future, wait_until)


def spin_and_note_the_end(path):
    try:
        while True:
            sum(range(100))
    finally:
        note(path, f"{time.monotonic()} ")


def test_a_retry_has_the_whole_time_again(client, tmp_path, wait_until):
    path = tmp_path / "ends"
    future = client.submit(spin_and_note_the_end, str(path), timeout=1, retries=1)
    with pytest.raises(weft.TaskTimedOut):
        future.result(60)
    wait_until(lambda: read(path).count(" ") == 2)
    # The time of the retry starts after the first end, so this holds on the slowest machine.
    first, second = map(float, read(path).split())
    assert second - first >= 1


def test_a_retry_of_a_task_that_took_too_long_may_finish(client, tmp_path, wait_until):
    future = client.submit(spin_at_first, str(tmp_path / "ran"), timeout=1, retries=1)
    assert future.result(60) == "done"
    wait_until(lambda: ";" in future.attempts()[0].end)
    first, second = future.attempts()
    assert first.end.startswith("took longer than its timeout of 1 s; an exception")
    assert second.end == "finished"


def test_tasks_that_end_in_time_are_not_touched(client):
    assert client.gather(client.map(inc, range(2000), timeout=30)) == list(range(1, 2001))
    assert client.get({"x": (inc, 1), "y": (inc, "x")}, "y", timeout="30 s") == 3


def test_the_time_in_the_queue_does_not_count(client):
    futures = client.map(time.sleep, [0.25] * 8, timeout=1.5, pure=False)  # workload
    assert client.gather(futures) == [None] * 8


def test_a_failed_task_can_be_run_again(client, tmp_path):
    future = client.submit(spin_at_first, str(tmp_path / "ran"), timeout=0.3)
    assert isinstance(future.exception(60), weft.TaskTimedOut)
    future.retry()
    assert future.result(60) == "done"


def test_dependents_fail_with_it(client, tmp_path):
    slow = client.submit(spin, str(tmp_path / "notes"), timeout=0.2)
    error = client.submit(inc, slow).exception(60)
    assert isinstance(error, weft.TaskTimedOut)
    assert error.key == slow.key


def test_an_explanation_says_how_long_it_has_run_of_what(client, tmp_path, wait_until):
    path = tmp_path / "notes"
    future = client.submit(look_at_the_flag, str(path), timeout=100)
    wait_until(lambda: "it has run for" in str(future.explain()))
    text = str(future.explain())
    assert re.search(r"it has run for .* of at most 100\.000 s", text)
    assert "an attempt may run for 100 s" in text
    future.cancel(running=True)
    wait_until(lambda: read(path) == "ended ")
    ended = "was cancelled; it ended by itself"
    wait_until(lambda: any(ended in end for _, end in future.attempts()))


def test_an_executor_limits_its_calls(client, tmp_path):
    with client.get_executor(timeout=0.2) as executor:
        with pytest.raises(weft.TaskTimedOut):
            executor.submit(spin, str(tmp_path / "notes")).result(60)
        assert list(executor.map(inc, range(3))) == [1, 2, 3]


def test_threads_of_the_program_are_interrupted(tmp_path, wait_until):
    path = tmp_path / "notes"
    with weft.Client(processes=False, n_workers=1, threads_per_worker=1) as client:
        future = client.submit(spin, str(path), timeout=0.2)
        with pytest.raises(weft.TaskTimedOut, match="its process is that of a program"):
            future.result(60)
        wait_until(lambda: read(path) == "cleaned up ")
        assert client.submit(inc, 1).result(60) == 2


async def test_in_an_asynchronous_client(cluster, tmp_path):
    async with weft.Client(cluster, asynchronous=True) as client:
        future = client.submit(spin, str(tmp_path / "notes"), timeout=0.2)
        with pytest.raises(weft.TaskTimedOut):
            await future


def hold_the_interpreter():
    """Match for years, in C, without letting another thread run."""
    re.match("(a+)+$", "a" * 60 + "b")


def test_a_task_that_holds_the_interpreter_lock_is_ended(client, wait_until):
    process = client.submit(pid, pure=False).result(60)
    future = client.submit(hold_the_interpreter, timeout=1)
    with pytest.raises(weft.TaskTimedOut):
        future.result(60)
    assert client.submit(pid, pure=False).result(60) != process
    assert "; its process was ended" in last_end(future, wait_until)
