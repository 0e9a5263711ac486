"""The limits of a worker: its memory, how long it looks for its scheduler, final refusals. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..protocol.errors import (
    ConfigError,
    HandshakeError,
    LocalProtocolError,
    WeftError,
    WrongCluster,
    WrongToken,
)
from ..protocol.wire.session import Outage, Policy

#: A worker above this part of its memory limit is killed.
TERMINATE_FRACTION: Final = 0.95
#: Time for which a mismatch of token or cluster counts as a restart of the scheduler in progress.
_RESTART_S = 10.0


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
