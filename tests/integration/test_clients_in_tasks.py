"""A task that asks for a client, or uses a future, gets an error with advice."""

from __future__ import annotations

import pytest

import weft


@pytest.mark.slow
def test_a_task_has_no_client_and_cannot_use_a_future():
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        with pytest.raises(weft.ClientClosed, match="a task has no client: tasks cannot submit"):
            client.submit(weft.Client.current).result(60)
        future = client.submit(abs, -1)
        with pytest.raises(weft.ClientClosed, match="cannot be used inside a task: pass it as an"):
            client.submit(lambda: future.result()).result(60)


def wait_for_another_task(call):
    client = weft.Client.current()
    future = client.submit(abs, -1, pure=False)
    try:
        call(client, future)
    finally:
        future.release()


CALLS = {
    "result": lambda client, future: future.result(),
    "gather": lambda client, future: client.gather([future]),
    "wait": lambda client, future: weft.wait([future]),
    "as_completed": lambda client, future: list(weft.as_completed([future])),
    "get": lambda client, future: client.get({"x": (abs, -1)}, "x"),
}


def test_a_task_in_a_thread_of_this_program_cannot_wait_for_another_one():
    with weft.Client(processes=False, n_workers=1, threads_per_worker=1) as client:
        for name, call in CALLS.items():
            task = client.submit(wait_for_another_task, call, key=name)
            with pytest.raises(RuntimeError, match="a task cannot wait for another task"):
                task.result(60)
        assert client.submit(abs, -5).result(60) == 5


def run_in_a_client_of_its_own():
    with weft.Client(processes=False, n_workers=1, set_as_default=False) as client:
        return client.submit(abs, -6).result(60)


def test_a_task_can_wait_in_a_client_that_it_has_made():
    with weft.Client(processes=False, n_workers=1, threads_per_worker=1) as client:
        assert client.submit(run_in_a_client_of_its_own).result(60) == 6
