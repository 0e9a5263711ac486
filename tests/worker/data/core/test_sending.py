"""Which large answers go out, wait, or are passed on."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from weft.worker.data.core.sending import (
    LARGE_BYTES,
    LEAST_SENT_S,
    MAX_SENT,
    MAX_WAIT_S,
    SLOW_BYTES_PER_S,
    LargeRequest,
    Sending,
)


def asked(
    reader: str, *, key: str = "x", address: str | None = None, since: float = 0.0
) -> LargeRequest:
    where = f"tcp://{reader}" if address is None else address
    return LargeRequest(reader, 1, (key,), LARGE_BYTES, where, since)


def readers(requests: Iterable[LargeRequest]) -> list[object]:
    return [one.reader for one in requests]


def test_copies_of_one_value_go_out_one_after_the_other():
    sending = Sending()
    assert sending.ask(asked("a"), 0.0)
    assert not sending.ask(asked("b"), 0.0)
    assert sending.next(0.1) == []
    assert sending.taken("a", 1) == []
    assert readers(sending.next(0.2)) == ["b"]


def test_different_values_go_out_together_up_to_a_limit():
    sending = Sending()
    assert all(sending.ask(asked(f"r{i}", key=f"k{i}"), 0.0) for i in range(MAX_SENT))
    assert not sending.ask(asked("late", key="other"), 0.0)
    sending.taken("r0", 1)
    assert readers(sending.next(0.1)) == ["late"]


def test_half_of_those_that_wait_are_passed_on_to_a_reader_that_has_its_copy():
    sending = Sending()
    for reader in "abcdef":
        sending.ask(asked(reader), 0.0)
    passed = sending.taken("a", 1)
    assert [(one.reader, address) for one, address in passed] == [
        ("e", "tcp://a"),
        ("f", "tcp://a"),
    ]
    assert readers(sending.next(0.1)) == ["b"]
    assert readers(sending.waiting) == ["c", "d"]


def test_requests_for_other_keys_are_not_passed_on():
    sending = Sending()
    for reader in "abc":
        sending.ask(asked(reader), 0.0)
    for i in range(MAX_SENT - 1):
        sending.ask(asked(f"r{i}", key=f"k{i}"), 0.0)
    sending.ask(asked("y1", key="y"), 0.0)
    sending.ask(asked("y2", key="y"), 0.0)
    assert [one.reader for one, _ in sending.taken("a", 1)] == ["c"]


def test_a_reader_that_has_less_than_a_connection_holds_no_others_up():
    sending = Sending()
    for reader in "abc":
        sending.ask(asked(reader), 0.0)
    sending.closed("a")
    sending.closed("b")
    assert readers(sending.next(0.1)) == ["c"]


def test_a_reader_that_is_suspended_holds_others_up_for_the_time_of_a_slow_link():
    sending = Sending()
    sending.ask(asked("suspended"), 0.0)
    sending.ask(asked("b", since=0.5), 0.5)
    due = LEAST_SENT_S + LARGE_BYTES / SLOW_BYTES_PER_S
    assert sending.next_look() == pytest.approx(due)
    assert sending.next(due - 0.01) == []
    assert readers(sending.next(due)) == ["b"]
    assert sending.taken("suspended", 1) == []


def test_no_request_waits_for_longer_than_the_limit():
    sending = Sending()
    for i in range(MAX_SENT):
        one = asked(f"r{i}", key=f"k{i}")
        one.nbytes = 10**10
        sending.ask(one, 0.0)
    sending.ask(asked("b", since=1.0), 1.0)
    assert sending.next_look() == 1.0 + MAX_WAIT_S
    assert readers(sending.next(1.0 + MAX_WAIT_S)) == ["b"]


@pytest.mark.parametrize(("n", "most"), [(1, 1), (3, 2), (7, 3), (8, 4), (31, 5), (100, 7)])
def test_a_value_is_at_n_workers_after_the_logarithm_of_n_rounds(n, most):
    """In each round every holder sends one copy, and all of them are acknowledged."""
    nodes = {"holder": Sending()}
    going = [(f"r{i}", "holder") for i in range(n)]
    rounds = 0
    while going or any(node.sent or node.waiting for node in nodes.values()):
        while going:
            reader, holder = going.pop(0)
            nodes[holder].ask(asked(reader, address=reader), float(rounds))
        sent = [(name, one) for name, node in nodes.items() for one in node.sent]
        rounds += 1
        for name, one in sent:
            nodes[str(one.reader)] = Sending()
            going += [(str(other.reader), to) for other, to in nodes[name].taken(one.reader, 1)]
            nodes[name].next(rounds * 0.01)
    assert len(nodes) == n + 1
    assert rounds <= most
