"""Removes the files of a worker whose process has ended."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.wire.address import parse_address
from ..config import socket_path
from ..measuring.numbers import SUFFIX
from ..slots.silence import STACK_SUFFIX
from .places import Place


def remove_files(slot: Place, addresses: Sequence[str]) -> None:
    """Remove what a worker has left. `addresses` are those of the scheduler."""
    slot.record.unlink(missing_ok=True)
    for suffix in (STACK_SUFFIX, SUFFIX):
        slot.record.with_suffix(suffix).unlink(missing_ok=True)
    for address in map(parse_address, addresses):
        if address.scheme == "unix":  # a killed worker leaves its socket
            socket_path(address.host, slot.worker_id).unlink(missing_ok=True)
