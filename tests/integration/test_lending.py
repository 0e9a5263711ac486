"""Futures of one client as arguments of another one's calls."""

from __future__ import annotations

import asyncio
import gc
import operator
import pickle

import pytest

import weft
from weft.client.core import foreign_keys

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


@pytest.fixture(scope="module")
def cluster():
    with weft.LocalCluster(n_workers=2, threads_per_worker=1) as cluster:
        yield cluster


@pytest.fixture
def lender(cluster):
    with weft.Client(cluster) as client:
        yield client


@pytest.fixture
def borrower(cluster):
    with weft.Client(cluster, set_as_default=False) as client:
        yield client


def inc(x):
    return x + 1


def test_a_call_waits_for_the_submission_of_a_future_of_another_client(lender, borrower):
    for n in range(100):
        assert borrower.submit(inc, lender.submit(inc, n)).result(30) == n + 2


def test_a_call_waits_for_a_map_of_another_client(lender, borrower):
    for start in range(0, 10_000, 1000):
        futures = lender.map(inc, range(start, start + 500))
        total = borrower.submit(sum, futures)
        more = borrower.map(operator.add, futures[-3:], futures[-3:])
        nested = borrower.submit(inc, total)
        assert total.result(30) == sum(range(start + 1, start + 501))
        assert borrower.gather(more, timeout=30)[-1] == 2 * (start + 500)
        assert nested.result(30) == total.result(30) + 1


def test_a_borrowed_future_may_be_released_at_once(lender, borrower):
    for n in range(100):
        future = lender.submit(inc, n, pure=False)
        other = borrower.submit(inc, future, pure=False)
        future.release()
        del future
        assert other.result(30) == n + 2


def test_clients_that_borrow_from_each_other_go_on(lender, borrower):
    for start in range(20):
        future = lender.submit(inc, start, pure=False)
        for _ in range(10):
            future = borrower.submit(inc, future, pure=False)
            future = lender.submit(inc, future, pure=False)
        assert future.result(30) == start + 21


def test_borrowed_futures_are_given_back(lender, borrower, wait_until):
    future = lender.submit(inc, 1)
    assert borrower.submit(inc, future).result(30) == 3
    del future
    gc.collect()
    wait_until(lambda: not lender.futures)


def test_a_large_argument_is_shared_beside_a_borrowed_future(lender, borrower):
    large = bytes(3 << 20)
    for n in range(5):
        future = lender.submit(inc, n)
        assert borrower.submit(lambda a, b: (len(a), b), large, future).result(30) == (
            3 << 20,
            n + 1,
        )


def test_a_failure_of_the_other_client_arrives(lender, borrower):
    with pytest.raises(ZeroDivisionError):
        borrower.submit(inc, lender.submit(operator.truediv, 1, 0)).result(30)


def test_a_pickled_future_is_known_where_it_arrives(lender, borrower):
    for n in range(50):
        future = lender.submit(inc, n, pure=False)
        with borrower.as_current():
            copy = pickle.loads(pickle.dumps(future))
        assert copy.client is borrower
        assert copy.result(30) == n + 1


async def test_a_borrower_that_is_closed_waits_for_nothing(cluster):
    async with weft.Client(cluster, asynchronous=True, set_as_default=False) as lender:
        with weft.Client(cluster, set_as_default=False) as borrower:
            # This blocks the lender's event loop, so that it cannot confirm anything.
            future = borrower.submit(inc, lender.submit(inc, -2000))
        assert future.status == "cancelled"


async def test_a_lender_that_is_blocked_holds_up_the_call_alone(cluster, borrower):
    async with weft.Client(cluster, asynchronous=True, set_as_default=False) as lender:
        # Until the first `await` the lender's event loop does nothing.
        call = borrower.submit(inc, lender.submit(inc, -3000))
        reader, *_ = borrower.map(operator.add, [call, 5], [1, 1])
        assert borrower.submit(inc, 10).result(30) == 11
        dropped = borrower.submit(inc, call, pure=False)
        dropped.release()
        cancelled = borrower.submit(operator.sub, call, 1)
        borrower.cancel(cancelled)
        assert call.status == reader.status == "pending"
        assert [await call, await reader] == [-2998, -2997]
        assert cancelled.status == "cancelled"


async def test_a_call_fails_if_the_lender_never_confirms(cluster, borrower, monkeypatch):
    monkeypatch.setattr(foreign_keys, "LOAN_TIMEOUT_S", 0.0)
    async with weft.Client(cluster, asynchronous=True, set_as_default=False) as lender:
        call = borrower.submit(inc, lender.submit(inc, -4000))
        reader = borrower.submit(inc, call)
        with pytest.raises(weft.ForeignFuture, match="did not confirm within 10 s"):
            reader.result(30)
        assert borrower.submit(inc, lender.submit(inc, -4000)).status == "pending"


async def test_a_future_that_the_scheduler_has_is_borrowed_without_its_client(
    cluster, borrower, wait_until
):
    async with weft.Client(cluster, asynchronous=True, set_as_default=False) as lender:
        future = lender.submit(inc, -4500, resources={"absent": 1})
        await asyncio.to_thread(wait_until, lambda: lender._engine.is_confirmed)
        call = borrower.submit(inc, future)
        borrower._engine.settle()
        assert not borrower._engine.core.waiting
        call.cancel()
        await future.cancel()


def test_a_lender_whose_event_loop_has_ended_is_not_waited_for(cluster, borrower):
    async def leave():
        lender = await weft.Client(cluster, asynchronous=True, set_as_default=False)
        future = lender.submit(inc, -5000)
        lender._engine.link.abort()
        return lender, future

    lender, future = asyncio.run(leave())
    with pytest.raises(weft.DataLost):
        borrower.submit(inc, future).result(30)
    with pytest.raises(weft.ClientClosed):
        asyncio.run(lender.gather(future))
    lender._closing()


def test_a_lender_is_closed_after_the_calls_that_borrow_from_it_were_sent(cluster, borrower):
    for n in range(20):
        with weft.Client(cluster, set_as_default=False) as lender:
            call = borrower.submit(inc, lender.submit(inc, n, pure=False), pure=False)
        assert call.result(30) == n + 2


def test_a_lender_that_is_closed_is_not_waited_for(cluster, borrower):
    with weft.Client(cluster, set_as_default=False) as lender:
        future = lender.submit(inc, -1000)
    error = borrower.submit(inc, future).exception(30)
    assert isinstance(error, weft.DataLost)
    assert "its client was closed" in str(error)
    assert "submit its call again" in str(error)


async def test_asynchronous_clients_lend_too(cluster):
    async with (
        weft.Client(cluster, asynchronous=True, set_as_default=False) as a,
        weft.Client(cluster, asynchronous=True, set_as_default=False) as b,
    ):
        for n in range(50):
            assert await b.submit(inc, a.submit(inc, n)) == n + 2


def test_a_future_of_another_cluster_is_refused_by_the_call(lender):
    with weft.LocalCluster(n_workers=1, processes=False) as other, weft.Client(other) as client:
        future = lender.submit(inc, 1)
        with pytest.raises(weft.ForeignFuture, match="give its result"):
            client.submit(inc, future)
        with pytest.raises(ValueError, match="belongs to the cluster at"):
            client.map(inc, [future])
        assert not client.futures
