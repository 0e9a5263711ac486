"""Copies that the scheduler wants here, although no task here reads them.

Each is pinned once more than tasks here read it, until it is here or will not come.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import NO_HASH, HoldCopies
from ..copies import locate
from ..feature import WorkerFeature
from ..inputs import placeholder
from ..reports import report_replica
from ..tasks import FETCH, FLIGHT, FORGOTTEN, MEMORY, MISSING, WorkerTask
from ..transitions import AT_PEER, move

if TYPE_CHECKING:
    from ..state import WorkerState

_NAME: Final = "desired copies"
#: States of a record whose value is to come from a peer.
_ON_ITS_WAY: Final = frozenset((MISSING, FETCH, FLIGHT))


class DesiredCopies(dict[str, None]):
    """{key: None} of these copies, which are on their way."""


def _on_hold_copies(state: WorkerState, message: HoldCopies) -> None:
    """Fetch these copies.

    A key that is a task here, or is here already under another attempt, is left as it is.
    """
    desired = state.record(DesiredCopies)
    hashes = message.spec_hashes or repeat(NO_HASH)
    columns = message.keys, message.attempts, message.nbytes, message.holders
    for key, attempt, nbytes, holders, spec_hash in zip(*columns, hashes, strict=False):
        record = state.by_key.get(key)
        if record is None:
            record = placeholder(state, key)
        elif record.state == MEMORY and record.attempt == attempt:
            report_replica(state.to_scheduler, record)
            continue
        elif record.state not in _ON_ITS_WAY:
            continue
        if key not in desired:
            desired[key] = None
            record.pins += 1
        if record.state == MISSING or (record.state == FETCH and record.attempt != attempt):
            locate(state, record, attempt, nbytes, holders, spec_hash)
            record = state.by_key[key]
        if record.state in {MISSING, MEMORY}:
            _settle(state, record, True)
    state.set_busy(_NAME, bool(desired))


def _settle(state: WorkerState, record: WorkerTask, forget: bool) -> None:
    """Take back the pin of a copy that is here, or will not be."""
    desired = state.record(DesiredCopies)
    if record.key not in desired or state.by_key.get(record.key) is not record:
        return
    del desired[record.key]
    state.set_busy(_NAME, bool(desired))
    record.pins -= 1
    if forget and not record.pins and record.state in _ON_ITS_WAY:
        move(state, record, FORGOTTEN)


def _end(state: WorkerState) -> None:
    for key in list(state.record(DesiredCopies)):
        _settle(state, state.by_key[key], True)


def _pinned(state: WorkerState) -> Iterable[WorkerTask]:
    desired = state.record(DesiredCopies)
    return (state.by_key[key] for key in desired if key in state.by_key)


FEATURE: Final = WorkerFeature(
    name=_NAME,
    records=(DesiredCopies,),
    messages={HoldCopies: _on_hold_copies},
    invariants={
        "desired copies are on their way": lambda state: (
            key
            for key in state.record(DesiredCopies)
            if key not in state.by_key or state.by_key[key].state not in AT_PEER
        ),
    },
    pins=(_pinned,),
    settled=((_NAME, _settle),),
    ending=(_end,),
)
