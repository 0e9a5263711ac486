"""Peers that do not read: the size of the messages that wait for each, and which are cut off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire.message import Message
from ....protocol.wire.sizing import message_nbytes
from ..actions import CutOff
from ..events import SchedulerTick
from ..feature import Feature

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Bytes of the messages that may wait for a peer that does not read, as configured by default.
MAX_OUTBOX_NBYTES: Final = 256 << 20


class SlowReaders:
    """What waits for peers that do not read."""

    __slots__ = ("max_outbox_nbytes", "measured")

    def __init__(self) -> None:
        #: a peer that does not read is cut off when more than this waits for it
        self.max_outbox_nbytes = MAX_OUTBOX_NBYTES
        #: {peer: (out-box, number and bytes of the measured messages)} of peers that did not read
        self.measured: dict[int, tuple[list[Message], int, int]] = {}


def slow_readers_of(state: SchedulerState) -> SlowReaders:
    """Return what waits for peers that do not read."""
    return state.record(SlowReaders)


def _on_tick(state: SchedulerState, tick: SchedulerTick) -> None:
    for peer, reason in find_stuck(state, tick.unwritable):
        del state.outboxes[peer]
        state.before.append(CutOff(peer, reason))


def find_stuck(state: SchedulerState, unwritable: Iterable[int]) -> list[tuple[int, str]]:
    """Return the peers whose waiting messages exceed the limit, with the reason for the log.

    Args:
        state: the scheduler's.
        unwritable: the peers with an out-box whose connection takes nothing more now.
    """
    outboxes, measured = state.outboxes, slow_readers_of(state).measured
    for peer in [peer for peer, entry in measured.items() if entry[0] is not outboxes.get(peer)]:
        del measured[peer]
    stuck = []
    for peer in unwritable:
        nbytes = waiting_nbytes(state, peer)
        if nbytes > slow_readers_of(state).max_outbox_nbytes:
            stuck.append((peer, f"it does not read, and {nbytes >> 20} MiB wait for it"))
    return stuck


def waiting_nbytes(state: SchedulerState, peer: int) -> int:
    """Return the bytes of the messages that wait for a peer.

    Each message is measured once, except the last one of an out-box, which may still grow.
    """
    messages = state.outboxes.get(peer)
    if not messages:
        return 0
    measured = slow_readers_of(state).measured
    of, n, nbytes = measured.get(peer, (messages, 0, 0))
    if of is not messages:
        n = nbytes = 0
    nbytes += sum(map(message_nbytes, messages[n:-1]))
    measured[peer] = messages, len(messages) - 1, nbytes
    return nbytes + message_nbytes(messages[-1])


FEATURE: Final = Feature(
    name="slow readers",
    records=(SlowReaders,),
    invariants={
        "what is measured of an out-box lies in front of its last message": lambda s: [
            (peer, n)
            for peer, (outbox, n, _) in slow_readers_of(s).measured.items()
            if n >= len(outbox)
        ],
    },
    ticked=(_on_tick,),
)
