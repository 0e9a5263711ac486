"""Tasks that submit tasks and wait for them; and what gets an error with advice."""

from __future__ import annotations

import asyncio
import functools
import os
import queue

import pytest

import weft


class Holder:
    def __init__(self, future):
        self.future = future

    def result(self):
        return self.future.result()


def test_a_future_inside_a_function_is_an_error_of_submit_that_names_the_variable():
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        future = client.submit(abs, -1)
        holder = Holder([future])
        for func, where in [
            (lambda: future.result(), r"variable future of function lambda"),
            (lambda: holder, r"variable holder of function lambda.future\[0\]"),
            (Holder(future).result, r"function Holder.result.__self__.future"),
            (functools.partial(max, future), r"function max.args\[0\]"),
        ]:
            for call in (client.submit, client.map):
                with pytest.raises(weft.SerializationError, match=where) as caught:
                    call(func, *([[1]] if call == client.map else []))
                assert "pass it as an argument of the call" in str(caught.value)
        assert client.submit(lambda value: value + 1, future).result(60) == 2


def wait_for_another_task(call):
    client = weft.Client.current()
    future = client.submit(abs, -1, pure=False)
    return call(client, future)


CALLS = {
    "result": lambda client, future: future.result(),
    "gather": lambda client, future: client.gather([future])[0],
    "wait": lambda client, future: weft.wait([future]).done.pop().result(),
    "as_completed": lambda client, future: next(weft.as_completed([future])).result(),
    "get": lambda client, future: client.get({"x": (abs, -1)}, "x"),
}


@pytest.fixture
def in_threads():
    with weft.Client(processes=False, n_workers=1, threads_per_worker=1) as client:
        yield client


def test_a_task_that_waits_for_another_one_gives_its_thread_to_it(in_threads):
    for name, call in CALLS.items():
        assert in_threads.submit(wait_for_another_task, call, key=name).result(60) == 1, name


def count_down(n):
    if not n:
        return 0
    return weft.Client.current().submit(count_down, n - 1).result() + 1


def test_tasks_that_wait_for_each_other_thirty_deep_end_on_one_thread(in_threads):
    assert in_threads.submit(count_down, 30).result(60) == 30


def wait_for_myself():
    return weft.Client.current().submit(wait_for_myself).result()


def test_a_task_that_waits_for_itself_fails(in_threads):
    with pytest.raises(RuntimeError, match="would wait for itself, for ever"):
        in_threads.submit(wait_for_myself).result(60)


def wait_for_my_caller(name):
    other = {"ping": "pong", "pong": "ping"}[name]
    client = weft.Client.current()
    return client.submit(wait_for_my_caller, other, key=other).result()


def hold_and_wait(lock):
    with lock:
        return weft.Client.current().submit(take, lock).result()


def take(lock):
    with lock:
        return "taken"


def test_tasks_that_wait_for_each_other_fail_and_are_named(in_threads):
    first = in_threads.submit(wait_for_my_caller, "ping", key="ping")
    with pytest.raises(weft.WaitingCycle, match=r"task 'p.ng' waits for task 'p.ng'"):
        first.result(60)
    with pytest.raises(weft.WaitingCycle, match="waits for lock 'kept', which task 'hold_and_wait"):
        in_threads.submit(hold_and_wait, weft.Lock("kept")).result(60)
    assert in_threads.submit(take, weft.Lock("kept")).result(60) == "taken"


def wait_for_my_caller_without_a_thread(name):
    weft.secede()
    other = {"ping": "pong", "pong": "ping"}[name]
    client = weft.Client.current()
    return client.submit(wait_for_my_caller_without_a_thread, other, key=other).result()


async def await_my_caller(name):
    other = {"ping": "pong", "pong": "ping"}[name]
    client = weft.get_client()
    return await client.submit(await_my_caller, other, key=other).result()


def iterate_over_my_caller(name):
    other = {"ping": "pong", "pong": "ping"}[name]
    client = weft.get_client()
    futures = [client.submit(abs, -1), client.submit(iterate_over_my_caller, other, key=other)]
    return [result for _, result in weft.as_completed(futures, with_results=True)]


async def iterate_over_my_caller_async(name):
    other = {"ping": "pong", "pong": "ping"}[name]
    client = weft.get_client()
    caller = client.submit(iterate_over_my_caller_async, other, key=other)
    futures = [client.submit(abs, -1), caller]
    return [result async for _, result in weft.as_completed(futures, with_results=True)]


@pytest.mark.parametrize(
    "call",
    [
        wait_for_my_caller_without_a_thread,
        await_my_caller,
        iterate_over_my_caller,
        iterate_over_my_caller_async,
    ],
)
def test_waits_without_a_thread_that_have_no_end_fail_as_others_do(in_threads, call):
    with pytest.raises(weft.WaitingCycle, match=r"task 'p.ng' waits for task 'p.ng'"):
        in_threads.submit(call, "ping", key="ping").result(60)
    assert in_threads.submit(abs, -5).result(60) == 5


def iterate_over_myself():
    myself = weft.get_client().submit(iterate_over_myself)
    return [future.result() for future in weft.as_completed([myself])]


def test_a_task_that_iterates_over_its_own_future_fails(in_threads):
    with pytest.raises(weft.WaitingCycle, match="would wait for itself, for ever"):
        in_threads.submit(iterate_over_myself).result(60)


#: (loop, what ends the wait of `await_my_caller_or_an_end`)
ends = queue.SimpleQueue()


async def await_my_caller_or_an_end(name):
    client = weft.get_client()
    if name == "caller":
        return await client.submit(await_my_caller_or_an_end, "called", key="called").result()
    caller = client.submit(await_my_caller_or_an_end, "caller", key="caller")
    loop = asyncio.get_running_loop()
    end = loop.create_future()
    ends.put((loop, end))
    waits = [asyncio.ensure_future(caller.result()), end]
    done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    return f"went on, {len(left)} left" if done == {end} else "its caller went on"


def test_an_await_beside_something_that_ends_it_is_no_cycle(in_threads):
    first = in_threads.submit(await_my_caller_or_an_end, "caller", key="caller")
    loop, end = ends.get(timeout=60)
    # Those of a cycle get the only thread later, and waits are looked at in the order of their age.
    with pytest.raises(weft.WaitingCycle, match=r"task 'p.ng' waits for task 'p.ng'"):
        in_threads.submit(wait_for_my_caller, "ping", key="ping").result(60)
    loop.call_soon_threadsafe(end.set_result, None)
    assert first.result(60) == "went on, 1 left"


def fail_after_a_wait():
    weft.Client.current().submit(abs, -1).result()
    raise ValueError("on purpose")


def test_a_task_may_fail_after_it_has_waited(in_threads):
    with pytest.raises(ValueError, match="on purpose"):
        in_threads.submit(fail_after_a_wait).result(60)
    assert in_threads.submit(abs, -5).result(60) == 5


def names_of_the_task():
    worker = weft.get_worker()
    return weft.get_current_task(), worker.key, worker.attempt > 0, worker.resources


def test_a_task_can_ask_what_it_is():
    with weft.Client(processes=False, n_workers=1, resources={"GPU": 2}) as client:
        task = client.submit(names_of_the_task, key=("name", 1))
        assert task.result(60) == (("name", 1), ("name", 1), True, {"GPU": 2.0})
    with pytest.raises(RuntimeError, match="works only in a task"):
        weft.get_current_task()


def secede_until(started, release, rejoins):
    weft.secede()
    weft.secede()  # does nothing more
    os.write(started, b"x")
    os.read(release, 1)
    if rejoins:
        weft.rejoin()
        weft.rejoin()
    return "done"


@pytest.mark.parametrize("rejoins", [True, False])
def test_a_task_that_secedes_lets_others_run(in_threads, rejoins):
    has_started, started = os.pipe()
    release, releases = os.pipe()
    task = in_threads.submit(secede_until, started, release, rejoins)
    os.read(has_started, 1)
    assert in_threads.submit(abs, -5).result(60) == 5
    os.write(releases, b"x")
    assert task.result(60) == "done"
    assert in_threads.submit(abs, -6).result(60) == 6
    for end in (has_started, started, release, releases):
        os.close(end)


def run_in_a_client_of_its_own():
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        return client.submit(abs, -6).result(60)


def test_a_task_can_wait_in_a_client_that_it_has_made():
    with weft.Client(processes=False, n_workers=1, threads_per_worker=1) as client:
        assert client.submit(run_in_a_client_of_its_own).result(60) == 6


def call_much(n):
    client = weft.get_client()
    futures = client.map(abs, range(n), pure=False)
    (scattered,) = client.scatter([n])
    with weft.Lock("much"):
        total = sum(client.gather(futures))
    weft.wait(futures)
    return total, scattered.result(), client.submit(count_down, 5).result(), len(client.who_has())


async def test_functions_block_in_tasks_of_an_asynchronous_client_and_coroutines_await():
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    async with weft.Client(asynchronous=True, **options) as client:
        assert (await client.submit(call_much, 10))[:3] == (45, 10, 5)
        assert await client.submit(await_much, 10) == (45, 10)


async def await_much(n):
    client = weft.get_client()
    (scattered,) = await client.scatter([n])
    return sum(await client.gather(client.map(abs, range(n)))), await scattered.result()


def test_coroutines_await_in_tasks_of_a_blocking_client(in_threads):
    assert in_threads.submit(await_much, 10).result(60) == (45, 10)
    assert in_threads.asynchronous is False


def end_the_client_of_the_program():
    with weft.get_client() as client:
        client.close()
    try:
        client.shutdown()
    except weft.NotSupported as error:
        return client.submit(abs, -7).result(), str(error)


async def await_the_end_of_the_client():
    client = weft.get_client()
    async with client:
        await client.close()
    return await client.submit(abs, -8)


def test_a_task_ends_neither_the_client_of_its_program_nor_its_own_cluster(in_threads):
    value, text = in_threads.submit(end_the_client_of_the_program).result(60)
    assert value == 7
    assert "a task cannot stop the cluster that it runs in" in text
    assert in_threads.submit(await_the_end_of_the_client).result(60) == 8
    assert in_threads.status == "running"
