"""A task that asks for a client, or uses a future, gets an error with advice."""

from __future__ import annotations

import functools

import pytest

import weft


@pytest.mark.slow
def test_a_task_has_no_client():
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        task = client.submit(weft.Client.current)
        with pytest.raises(weft.ClientClosed, match="a task has no client: tasks cannot submit"):
            task.result(60)


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
