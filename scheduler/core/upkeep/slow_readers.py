"""Peers that do not read: the size of the messages that wait for each, and which are cut off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ....protocol.wire.sizing import message_nbytes

if TYPE_CHECKING:
    from ..state import SchedulerState


def find_stuck(state: SchedulerState, unwritable: Iterable[int]) -> list[tuple[int, str]]:
    """Return the peers whose waiting messages exceed the limit, with the reason for the log.

    Each message is measured once, except the last one of an out-box, which may still grow.

    Args:
        state: the scheduler's.
        unwritable: the peers with an out-box whose connection takes nothing more now.
    """
    outboxes, measured = state.outboxes, state.measured
    for peer in [peer for peer, entry in measured.items() if entry[0] is not outboxes.get(peer)]:
        del measured[peer]
    stuck = []
    for peer in unwritable:
        messages = outboxes.get(peer)
        if not messages:
            continue
        _, n, nbytes = measured.get(peer, (messages, 0, 0))
        nbytes += sum(map(message_nbytes, messages[n:-1]))
        measured[peer] = messages, len(messages) - 1, nbytes
        nbytes += message_nbytes(messages[-1])
        if nbytes > state.max_outbox_nbytes:
            stuck.append((peer, f"it does not read, and {nbytes >> 20} MiB wait for it"))
    return stuck
