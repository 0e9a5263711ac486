"""Tasks on worker processes that submit tasks, wait for them, and end at any time."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

import weft
from weft.client.core.tasks import TaskRecord
from weft.protocol.wire.options import TaskOptions

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        yield client


def count_down(n):
    return weft.get_client().submit(count_down, n - 1).result() + 1 if n else 0


def test_tasks_that_wait_for_each_other_thirty_deep_end(client):
    assert client.submit(count_down, 30).result(60) == 30


async def count_down_by(n, how):
    if not n:
        return 0
    client = weft.get_client()
    future = client.submit(count_down_by, n - 1, how)
    if how == "await":
        return await future + 1
    if how == "gather":
        return (await client.gather([future], asynchronous=True))[0] + 1
    if how == "timeout":
        return await asyncio.wait_for(future, 60) + 1
    completed = weft.as_completed([future], with_results=True)
    return (await anext(completed))[1] + 1


@pytest.mark.parametrize("how", ["await", "gather", "timeout", "as_completed"])
def test_coroutines_that_wait_for_each_other_end(client, how):
    assert client.submit(count_down_by, 10, how).result(60) == 10


async def await_everything():
    client = await weft.get_client()
    (future,) = client.map(abs, [-1])
    async with weft.Lock("awaited"):
        (scattered,) = await client.scatter([2])
    values = await client.gather([future, scattered]), await future.result()
    await client.close()  # does nothing: it is the client of all tasks
    async with client:
        done = await weft.wait([future])
    return values, len(done.done), await client.submit(abs, -3)


def test_in_a_coroutine_the_client_is_asynchronous(client):
    assert client.submit(await_everything).result(60) == (([1, 2], 1), 1, 3)


def submit_in_blocks():
    with weft.get_client() as client:
        first = client.submit(abs, -1).result()
    return first, weft.get_client().submit(abs, -2).result()


def test_a_block_of_the_client_of_a_task_does_not_close_it(client):
    assert client.submit(submit_in_blocks).result(60) == (1, 2)


def hold_back():
    """Let the worker find its scheduler only when the returned event is set."""
    host, may_look = weft.get_worker().host, threading.Event()
    find = host.find

    def find_later():
        assert may_look.wait(20)
        return find()

    host.find = find_later
    return may_look


def submit_before_there_is_a_connection():
    may_look = hold_back()
    future = weft.get_client().submit(abs, -3)
    status = future.status
    may_look.set()
    return status, future.result()


async def await_before_there_is_a_connection():
    may_look = hold_back()
    future = weft.get_client().submit(abs, -4)
    status = future.status
    may_look.set()
    return status, await future


def test_a_task_does_not_wait_until_its_client_is_connected():
    with weft.Client(n_workers=2, threads_per_worker=1, set_as_default=False) as client:
        first, second = client.nthreads()
        task = client.submit(submit_before_there_is_a_connection, workers=first)
        assert task.result(60) == ("pending", 3)
        task = client.submit(await_before_there_is_a_connection, workers=second)
        assert task.result(60) == ("pending", 4)


def find_nothing():
    def find():
        raise weft.ConfigError("there is none, on purpose")

    weft.get_worker().host.find = find
    client = weft.get_client()
    try:
        client.submit(abs, -3).result(60)
    except weft.WeftError as error:
        return str(error)


def test_calls_fail_if_the_client_of_tasks_finds_no_scheduler():
    with weft.Client(n_workers=1, set_as_default=False) as client:
        text = client.submit(find_nothing).result(60)
        assert "found no scheduler" in text
        assert "on purpose" in text


async def wait_for_oneself():
    return await weft.get_client().submit(wait_for_oneself)


def test_a_coroutine_that_waits_for_its_own_task_is_refused(client):
    with pytest.raises(RuntimeError, match="would wait for itself"):
        client.submit(wait_for_oneself).result(60)


async def leave_a_coroutine_behind(seen):
    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("ended")

    seen.append(asyncio.ensure_future(endless()))
    await asyncio.sleep(0)
    del seen[0]
    return seen


def test_coroutines_left_behind_are_cancelled_at_the_end_of_their_task(client):
    assert client.submit(leave_a_coroutine_behind, []).result(60) == ["ended"]


def sum_of(n, how):
    client = weft.get_client()
    futures = client.map(abs, range(n))
    if how == "gather":
        return sum(client.gather(futures))
    return sum(future.result() for future in weft.as_completed(futures))


@pytest.mark.parametrize("how", ["gather", "as_completed"])
def test_a_task_submits_a_thousand_tasks_and_reads_their_results(client, how):
    assert client.submit(sum_of, 1000, how).result(60) == 499500


def fibonacci(n):
    if n < 2:
        return n
    with weft.worker_client() as client:
        parts = client.map(fibonacci, [n - 1, n - 2], pure=False)
        return sum(client.gather(parts))


def test_a_tree_of_tasks_that_wait_ends(client):
    assert client.submit(fibonacci, 9).result(60) == 34


def submit_and_return():
    return {"later": weft.get_client().submit(abs, -7)}


def test_a_future_that_a_task_returns_is_one_of_the_reader(client):
    task = client.submit(submit_and_return, pure=False)
    later = task.result(60)["later"]
    task.release()
    assert later.result(60) == 7


def read(found):
    return found["later"].result() + 1


def test_a_future_inside_a_result_can_be_read_by_a_task(client):
    assert client.submit(read, client.submit(submit_and_return, pure=False)).result(60) == 8


def fail():
    raise ValueError("on purpose")


def fail_inside():
    weft.get_client().submit(fail).result()


def test_the_failure_of_a_task_inside_a_task_is_that_of_both(client):
    with pytest.raises(ValueError, match="on purpose"):
        client.submit(fail_inside).result(60)


def submit_large(n):
    return weft.get_client().submit(len, b"x" * n).result()


def test_a_task_submits_a_large_argument(client):
    assert client.submit(submit_large, 3 << 20).result(60) == 3 << 20


def submit_in_a_thread(find):
    found = []

    def submit():
        try:
            find().submit(abs, -1)
        except weft.NotInTask as error:
            found.append(str(error))

    weft.get_client()
    thread = threading.Thread(target=submit)
    thread.start()
    thread.join()
    return found


def get_client_in_a_thread():
    found = []

    def ask():
        try:
            weft.get_client()
        except weft.NotInTask as error:
            found.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found


def test_a_thread_that_a_task_has_started_cannot_submit():
    with weft.Client(n_workers=1, threads_per_worker=1, set_as_default=False) as client:
        (text,) = client.submit(get_client_in_a_thread).result(60)
        assert "there is no client here: in the process of a worker only tasks have one" in text
        for find in (weft.Client.current, weft.get_client):
            (text,) = client.submit(submit_in_a_thread, find, pure=False).result(60)
            assert "only a task can submit tasks from the process of a worker" in text


def submit_for(attempt):
    """Submit past the library, on behalf of any attempt."""
    inside = weft.get_client()
    engine = inside._engine
    posted = []
    engine.post_submission = posted.append
    try:
        future = inside.submit(abs, -2, pure=False)
    finally:
        del engine.post_submission
    (record,) = posted
    assert isinstance(record, TaskRecord)
    record.options = TaskOptions(attempt=attempt)
    super(type(engine), engine).post_submission(record)
    try:
        return future.result(30)
    except weft.NotPermitted as error:
        return str(error)


def test_a_submission_for_a_task_that_does_not_run_there_is_refused_and_nothing_else(client):
    text = client.submit(submit_for, 5, pure=False).result(60)
    assert "on behalf of attempt 5, which does not run on the worker that sends it" in text
    assert client.submit(count_down, 2).result(60) == 2


def hold_and_die(path):
    inside = weft.get_client()
    inside.submit(abs, -9, key="left behind").result()
    if not os.path.exists(path):
        with open(path, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return "second attempt"


def test_the_client_of_a_worker_that_is_killed_ends_and_its_task_runs_again(tmp_path):
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        task = client.submit(hold_and_die, str(tmp_path / "first"))
        assert task.result(60) == "second attempt"
