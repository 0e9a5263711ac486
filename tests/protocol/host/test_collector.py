"""Pauses of the garbage collector."""

from __future__ import annotations

import gc

from weft.protocol.host.collector import paused_collector, resumed_collector


def test_the_collector_is_paused_within_a_block_and_goes_on_after_it():
    with resumed_collector():
        assert gc.isenabled()  # it was not paused
    with paused_collector():
        assert not gc.isenabled()
        with paused_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
        with resumed_collector():
            assert gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
