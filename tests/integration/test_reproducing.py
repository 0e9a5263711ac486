"""`reproduce`: the call of a failed task is run in this process, with its inputs."""

from __future__ import annotations

import asyncio
import io
import os
import traceback

import pytest

import weft
from tests.leaks import wait_until

#: The connection to the worker, for large data, stays open with the client.
pytestmark = pytest.mark.shares_resources


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=2) as client:
        yield client


def divide(a, b=1, *, where=None):
    if where is not None:
        where.append(os.getpid())
    return a / b


def half(x):
    return x // 2


async def divide_later(a, b):
    return a / b


def test_a_failed_call_is_run_here_with_its_inputs(client):
    ten = client.submit(half, 20)
    failed = client.submit(divide, ten, b=client.submit(half, 1))
    assert isinstance(failed.exception(60), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError) as raised:
        failed.reproduce()
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert (frames[-1].name, frames[-1].filename) == ("divide", __file__)
    frame = raised.value.__traceback__
    while frame.tb_next is not None:
        frame = frame.tb_next
    assert frame.tb_frame.f_locals == {"a": 10, "b": 0, "where": None}


def test_inputs_that_were_released_are_computed_again(client):
    part = client.submit(half, 30, pure=False)
    failed = client.submit(divide, part, 0)
    failed.exception(60)
    key = part.key
    part.release()
    wait_until(lambda: not client.who_has([key]).get(key), timeout_s=60)
    with pytest.raises(ZeroDivisionError):
        client.recreate_error_locally(failed)


def test_the_call_that_failed_is_run_for_a_task_that_depends_on_it(client):
    failed = client.submit(divide, 1, 0)
    last = client.submit(half, client.submit(half, failed))
    last.exception(60)
    entered = []
    with pytest.raises(ZeroDivisionError):
        last.reproduce(debugger=entered.append)
    (found,) = entered
    assert found.tb_frame.f_code is divide.__code__


def test_the_call_that_failed_is_run_for_a_task_that_was_submitted_after_that(client):
    failed = client.submit(divide, 7, 0)
    failed.exception(60)
    later = client.submit(half, client.submit(half, failed))
    assert isinstance(later.exception(60), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError) as raised:
        later.reproduce()
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "divide"


class Ratio:
    def __init__(self, a, b=1):
        self.value = a / b


def test_the_object_of_an_actor_is_made_here(client):
    failed = client.submit(Ratio, client.submit(half, 14), b=0, actor=True)
    assert isinstance(failed.exception(60), ZeroDivisionError)
    with pytest.raises(ZeroDivisionError) as raised:
        failed.reproduce()
    assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "__init__"


def test_a_coroutine_function_is_run_here_although_the_event_loop_of_a_notebook_runs(client):
    failed = client.submit(divide_later, 7, 0)
    failed.exception(60)

    async def cell():
        return failed.reproduce()

    with pytest.raises(ZeroDivisionError):
        asyncio.run(cell())
    works = client.submit(divide_later, 6, 3)

    async def other_cell():
        return works.reproduce()

    assert asyncio.run(other_cell()) == 2


def test_a_call_that_does_not_fail_here_returns_its_result(client):
    where = [-1]
    done = client.submit(divide, 3, 2, where=where)
    assert done.result(60) == 1.5
    assert done.reproduce() == client.recreate_task_locally(done.key) == 1.5
    assert where == [-1]  # arguments are copies, as on a worker
    assert client.submit(divide_later, 1, 4).reproduce() == 0.25
    large = client.submit(len, b"x" * (3 << 20))
    assert large.reproduce() == 3 << 20


def test_pdb_is_entered_where_the_exception_was_raised(client, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("p a\nq\n"))
    failed = client.submit(divide, 77, 0)
    with pytest.raises(ZeroDivisionError):
        failed.reproduce(debugger=True)
    assert "77" in capsys.readouterr().out


def test_wrong_questions_for_a_call_are_refused(client):
    future = client.submit(half, 8)
    with pytest.raises(TypeError, match="debugger= is True, or a function"):
        future.reproduce(debugger="pdb")
    for wrong in (None, 3, [], [future, "x"]):
        with pytest.raises(TypeError, match="reproduce takes"):
            client.reproduce(wrong)
    with pytest.raises(weft.QuestionFailed, match="does not have the call of task 'nothing'"):
        client.reproduce("nothing")
    cancelled = client.submit(half, 9, resources={"none": 1})
    cancelled.cancel()
    with pytest.raises(weft.QuestionFailed, match="submit it again"):
        cancelled.reproduce()
    future.release()
    with pytest.raises(ValueError, match="was released"):
        future.reproduce()


async def test_an_asynchronous_client_runs_the_call_in_a_thread():
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    async with weft.Client(asynchronous=True, **options) as client:
        failed = client.submit(divide, client.submit(half, 2), 0)
        await failed.exception()
        with pytest.raises(ZeroDivisionError):
            await failed.reproduce()
        with pytest.raises(ZeroDivisionError):
            await client.recreate_error_locally(failed)
