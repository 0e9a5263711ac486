"""The configuration of a scheduler: addresses, secrets, limits, and its predecessor's members."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..protocol.trust.security import Security
from .core.insight.desired import TARGET_S
from .core.records.presence import Members
from .core.upkeep.slow_readers import MAX_OUTBOX_NBYTES
from .journal.journal import Journal


class Keeper(Protocol):
    """Keeps what the next scheduler of the cluster needs. Called from the loop's thread."""

    def keep_epoch(self, epoch: int) -> None:
        """Store an epoch, durably: peers learn it after this.

        Raises:
            ConfigError: it cannot be stored.
        """

    def keep_members(self, members: Members) -> None:
        """Store the members of the cluster, soon, without holding up the loop."""


@dataclass(slots=True)
class SchedulerConfig:
    """The configuration of a scheduler.

    Attributes:
        addresses: addresses to listen at, e.g. `tcp://127.0.0.1:8786`; port 0 = any free one.
        security: the cluster's token, id and, for TLS, certificate.
        client_lease_s: time for which the results that a lost client wants are kept, seconds.
        handshake_timeout_s: time in which a connection must prove that it has the token.
        heartbeat_s: how often peers send a heartbeat; a peer that sends nothing for
            `wire.session.MISSED_HEARTBEATS` of these counts as dead, on either side.
        progress_timeout_s: a frame may pause this long on its way.
        max_unfinished_nbytes: memory of the incomplete frames of all peers together, beside the
            oldest of these frames.
        max_outbox_nbytes: approximate size of the messages that may wait for a peer that does not
            read, beside those that its connection has taken; then it is cut off.
        away_s: time that a worker whose connection has ended has to come back, seconds.
        target_duration_s: seconds in which as many workers as are desired would finish the work
            that is there.
        max_user_nbytes: memory that the tasks of one user may take, with their arguments; then new
            ones are refused; 0 = no limit.
        max_user_tasks: how many they may be; 0 = no limit.
        max_user_running: how many tasks of one user run at a time, more of them wait; 0 = no limit.
        limits_of_users: {name: {"memory", "tasks" or "running": the same for this user}}.
        no_worker_timeout_s: tasks fail that no connected worker could run for so long, seconds,
            unless they have a time of their own; 0 = they wait.
        block_after: a host is blocked after so many failures in a row of calls that end well on
            other hosts; 0 = none is.
        block_for_s: ... and for how long, seconds.
        idle_timeout_s: time without a task after which the cluster ends, seconds; 0 = it does not.
        facts: sent to every peer that registers.
        last_epoch: of the cluster's schedulers before this one, 0 = there was none.
        expected: the workers and clients of that epoch.
        keeper: stores the same of this one; None = nothing is kept.
        journal: records detached jobs; None = they are refused. The server closes it.
    """

    addresses: Sequence[str]
    security: Security
    client_lease_s: float = 60.0
    heartbeat_s: float = 2.0
    handshake_timeout_s: float = 5.0
    progress_timeout_s: float = 30.0
    max_unfinished_nbytes: int = 512 << 20
    max_outbox_nbytes: int = MAX_OUTBOX_NBYTES
    max_user_nbytes: int = 0
    max_user_tasks: int = 0
    max_user_running: int = 0
    limits_of_users: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    allowed_deaths: int = 3
    away_s: float = 5.0
    no_worker_timeout_s: float = 0.0
    block_after: int = 0
    block_for_s: float = 900.0
    idle_timeout_s: float = 0.0
    target_duration_s: float = TARGET_S
    facts: dict[str, Any] = field(default_factory=dict)
    last_epoch: int = 0
    expected: Members = field(default_factory=Members)
    keeper: Keeper | None = None
    journal: Journal | None = None

    def epoch_before(self) -> int:
        """Return the last epoch that is on record, here or in a journal that others use as well."""
        return max(self.last_epoch, 0 if self.journal is None else self.journal.store.last_epoch)
