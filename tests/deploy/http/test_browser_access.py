"""Signing in without a browser: links that work once, and failed attempts."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from weft.deploy.http.browser_access import MAX_DELAYED, FailedAttempts, Gate, UsedLinks
from weft.protocol.trust.page_access import PARAMETER, PageAccess
from weft.protocol.trust.page_claims import LINK_LIFE_S

TOKEN = b"the token of an admin"


def access_of(now: float, number: str = "0123456789abcdef") -> str:
    link = PageAccess(TOKEN).link("http://h/", now, number)
    return parse_qs(urlsplit(link).query)[PARAMETER][0]


@pytest.fixture
def clock():
    return SimpleNamespace(now=1e9)


@pytest.fixture
def gate(clock):
    return Gate(TOKEN, lambda: clock.now)


def test_a_link_works_once(gate, clock):
    link = access_of(clock.now)
    assert gate.take_link(link) == ""
    assert "used before" in gate.take_link(link)
    assert gate.take_link(access_of(clock.now, "another-0123456789")) == ""


def test_a_link_ends_after_ten_minutes(gate, clock):
    link = access_of(clock.now)
    clock.now += LINK_LIFE_S + 1
    assert "more than 10 minutes ago" in gate.take_link(link)


@pytest.mark.parametrize("age_s", [0, 30, 90])
def test_a_link_works_once_over_a_restart_of_the_http_process(clock, age_s):
    known, began = UsedLinks(), clock.now
    first = Gate(
        TOKEN, lambda: clock.now, began, on_used=lambda access: known.add(access, clock.now)
    )
    used, unused = access_of(clock.now), access_of(clock.now, "another-0123456789")
    assert first.take_link(used) == ""
    clock.now += age_s
    again = Gate(TOKEN, lambda: clock.now, began, UsedLinks(known.to_plain()))
    assert "used before" in again.take_link(used)
    assert again.take_link(unused) == ""


def test_a_link_from_before_the_start_of_the_scheduler_is_refused(clock):
    link = access_of(clock.now)
    clock.now += 1
    again = Gate(TOKEN, lambda: clock.now)
    assert "before the scheduler was started" in again.take_link(link)
    assert again.take_link(access_of(clock.now)) == ""


def test_used_links_are_forgotten_when_they_have_ended(gate, clock):
    for i in range(100):
        assert gate.take_link(access_of(clock.now, f"0123456789abcdef{i}")) == ""
        clock.now += 120
    assert len(gate._used.to_plain()) < 10


def test_links_of_others_and_from_the_future_are_refused(gate, clock):
    assert "not made by this cluster" in gate.take_link("")
    assert "not made by this cluster" in gate.take_link(access_of(clock.now)[:-2] + "AA")
    assert "future" in gate.take_link(access_of(clock.now + 120))


async def test_failed_attempts_are_logged_at_the_end_of_an_interval(monkeypatch, caplog):
    monkeypatch.setattr("weft.deploy.http.browser_access.LOG_INTERVAL_S", 0.05)
    failed = FailedAttempts()
    for address in "abbbc":
        failed.note(address)
    while failed._next_line is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # workload: an interval without attempts ends it
    first, second = [record.getMessage() for record in caplog.records]
    assert first.startswith("1 attempt to sign in to the pages failed, the last one from a;")
    assert second.startswith("4 attempts to sign in to the pages failed, the last one from c;")


async def test_the_end_of_the_pages_logs_what_is_left(caplog):
    failed = FailedAttempts()
    for _ in range(3):
        failed.note("a")
    failed.close()
    failed.close()
    assert [record.getMessage()[:9] for record in caplog.records] == ["1 attempt", "2 attempt"]


async def test_only_some_failed_attempts_wait_at_a_time(monkeypatch, caplog):
    failed = FailedAttempts()
    monkeypatch.setattr("weft.deploy.http.browser_access.FAILURE_DELAY_S", 3600.0)
    waiting = [asyncio.ensure_future(failed.delay("a")) for _ in range(MAX_DELAYED)]
    await asyncio.sleep(0)
    await failed.delay("a")  # does not wait
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    assert failed._n_delayed == 0
    assert len(caplog.records) == 1
    failed.close()
