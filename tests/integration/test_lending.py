"""Futures of one client as arguments of another one's calls."""

from __future__ import annotations

import gc
import operator
import pickle

import pytest

import weft
from weft.client.lending import Loan

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


def test_a_borrower_that_is_closed_waits_for_nothing(cluster, lender):
    with weft.Client(cluster, set_as_default=False) as borrower:
        engine = borrower._engine
        loan = Loan(engine, [])
        loan._unconfirmed[engine] = None  # no confirmation will come
        engine.post(loan)
        future = borrower.submit(inc, 1)
    assert future.status == "cancelled"


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
