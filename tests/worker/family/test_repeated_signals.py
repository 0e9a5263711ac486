"""A signal that comes twice within a moment is one request."""

from __future__ import annotations

import signal

from weft.worker.family.repeated_signals import REPEAT_S, Repeats


def test_the_same_signal_counts_again_only_after_some_time():
    repeats = Repeats()
    assert not repeats.is_repeat(signal.SIGTERM, 10.0)
    assert repeats.is_repeat(signal.SIGTERM, 10.001)
    assert repeats.is_repeat(signal.SIGTERM, 10.0 + 0.9 * REPEAT_S)
    # The time counts from the first one: signals in a row do not put it off.
    assert not repeats.is_repeat(signal.SIGTERM, 10.0 + REPEAT_S)
    assert repeats.is_repeat(signal.SIGTERM, 10.1 + REPEAT_S)


def test_each_ctrl_c_counts():
    repeats = Repeats()
    assert not repeats.is_repeat(signal.SIGTERM, 10.0)
    assert not repeats.is_repeat(signal.SIGINT, 10.0)
    assert not repeats.is_repeat(signal.SIGINT, 10.1)
