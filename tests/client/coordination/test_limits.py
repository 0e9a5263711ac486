"""`weft.limit`: what it takes and refuses, in blocking and asynchronous clients and in tasks."""

from __future__ import annotations

import pickle
import threading

import pytest

import weft
from weft.worker.core import seats
from weft.worker.slots import executor


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=4, processes=False) as client:
        yield client


_lock = threading.Lock()
_now: list[int] = []
_most: list[int] = []


def use(i):
    with weft.limit("api", 2):
        with _lock:
            _now.append(i)
            _most.append(len(_now))
        with _lock:
            _now.remove(i)
    return i


@pytest.mark.shares_resources  # the threads of tasks that wait stay with the worker
def test_tasks_share_a_limit_and_give_their_threads_up_meanwhile(client):
    assert client.gather(client.map(use, range(30), pure=False)) == list(range(30))
    assert 1 <= max(_most) <= 2


@pytest.mark.shares_resources
def test_more_tasks_than_may_wait_share_a_limit(client, monkeypatch):
    monkeypatch.setattr(seats, "MANY_BLOCKED", 4)
    monkeypatch.setattr(seats, "MORE_BLOCKED", 2)
    monkeypatch.setattr(executor, "MAX_BLOCKED", 10)
    _most.clear()
    assert client.gather(client.map(use, range(60), pure=False)) == list(range(60))
    assert max(_most) <= 2


def test_a_rate_is_kept_and_a_limit_travels_by_name(client):
    slow = weft.limit("slow", per_s=0.001, client=client)
    again = pickle.loads(pickle.dumps(slow))
    assert (again.name, again.at_once, again.per_s) == ("slow", None, 0.001)
    with slow:
        assert again.acquire(timeout=0) is False
    assert slow.acquire(timeout=0) is False


def test_the_holder_of_all_places_does_not_wait_for_itself(client):
    with weft.limit("one", 1) as held, pytest.raises(weft.AlreadyHeld, match="limit 'one'"):
        held.acquire()
    with pytest.raises(weft.NotHeld, match="limit 'one'"):
        held.release()


def test_other_numbers_are_refused(client):
    with (
        weft.limit("same", 3, per_s=1.5),
        pytest.raises(weft.OtherLimit, match="is 3 at once"),
        weft.limit("same", 3),
    ):
        pass


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"name": "x"}, ValueError, "needs a number"),
        ({"name": None, "at_once": 1}, TypeError, "has a name"),
        ({"name": 3, "at_once": 1}, TypeError, "is a str"),
        ({"name": "", "at_once": 1}, ValueError, "characters"),
        ({"name": "x", "at_once": 0}, ValueError, "at_once= is from 1"),
        ({"name": "x", "at_once": -1}, ValueError, "at_once= is from 1"),
        ({"name": "x", "at_once": 1.5}, TypeError, "at_once= is an int"),
        ({"name": "x", "at_once": True}, TypeError, "at_once= is an int"),
        ({"name": "x", "per_s": 0}, ValueError, "per_s= is from"),
        ({"name": "x", "per_s": -2}, ValueError, "per_s= is from"),
        ({"name": "x", "per_s": float("nan")}, ValueError, "per_s= is from"),
        ({"name": "x", "per_s": float("inf")}, ValueError, "per_s= is from"),
        ({"name": "x", "per_s": "1 s"}, TypeError, "per_s= is a number"),
        ({"name": "x", "per_s": True}, TypeError, "per_s= is a number"),
        ({"name": "x", "at_once": 1, "client": "c"}, TypeError, "client= is a weft.Client"),
    ],
)
def test_wrong_arguments_of_a_limit_are_refused(arguments, error, text):
    with pytest.raises(error, match=text):
        weft.limit(**arguments)


async def test_an_asynchronous_client_awaits_its_turn():
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    async with weft.Client(asynchronous=True, **options) as client:
        shared = weft.limit("later", 1, client=client)
        async with shared:
            assert await weft.limit("later", 1, client=client).acquire(timeout=0) is False
        assert await shared.acquire() is True
        await shared.release()
    with pytest.raises(weft.ClientClosed):
        await shared.acquire()
