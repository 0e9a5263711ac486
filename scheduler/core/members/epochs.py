"""Epochs: the number of a scheduler's start, and which of two schedulers must give way.

The epoch of a scheduler is above that of each earlier scheduler of the cluster, so that peers and
attempts of the two are never mistaken for each other. A clock is not enough: it may be set back
between two starts. So the epoch is also above the last one on record, and above every epoch that a
peer has seen.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..actions import Action
from ..records.presence import Members

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Distance from a known epoch where the clock is behind it: how long that scheduler ran is unknown
#: then, and this leaves room for the attempts of a month at full speed.
STEP_NS: Final = 10**14
#: Least time between two `KeepMembers`.
KEEP_MEMBERS_S: Final = 1.0


@dataclass(slots=True)
class KeepMembers(Action):
    """An action: keep the present members for the next epoch; put out once per second at most."""

    members: Members


@dataclass(slots=True)
class StartOver(Action):
    """An action: begin again with an epoch above this one; all peers connect anew."""

    seen: int


@dataclass(slots=True)
class GiveWay(Action):
    """An action: end this process at once, because another scheduler has taken over."""

    seen: int


def note_members(state: SchedulerState) -> None:
    """Let the members be put out soon: a worker or client has come or gone."""
    if state.kept_members.due is None:
        delay_s = max(state.kept_members.at + KEEP_MEMBERS_S - state.now, 0.0)
        state.kept_members.due = state.call_after(delay_s, _keep_members)


def _keep_members(state: SchedulerState) -> None:
    state.kept_members.due = None
    state.kept_members.at = state.now
    workers = dict.fromkeys(state.workers_by_id)
    # One in tasks comes back later than its worker, and may hold locks as well.
    clients = dict.fromkeys(state.clients)
    if state.awaits_peers:
        # Another start may follow before those that are expected are back.
        workers.update(dict.fromkeys(state.kept_members.expected.worker_ids))
        clients.update(dict.fromkeys(state.kept_members.expected.client_ids))
    state.after.append(KeepMembers(Members(tuple(workers), tuple(clients))))


def proof_of(key: bytes, epoch: int) -> str:
    """Return the proof that a scheduler of the cluster had this epoch; "" without a key.

    Peers get it with the welcome and show it to the next scheduler. Only schedulers have the key,
    so no worker can make a scheduler give way to one that there never was.
    """
    return hmac.digest(key, b"epoch %d" % epoch, "sha256").hex() if key else ""


def is_proved(key: bytes, epoch: int, proof: str) -> bool:
    """Return whether a peer has shown that there was this epoch; without a key it is believed."""
    return not key or hmac.compare_digest(proof.encode(), proof_of(key, epoch).encode())


def next_epoch(clock_ns: int, *known: int) -> int:
    """Return the epoch of a scheduler that starts now, when these epochs are known.

    Two starts that know the same epoch differ by what their clocks show: peers of the one would
    take the other for the same scheduler, and leave out what only that one knew.
    """
    highest = max(known, default=0)
    return clock_ns if clock_ns > highest else highest + STEP_NS + clock_ns % STEP_NS


def is_from_the_future(seen: int, epoch: int, age_s: float) -> bool:
    """Return whether an epoch lies ahead of the clock of a scheduler that began at `epoch`.

    One that is ahead by a whole step was made by a scheduler that started over above this one. So
    of two schedulers that meet each other's peers, one starts over at most, and the other one gives
    way to it: its epoch is at least a step above that of the other one.
    """
    return age_s * 1e9 < seen - epoch < STEP_NS
