"""The limits of a worker: its memory, how long it looks for its scheduler, final refusals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final

from ..protocol.errors import (
    ConfigError,
    HandshakeError,
    LocalProtocolError,
    WeftError,
    WrongCluster,
    WrongToken,
)
from ..protocol.wire.session import Outage, Policy

#: A worker above this part of its memory limit is killed, if nothing else is set.
TERMINATE_FRACTION: Final = 0.95
#: In their order.
_NAMES: Final = ("target", "spill", "pause", "terminate")
#: Time for which a mismatch of token or cluster counts as a restart of the scheduler in progress.
_RESTART_S = 10.0


@dataclass(frozen=True, slots=True)
class Fractions:
    """Parts of a worker's memory limit; 0 = off.

    Attributes:
        target: above it, as the sum of the sizes of values, values are written to disk.
        spill: the same, as the size of the process.
        pause: a process above it takes no tasks.
        terminate: a process above it is killed.
    """

    target: float = 0.6
    spill: float = 0.7
    pause: float = 0.8
    terminate: float = TERMINATE_FRACTION

    def __post_init__(self) -> None:
        """Check the order.

        Raises:
            ValueError: a later one is lower than an earlier one.
        """
        given = [(name, getattr(self, name)) for name in _NAMES if getattr(self, name)]
        for (name, value), (later, more) in pairwise(given):
            if more < value:
                raise ValueError(f"{later} = {more:g} is lower than {name} = {value:g}")


def fractions_of(options: Mapping[str, Any]) -> Fractions:
    """Return the fractions among the options of a worker process, which are plain data."""
    return Fractions(*options.get("fractions", ()))


@dataclass(slots=True, kw_only=True)
class WorkerPolicy(Policy):
    """Retry, unless the scheduler refuses this worker or belongs to another cluster."""

    soon_s: float = 30.0
    #: Failed attempts are repeated.
    reconnect: bool = True
    #: The address and the secret are looked up at each attempt.
    is_found_anew: bool = False

    def is_final(self, error: WeftError, outage: Outage, now: float) -> bool:
        """See `Policy`."""
        if not self.reconnect:
            return True
        since = outage.foreign_since
        if isinstance(error, (WrongToken, WrongCluster)) and since is not None:
            # A scheduler that replaces another one opens its port before it writes its file.
            return not self.is_found_anew or now - since >= _RESTART_S
        if outage.error is not None and type(error) in (HandshakeError, ConfigError):
            # It has results to keep. The connection file is away while a scheduler is replaced,
            # and an older scheduler that answers is about to end.
            return False
        return isinstance(error, (HandshakeError, LocalProtocolError, ConfigError))


@dataclass(frozen=True)
class Isolation:
    """How a worker isolates calls.

    Attributes:
        module: its `main` is what a child runs, with the descriptor of its socket.
        max_tasks: calls that a child runs at most.
        max_drift: bytes by which the idle child's memory may grow after its first call.
    """

    module: str
    max_tasks: float = inf
    max_drift: float = inf


def isolation_of(module: str, plain: Sequence[float] | None) -> Isolation | None:
    """Return the isolation of plain options `[max_tasks, max_drift]`; 0 = no bound, None = none."""
    if plain is None:
        return None
    max_tasks, max_drift = plain
    return Isolation(module, max_tasks or inf, max_drift or inf)
