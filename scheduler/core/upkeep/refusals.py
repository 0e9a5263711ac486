"""What reads a refused task is refused as well, for the same reason.

A row that is refused makes no task, so it fails for its client only. Its client may have sent rows
that read it before it knew. These would fail with `DataLost`, which says nothing of the reason, and
for every client that has them, too. So the last refused keys of each client are kept.

An entry does no harm once its key is released: nothing can read it then. A submission on behalf of
an attempt that has ended is not kept: its client sends that again for another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from ....protocol.wire import messages as m
from ....protocol.wire.failure import Failure
from ..feature import Feature

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState

#: Refused keys that are kept of one client, the latest: some 200 bytes each.
MAX_KEPT: Final = 1 << 16
_NOT_PERMITTED: Final = "not-permitted"
_NONE: Final[Mapping[int, Failure]] = {}


class Refusals:
    """What was refused to each client: {client: {key: why}}, no empty ones."""

    __slots__ = ("by_client",)

    def __init__(self) -> None:
        self.by_client: dict[ClientHandle, dict[str, Failure]] = {}


def refusals_of(state: SchedulerState) -> Refusals:
    """Return what was refused to each client."""
    return state.record(Refusals)


def _refuse(
    state: SchedulerState,
    client: ClientHandle,
    message: m.SubmitTasks,
    refused: Mapping[int, Failure | None],
) -> Mapping[int, Failure]:
    """Return the rows that read what is refused to their client, now or before, and why."""
    by_client = refusals_of(state).by_client
    if (not refused and client not in by_client) or client.receive is not None:
        return _NONE
    kept = by_client.pop(client, {})
    readers: dict[int, Failure] = {}
    for row, key in enumerate(message.keys):
        kept.pop(key, None)
        failure = refused.get(row)
        if failure is None and message.dependencies and key not in state.tasks:
            names = message.dependencies[row]
            failures = (kept.get(name) for name in names if name not in state.tasks)
            failure = next((one for one in failures if one is not None), None)
            if failure is not None:
                readers[row] = failure
        if failure is not None and failure[0] != _NOT_PERMITTED and key not in state.tasks:
            kept[key] = failure
    for key in list(islice(kept, max(len(kept) - MAX_KEPT, 0))):
        del kept[key]
    if kept:
        by_client[client] = kept
    return readers


def _forget(state: SchedulerState, client: ClientHandle) -> None:
    refusals_of(state).by_client.pop(client, None)


FEATURE: Final = Feature(
    name="refusals",
    records=(Refusals,),
    refusing=(_refuse,),
    client_gone=(_forget,),
    invariants={
        "what was refused is kept of clients that are here": lambda s: [
            client
            for client, kept in refusals_of(s).by_client.items()
            if s.clients.get(client.client_id) is not client or not kept
        ],
    },
)
