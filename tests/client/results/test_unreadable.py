"""Results that cannot be unpickled are errors of their futures, for each way of reading them."""

from __future__ import annotations

import pytest

from weft.client import Client, as_completed, wait
from weft.client.core.events import Operations, Unreadable
from weft.client.core.validate import validate


def _explode(_ballast):
    raise ValueError("not in this process")


class Bomb:
    """An object that can be pickled, and raises where it is unpickled."""

    def __init__(self, n):
        self.ballast = bytes(n)

    def __reduce__(self):
        return _explode, (self.ballast,)


class Full:
    """An object that raises MemoryError when it is unpickled the first time."""

    n_loads = 0

    def __reduce__(self):
        return _fill_memory, ()


def _fill_memory():
    Full.n_loads += 1
    if Full.n_loads == 1:
        raise MemoryError
    return "room"


SMALL, LARGE = 10, 100_000


@pytest.fixture(params=[SMALL, LARGE])
def bad(request, client):
    future = client.submit(Bomb, request.param)
    wait([future], 20)
    return future


def check_that_it_failed(future):
    assert future.status == "error"
    error = future.exception(20)
    assert isinstance(error, ValueError)
    assert str(error) == "not in this process"
    assert f"the result of task {future.key} could not be read here" in error.__notes__[0]
    assert error is not future.exception(20)
    frames = []
    traceback = future.traceback(20)
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert frames == ["_explode"]
    assert future.type is None
    with pytest.raises(ValueError, match="not in this process"):
        future.result(20)


def test_result_fails_a_future_whose_result_cannot_be_unpickled(bad):
    with pytest.raises(ValueError, match="not in this process"):
        bad.result(20)
    check_that_it_failed(bad)


def test_a_small_unpicklable_result_is_known_without_a_request(client):
    future = client.submit(Bomb, SMALL)
    assert isinstance(future.exception(20), ValueError)
    check_that_it_failed(future)


def test_a_large_result_is_not_fetched_to_check_whether_it_can_be_unpickled(client, scheduler):
    future = client.submit(Bomb, LARGE)
    assert future.exception(20) is None
    assert scheduler.n_fetches == 0
    assert client.gather([future], errors="skip") == []
    check_that_it_failed(future)


def test_the_type_of_an_unreadable_result_is_unknown(client):
    future = client.submit(Bomb, SMALL)
    wait([future], 20)
    assert future.type is None
    check_that_it_failed(future)


def test_gather_leaves_an_unreadable_result_out(client, bad):
    good = client.submit(abs, -1)
    assert client.gather([bad, good], errors="skip") == [1]
    check_that_it_failed(bad)
    assert client.gather({"x": [bad], "y": {good}}, errors="skip") == {"x": [], "y": {1}}
    with pytest.raises(ValueError, match="not in this process"):
        client.gather([bad, good])


def test_gather_of_containers_leaves_an_unreadable_result_out_at_once(client, bad):
    assert client.gather({"x": [bad]}, errors="skip") == {"x": []}
    check_that_it_failed(bad)


def test_gather_raises_the_error_of_an_unreadable_result(client, bad):
    with pytest.raises(ValueError, match="not in this process"):
        client.gather([client.submit(abs, -1), bad])
    check_that_it_failed(bad)


def test_as_completed_yields_the_error_of_an_unreadable_result(client, bad):
    good = client.submit(abs, -1)
    found = dict(as_completed([bad, good], with_results=True, raise_errors=False))
    assert found.pop(good) == 1
    assert [*map(str, found.values())] == ["not in this process"]
    check_that_it_failed(bad)


def test_as_completed_raises_the_error_of_an_unreadable_result(client, bad):
    completed = as_completed([bad], with_results=True)
    with pytest.raises(ValueError, match="not in this process"):
        next(completed)
    assert [*completed] == []
    check_that_it_failed(bad)


async def test_an_unreadable_result_is_an_error_in_an_asynchronous_client_too(scheduler):
    async with Client(scheduler, asynchronous=True) as client:
        for n in SMALL, LARGE:
            bad, good = client.map(Bomb, [n])[0], client.submit(abs, -1)
            assert await client.gather([bad, good], errors="skip") == [1]
            assert bad.status == "error"
            assert isinstance(await bad.exception(), ValueError)
            with pytest.raises(ValueError, match="not in this process"):
                await bad
            pairs = as_completed([bad], with_results=True, raise_errors=False)
            assert [str(error) async for _, error in pairs] == ["not in this process"]


def test_an_unreadable_result_raises_after_the_client_was_closed(scheduler):
    with Client(scheduler) as client:
        bad = client.submit(Bomb, SMALL)
        wait([bad], 20)
    assert bad.status == "finished"
    assert isinstance(bad.exception(), ValueError)
    check_that_it_failed(bad)
    assert client.gather([bad], errors="skip") == []


def test_tasks_that_depend_on_an_unreadable_result_run_nevertheless(client, bad):
    # Their workers may be able to read it: a module that is missing here may be there.
    assert isinstance(client.gather([bad], errors="skip"), list)
    assert bad.status == "error"
    assert client.submit(lambda x: len(x.ballast), bad).result(20) in (SMALL, LARGE)


def test_the_same_call_of_an_unreadable_result_is_computed_again(client, scheduler):
    bad = client.submit(Bomb, SMALL)
    assert isinstance(bad.exception(20), ValueError)
    again = client.submit(Bomb, SMALL)
    assert again.key == bad.key  # it may have been computed already
    assert isinstance(again.exception(20), ValueError)
    assert scheduler.n_runs == 2
    check_that_it_failed(bad)


def test_a_memory_error_of_unpickling_does_not_fail_the_future(client):
    Full.n_loads = 0
    future = client.submit(Full)
    with pytest.raises(MemoryError):
        future.result(20)
    assert future.status == "finished"
    assert future.result(20) == "room"


def test_a_result_that_one_thread_could_read_is_not_failed_by_another(client):
    future = client.submit(abs, -1)
    assert future.result(20) == 1
    engine, state = client._engine, future._state
    failure = ["unreadable", state.key, b"", "X", "late", "", b""]

    async def handle():
        engine.core.handle(Operations([Unreadable(state, failure)]), 0.0)
        validate(engine.core)

    client._loop_thread.run_coroutine(handle())
    assert (future.status, future.result()) == ("finished", 1)
