"""The state with which a scheduler begins, from its configuration."""

from __future__ import annotations

from ..protocol.host.versions import weft_version
from ..protocol.trust.page_claims import Claims
from ..protocol.wire.levels import hkdf_sha256
from .config import SchedulerConfig
from .core.blocking.failing import failing_hosts_of
from .core.conditions.no_worker_limit import no_worker_limit_of
from .core.features import FEATURES
from .core.insight.desired import aim_of
from .core.leaving.idle_shutdown import idle_timeout_of
from .core.records.settings import KernelSettings
from .core.state import SchedulerState
from .core.upkeep.slow_readers import slow_readers_of
from .core.upkeep.user_limits import user_limits_of
from .core.visitors.visits import visits_of


def state_of(config: SchedulerConfig, epoch: int) -> SchedulerState:
    """Return the state of a scheduler that begins with this epoch."""
    settings = KernelSettings(
        client_lease_s=config.client_lease_s,
        heartbeat_s=config.heartbeat_s,
        away_s=config.away_s,
        allowed_deaths=config.allowed_deaths,
    )
    state = SchedulerState(
        epoch,
        settings,
        features=FEATURES,
        expected=config.expected,
        # From the token of an admin: peers with another one cannot make proofs.
        epoch_key=hkdf_sha256(config.security.token, salt=b"weft epoch", info=b""),
    )
    slow_readers_of(state).max_outbox_nbytes = config.max_outbox_nbytes
    limits = user_limits_of(state)
    limits.max_nbytes, limits.max_rows = config.max_user_nbytes, config.max_user_tasks
    limits.max_running = config.max_user_running
    limits.of_users = config.limits_of_users
    no_worker_limit_of(state).seconds = config.no_worker_timeout_s
    failing_hosts_of(state).configure(config.block_after, config.block_for_s)
    idle_timeout_of(state).seconds = config.idle_timeout_s
    aim_of(state).target_s = config.target_duration_s
    visits_of(state).claims = Claims(config.security.token)
    state.facts.update({"weft": weft_version(""), **config.facts})
    return state
