"""Large results, fetched from the workers that have them, and the log lines if that fails."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from weft.client import as_completed
from weft.client.core.events import ClientTick, FetchFrom, ResultsNotFetched
from weft.client.core.features import FEATURES
from weft.client.core.fetching import FAST_ROUNDS, MAX_ROUNDS, issue, on_not_fetched, take
from weft.client.core.state import ClientState
from weft.client.core.table import FutureTable
from weft.client.core.tasks import SENT
from weft.client.core.validate import validate
from weft.client.core.watching import THROUGH_SCHEDULER, want_data
from weft.client.results.failures import exception_of
from weft.protocol.errors import CommError
from weft.protocol.wire.messages import FetchKeys


def test_a_worker_out_of_reach_is_logged_once_with_address_and_reason(client, scheduler, caplog):
    scheduler.holder = f"{scheduler.scheduler_address}.nowhere"
    futures = client.map(bytes, [100_000, 200_000])
    assert [len(part) for part in client.gather(futures, timeout=20)] == [100_000, 200_000]
    assert client.submit(bytes, 300_000).result(20) == bytes(300_000)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert scheduler.holder in record.message
    assert "cannot be fetched from it (" in record.message
    assert scheduler.n_fetches == 0


def test_many_workers_out_of_reach_are_one_warning(client, scheduler, caplog):
    caplog.set_level("INFO", "weft.client")
    for i in range(3):
        scheduler.holder = f"{scheduler.scheduler_address}.nowhere{i}"
        assert client.submit(bytes, 100_000 + i).result(20) == bytes(100_000 + i)
    lines = [r for r in caplog.records if "cannot be fetched from it (" in r.message]
    assert [r.levelname for r in lines] == ["WARNING", "INFO", "INFO"]


def test_a_worker_that_ends_while_no_request_is_open_is_not_logged(client, scheduler, caplog):
    found = dict(as_completed(client.map(bytes, [100_000]), with_results=True))
    assert [*found.values()] == [bytes(100_000)]
    scheduler.disappear()
    scheduler.listen()
    assert client.submit(abs, -1).result(20) == 1
    assert [r for r in caplog.records if "fetched" in r.message] == []


@pytest.fixture
def core():
    core = ClientState(FutureTable(nullcontext()), FEATURES)
    core.is_linked = True
    return core


def finished(core, key, address, nbytes=1):
    """Make a finished result at a worker, whose data is wanted."""
    state = core.table.states.get(key) or core.table.find_or_make(key)
    state.phase = SENT
    state.location = (address, nbytes)
    state.status = "finished"
    want_data(core, state)
    return state


def test_a_result_that_the_scheduler_does_not_relay_fails_with_the_reason_of_its_worker(core):
    for round_ in range(1, MAX_ROUNDS + 1):
        state = finished(core, "big", "tcp://w:1", 70 << 20)
        issue(core)
        if core.after:
            (ask,) = core.after
            assert isinstance(ask, FetchFrom)
            core.after = []
            on_not_fetched(core, ResultsNotFetched(ask.request, f"no route {round_}"))
            issue(core)
        (message,) = (m for m in core.to_scheduler if isinstance(m, FetchKeys))
        core.to_scheduler = []
        take(core, message.request, [], [])
        if round_ >= FAST_ROUNDS:
            core.handle(ClientTick(), 0.0)
        validate(core)
    assert state.status == "lost"
    error = exception_of(state)
    assert isinstance(error, CommError)
    assert error.address == "tcp://w:1"
    # The worker was tried again after each tick.
    assert f"(no route {MAX_ROUNDS})" in str(error)
    assert "'big'" in str(error)
    assert THROUGH_SCHEDULER not in core.unreachable_reasons


@pytest.mark.parametrize("n", [3])
def test_reasons_are_kept_for_a_limited_number_of_workers(n, core, monkeypatch):
    monkeypatch.setattr("weft.client.core.fetching.MAX_REASONS", n)
    core.is_linked = False
    for i in range(3 * n):
        finished(core, f"k{i}", f"tcp://w:{i}")
        issue(core)
        on_not_fetched(core, ResultsNotFetched(core.after.pop().request, "no route"))
        validate(core)
    assert len(core.unreachable_reasons) <= n
