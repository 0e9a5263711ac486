"""The features of a scheduler, in their order.

The order is that in which the hooks of one event are called:

- Clients are sent the size of the cluster before anything else.
- Gangs hold exceptions back before any feature counts them. Their places come last of what a pass
  begins with, and the memory of categories just before: by then it is known which conditions are
  met.
- Recovery comes next: what a peer of an earlier scheduler brings, and what is gone with it, is
  known before anything is decided upon it.
- Which workers a class avoids is known before a feature looks at its members.
- Sums over peers are up to date before a feature reads them.
- Memory, copies and relays look at workers and data. They come before those who talk to users
  about the same event.
- Queues of jobs come before the journal, whose jobs they may hold back, and before the limits of
  users, which count what may begin.
- Recurring jobs and arrays come before the journal, to which they hand over what is to be recorded.
  Arrays come after recovery, which has what workers bring of their rows, and after conditions,
  which these may have.
- Coordination comes before puts: what a client that is gone has shared keeps tasks alive, whose
  values are then asked of others.
- Refusals come after all that refuse tasks.
- Output, the task stream and plugins send a worker that is connected what it must know; plugins
  come last, because they may hold it back.
"""

from __future__ import annotations

from typing import Final

from ...protocol.metrics import Metric
from .actors import feature as actors
from .arrays import feature as arrays
from .avoidance import ending, moving
from .blocking import failing
from .blocking import feature as blocking
from .categories import feature as categories
from .conditions import feature as conditions
from .conditions import no_worker_limit
from .coordination import feature as coordination
from .data import bandwidths, surplus
from .data import feature as data
from .ends import attempt_ends, measured
from .feature import Feature
from .gangs import feature as gangs
from .insight import (
    cluster_size,
    cluster_totals,
    desired,
    history,
    losses,
    metrics,
    recent_failures,
    refused_workers,
    task_stream,
    timings,
)
from .insight import feature as insight
from .interruption import feature as interruption
from .job_queues import feature as job_queues
from .journal import feature as journal
from .leaving import feature as leaving
from .leaving import idle_shutdown
from .memory import feature as memory
from .output import feature as output
from .plugins import feature as plugins
from .promises import feature as promises
from .recovery import feature as recovery
from .recurring import feature as recurring
from .upkeep import (
    memory_return,
    refusals,
    running_limits,
    slow_readers,
    unsupported_versions,
    user_limits,
)
from .visitors import feature as visitors

FEATURES: Final[tuple[Feature, ...]] = (
    cluster_size.FEATURE,
    gangs.HOLDING_BACK,
    recovery.FEATURE,
    moving.FEATURE,
    ending.FEATURE,
    cluster_totals.FEATURE,
    timings.FEATURE,
    desired.FEATURE,
    losses.FEATURE,
    refused_workers.FEATURE,
    recent_failures.FEATURE,
    history.FEATURE,
    memory.FEATURE,
    bandwidths.FEATURE,
    data.COPIES,
    surplus.FEATURE,
    promises.FEATURE,
    data.RELAYS,
    interruption.FEATURE,
    recurring.FEATURE,
    conditions.FEATURE,
    no_worker_limit.FEATURE,
    job_queues.FEATURE,
    arrays.FEATURE,
    journal.FEATURE,
    actors.FEATURE,
    coordination.FEATURE,
    data.PUTS,
    data.PART_INDEXES,
    leaving.RETIRING,
    idle_shutdown.FEATURE,
    blocking.FEATURE,
    failing.FEATURE,
    insight.FEATURE,
    output.FEATURE,
    task_stream.FEATURE,
    plugins.FEATURE,
    attempt_ends.FEATURE,
    measured.FEATURE,
    gangs.FEATURE,
    slow_readers.FEATURE,
    user_limits.FEATURE,
    running_limits.FEATURE,
    categories.FEATURE,  # what has just been queued may get other memory
    refusals.FEATURE,
    memory_return.FEATURE,
    unsupported_versions.FEATURE,
    visitors.FEATURE,
)

#: Every metric of a scheduler's page that has its own declaration, by name.
METRICS: Final[dict[str, Metric]] = metrics.declared(FEATURES)
