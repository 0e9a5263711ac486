"""Results that cannot be pickled, small and large, on a whole cluster."""

from __future__ import annotations

import threading

import pytest

import weft
from weft.protocol.errors import UnpicklableResult

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, processes=False) as client:
        yield client


def with_lock(n):
    return {"ballast": bytes(n), "lock": threading.Lock()}


def result_raises(bad):
    with pytest.raises(UnpicklableResult):
        bad.result()
    return True


def check_that_it_failed(future, client):
    assert future.status == "error"
    error = future.exception()
    assert isinstance(error, UnpicklableResult)
    assert (error.key, error.type_name) == (future.key, "_thread.lock")
    with pytest.raises(UnpicklableResult):
        future.result()
    assert client.gather([future], errors="skip") == []


@pytest.mark.shares_resources
@pytest.mark.parametrize("n", [10, 300_000])
def test_each_way_of_reading_an_unpicklable_result_gives_the_same_error(client, n):
    ok = client.submit(abs, -1)
    for i, ask in enumerate(
        [
            lambda bad: client.gather([bad, ok], errors="skip") == [1],
            lambda bad: (
                [
                    str(result)
                    for _, result in weft.as_completed([bad], with_results=True, raise_errors=False)
                ]
                == [str(bad.exception())]
            ),
            result_raises,
        ]
    ):
        bad = client.submit(with_lock, n + i)
        assert ask(bad)
        check_that_it_failed(bad, client)


@pytest.mark.shares_resources
def test_a_large_unpicklable_result_can_be_used_on_its_worker(client):
    bad = client.submit(with_lock, 300_000)
    assert client.submit(lambda d: len(d["ballast"]), bad).result(20) == 300_000
    assert bad.exception() is None  # no call has fetched it
    assert client.gather([bad], errors="skip") == []
    check_that_it_failed(bad, client)
    assert client.submit(lambda d: d["lock"].locked(), bad).result(20) is False
