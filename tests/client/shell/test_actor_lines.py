"""The lines to actors, between the threads that call and the loop that sends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from weft.client.shell.actor_lines import _ActorLine


def test_a_signal_while_the_loop_is_woken_lets_later_calls_wake_it():
    woken = []

    def interrupted(_flush):
        loop.call_soon_threadsafe = woken.append
        raise KeyboardInterrupt

    loop = SimpleNamespace(call_soon_threadsafe=interrupted)
    line = SimpleNamespace(loop=loop, _is_woken=False, _flush="flush")
    with pytest.raises(KeyboardInterrupt):
        _ActorLine.wake(line)
    _ActorLine.wake(line)
    _ActorLine.wake(line)
    assert woken == ["flush"]
