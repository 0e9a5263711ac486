"""Fixtures of the tests of connections; see transport_kit.py."""

from __future__ import annotations

from tests.protocol.transport_kit import address, log, run, stream_address

__all__ = ["address", "log", "run", "stream_address"]
