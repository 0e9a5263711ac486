"""`cores=` and `memory=`: tasks take threads and memory of a worker, in both kinds of clusters."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import weft
from weft.protocol.errors import InvalidAmount, NoWorker

Span = tuple[float, float]


def run(duration_s: float) -> Span:
    start = time.monotonic()
    time.sleep(duration_s)  # workload
    return start, time.monotonic()


def own_cores(cores: int, memory: int) -> tuple[int, int]:
    return cores, memory


def most(spans: list[Span], amounts: list[float]) -> float:
    """Return the largest sum of the amounts of spans that have a time in common."""
    return max(
        sum(a for (b, e), a in zip(spans, amounts, strict=True) if b <= start < e)
        for start, _ in spans
    )


@pytest.fixture(params=[False, True], ids=["threads", "processes"])
def client(request: pytest.FixtureRequest) -> Iterator[weft.Client]:
    with weft.Client(
        n_workers=1, threads_per_worker=4, memory_limit="4GB", processes=request.param
    ) as client:
        yield client


def test_no_more_cores_are_taken_than_the_worker_has_threads(client):
    wide = client.map(run, [0.05] * 4, cores=2, pure=False)
    halves = client.map(run, [0.05] * 4, cores=0.5, pure=False)
    plain = client.map(run, [0.02] * 8, pure=False)
    spans = client.gather([*wide, *halves, *plain])
    assert most(spans, [2.0] * 4 + [0.5] * 4 + [1.0] * 8) <= 4


def test_calls_without_cores_run_beside_those_that_fill_all_threads(client):
    gate = weft.Event("cores-gate", client=client)
    filling = client.map(lambda _: gate.wait(), range(4), cores=0, pure=False)
    busy = client.submit(run, 0.01, cores=4, pure=False)
    assert busy.result()
    gate.set()
    client.gather(filling)


def test_no_more_memory_is_reserved_than_the_limit(client):
    spans = client.gather(client.map(run, [0.02] * 4, memory="2GB", pure=False))
    assert most(spans, [2.0] * 4) <= 4


def test_keywords_of_a_function_of_these_names_are_given_to_it(client):
    assert client.submit(own_cores, cores=7, memory=8).result() == (7, 8)


@pytest.mark.parametrize(
    ("asked", "lacks"), [({"cores": 5}, "cores: 5"), ({"memory": "40GB"}, "memory: 37.3 GiB")]
)
def test_a_call_that_no_worker_can_ever_hold_fails_at_once_if_asked_for(client, asked, lacks):
    future = client.submit(run, 0, **asked, no_worker_timeout=0, pure=False)
    with pytest.raises(NoWorker, match=f"no worker offers {lacks}"):
        future.result()


def test_a_call_with_several_cores_that_waits_leaves_a_thread_to_what_it_waits_for(client):
    def outer() -> Span:
        return weft.get_client().submit(run, 0.01, pure=False).result()

    assert client.submit(outer, cores=4, pure=False).result()


@pytest.mark.parametrize(
    "bad",
    [
        {"cores": -1},
        {"cores": float("nan")},
        {"cores": float("inf")},
        {"cores": 0.01},
        {"cores": "many"},
        {"cores": True},
        {"memory": "8 bananas"},
        {"memory": -1},
        {"memory": float("nan")},
        {"resources": {"GPU": -1}},
        {"resources": {"GPU": float("nan")}},
        {"cores": 2, "resources": {"cores": 3}},
    ],
)
def test_an_amount_that_is_none_is_refused_at_submission(client, bad):
    with pytest.raises(InvalidAmount):
        client.submit(run, 0, **bad)
    with pytest.raises(InvalidAmount):
        client.map(run, [0], **bad)
