"""The out-boxes of the drivers of cores notice what a test has not looked at."""

from __future__ import annotations

import pytest

from tests.outbox import nothing_else_was_sent, outboxes, rest
from weft.protocol.wire.messages import Resubmitted

__all__ = ["nothing_else_was_sent"]


def test_an_event_of_which_nothing_is_looked_at_has_no_rest():
    outboxes([1], ["a"])
    assert rest() == []


def test_the_rest_of_an_event_is_in_all_of_its_outboxes_and_is_stated_once():
    messages, _ = outboxes([1, "x"], [2.0])
    assert messages.of(str) == ["x"]
    assert rest() == ["int", "float"]
    assert rest() == []


@pytest.mark.parametrize(
    "look",
    [
        lambda out: out == [1, "x"],
        lambda out: (out,) == ([1, "x"],),
        lambda out: [*out],
        lambda out: out[:],
        lambda out: out.of(int) + out.of(str),
        lambda out: 1 in out and "x" in out,
    ],
)
def test_all_is_looked_at_where_it_is_compared_unpacked_or_found(look):
    (out,) = outboxes([1, "x"])
    assert look(out)
    assert rest() == []


@pytest.mark.parametrize(
    "look",
    [lambda out: out[0], lambda out: out[:1], lambda out: 1 in out, lambda out: next(iter(out))],
)
def test_one_item_is_looked_at_alone(look):
    (out,) = outboxes([1, "x"])
    assert look(out)
    assert rest() == ["str"]


def test_an_item_that_is_not_there_is_looked_for():
    (out,) = outboxes([1])
    assert "x" not in out
    assert out.of(str) == []
    assert rest() == ["int"]


def test_the_end_of_what_a_new_scheduler_is_sent_is_no_rest():
    (out,) = outboxes([1, Resubmitted()])
    assert out[0] == 1
