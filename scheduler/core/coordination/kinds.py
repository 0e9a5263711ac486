"""The kinds of objects, by their names in messages."""

from __future__ import annotations

from typing import Final

from .background import BACKGROUNDS
from .count_downs import COUNT_DOWNS
from .datasets import DATASETS
from .events import EVENTS
from .leases import LIMITS, LOCKS, MULTILOCKS, SEMAPHORES
from .metadata import METADATA_KIND
from .queues import QUEUES
from .records import Blockers, Call, ObjectKind
from .topics import TOPICS
from .variables import VARIABLES

KINDS: Final[dict[str, ObjectKind]] = {
    kind.name: kind
    for kind in (
        LOCKS,
        SEMAPHORES,
        MULTILOCKS,
        LIMITS,
        EVENTS,
        COUNT_DOWNS,
        QUEUES,
        VARIABLES,
        BACKGROUNDS,
        DATASETS,
        METADATA_KIND,
        TOPICS,
    )
}


def blockers_of(call: Call) -> Blockers | None:
    """Return the owners that must let go before the turn of a call that waits comes.

    With it, whether all of them must, or one. None = it is not known which those are.
    """
    find = KINDS[call.kind].blockers
    return None if find is None or call.record is None else find(call.record, call)
