"""Large results, fetched from the workers that have them, and what is said if that fails."""

from __future__ import annotations

import pytest

from weft.client import as_completed
from weft.client.core.events import FetchFrom
from weft.client.core.fetching import FAST_ROUNDS, MAX_ROUNDS, THROUGH_SCHEDULER, Fetches
from weft.client.core.tasks import FutureState
from weft.client.failures import exception_of
from weft.protocol.errors import CommError
from weft.protocol.wire.messages import FetchKeys


def test_a_worker_out_of_reach_is_said_once_with_address_and_reason(client, scheduler, caplog):
    scheduler.holder = f"{scheduler.scheduler_address}.nowhere"
    futures = client.map(bytes, [100_000, 200_000])
    assert [len(part) for part in client.gather(futures, timeout=20)] == [100_000, 200_000]
    assert client.submit(bytes, 300_000).result(20) == bytes(300_000)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert scheduler.holder in record.message
    assert "cannot be fetched from it (" in record.message
    assert scheduler.n_fetches == 0


def test_a_worker_that_ends_while_nothing_is_asked_is_no_news(client, scheduler, caplog):
    found = dict(as_completed(client.map(bytes, [100_000]), with_results=True))
    assert [*found.values()] == [bytes(100_000)]
    scheduler.disappear()
    scheduler.listen()
    assert client.submit(abs, -1).result(20) == 1
    assert [r for r in caplog.records if "fetched" in r.message] == []


def test_a_result_that_nobody_passes_on_fails_with_the_reason_of_its_worker():
    fetches = Fetches()
    state = FutureState("big")
    for round_ in range(1, MAX_ROUNDS + 1):
        state.location = ("tcp://w:1", 70 << 20)
        fetches.add(state)
        fetches.issue(is_linked=True)
        if fetches.actions:
            (ask,) = fetches.actions
            assert isinstance(ask, FetchFrom)
            fetches.actions = []
            fetches.fail(ask.request, f"no route {round_}")
            fetches.issue(is_linked=True)
        (message,) = (m for m in fetches.messages if isinstance(m, FetchKeys))
        fetches.messages = []
        assert fetches.finish(message.request, [], []) == []
        if round_ >= FAST_ROUNDS:
            fetches.on_tick()
        fetches.validate()
    ((failed, failure),) = fetches.failed
    assert failed is state
    state.failure = failure
    error = exception_of(state)
    assert isinstance(error, CommError)
    assert error.address == "tcp://w:1"
    # The worker was tried again after each tick.
    assert f"(no route {MAX_ROUNDS})" in str(error)
    assert "'big'" in str(error)
    assert THROUGH_SCHEDULER not in fetches._reasons


@pytest.mark.parametrize("n", [3])
def test_reasons_are_kept_for_a_limited_number_of_workers(n, monkeypatch):
    monkeypatch.setattr("weft.client.core.fetching._MAX_REASONS", n)
    fetches = Fetches()
    for i in range(3 * n):
        state = FutureState(f"k{i}")
        state.location = (f"tcp://w:{i}", 1)
        fetches.add(state)
        fetches.issue(is_linked=False)
        fetches.fail(fetches.actions.pop().request, "no route")
        fetches.validate()
    assert len(fetches._reasons) <= n
