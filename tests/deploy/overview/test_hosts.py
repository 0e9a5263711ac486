"""The sums of workers by host, and the order of names."""

from __future__ import annotations

from tests.deploy.top.samples import worker
from weft.deploy.overview.hosts import by_host, natural


def test_hosts_have_the_sums_of_their_workers_and_are_in_the_order_of_their_numbers():
    workers = [
        worker(1, host="n10", n_processing=5, nbytes=7, metrics={"rss": 100, "cpu": 50}),
        worker(2, host="n10", n_processing=1, nbytes=1, metrics={"managed": 20, "rss": 30}),
        worker(3, host="n9", metrics={}),
    ]
    n9, n10 = by_host(workers)
    assert (n9["name"], n9["n_workers"], n9["n_busy"], n9["n_queued"]) == ("n9", 1, 0, 0)
    assert n9["metrics"] == {"rss": 0, "managed": 0, "cpu": 0}
    assert n10 == {
        "name": "n10",
        "n_workers": 2,
        "nthreads": 4,
        "n_busy": 3,
        "n_queued": 3,
        "n_processing": 6,
        "memory_limit": 2 * 10**10,
        "nbytes": 8,
        "metrics": {"rss": 130, "managed": 20, "cpu": 50},
    }
    assert by_host([]) == []


def test_numbers_in_names_are_compared_as_numbers():
    assert natural("w-2") < natural("w-10") < natural("x")
