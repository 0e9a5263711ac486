"""Signing in without a browser: links that work once, and failed attempts."""

from __future__ import annotations

from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest

from weft.deploy.http.gate import FORGIVEN_AFTER_S, MAX_FAILED, Attempts, Gate
from weft.protocol.trust.page_access import LINK_LIFE_S, PARAMETER, PageAccess

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


def test_a_link_ends_after_an_hour_and_one_from_before_the_start_is_refused(gate, clock):
    link = access_of(clock.now)
    clock.now += LINK_LIFE_S + 1
    assert "expired" in gate.take_link(link)
    again = Gate(TOKEN, lambda: clock.now)
    assert "expired" in again.take_link(access_of(clock.now - 120))
    assert again.take_link(access_of(clock.now)) == ""


def test_used_links_are_forgotten_when_they_have_ended(gate, clock):
    for i in range(100):
        assert gate.take_link(access_of(clock.now, f"0123456789abcdef{i}")) == ""
        clock.now += 120
    assert len(gate._used) < 40


def test_links_of_others_and_from_the_future_are_refused(gate, clock):
    assert "not made by this cluster" in gate.take_link("")
    assert "not made by this cluster" in gate.take_link(access_of(clock.now)[:-2] + "AA")
    assert "future" in gate.take_link(access_of(clock.now + 120))


def test_many_failed_attempts_from_one_address_have_to_wait_and_others_do_not(clock):
    attempts = Attempts(lambda: clock.now)
    for _ in range(MAX_FAILED):
        assert attempts.wait_s("a") == 0
        attempts.note_failure("a")
    assert 0 < attempts.wait_s("a") <= FORGIVEN_AFTER_S
    assert attempts.wait_s("b") == 0
    clock.now += FORGIVEN_AFTER_S
    assert attempts.wait_s("a") == 0
    attempts.note_failure("a")
    assert attempts.wait_s("a") > 0


def test_few_addresses_are_remembered(clock):
    attempts = Attempts(lambda: clock.now)
    for i in range(5000):
        attempts.note_failure(f"address {i}")
    assert len(attempts._forgiven) == 1000
