"""Copies of other workers' results: the peers that may be asked for them, and their answers."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING

from ...protocol.wire.messages import (
    NO_HASH,
    AssignTasks,
    HoldersGone,
    LocatedKeys,
)
from .events import CopiesElsewhere, CopiesFetched, CopiesNotFetched, EndFetch, Fetch
from .inputs import move_waiters, note_missing, settle, wake
from .reports import report_replica
from .tasks import FETCH, FLIGHT, FORGOTTEN, MEMORY, MISSING, WorkerTask
from .transitions import move

if TYPE_CHECKING:
    from .state import WorkerState


def on_located_keys(state: WorkerState, message: LocatedKeys | AssignTasks) -> None:
    """Fetch those of the located keys that tasks of this worker need and do not have."""
    if isinstance(message, AssignTasks):
        rows = zip(
            message.located_keys,
            message.located_attempts,
            message.located_nbytes,
            message.located_holders,
            message.located_hashes or repeat(NO_HASH),
            strict=False,
        )
    else:
        hashes = message.spec_hashes or repeat(NO_HASH)
        columns = message.keys, message.attempts, message.nbytes, message.holders
        rows = zip(*columns, hashes, strict=False)
    for key, attempt, nbytes, holders, spec_hash in rows:
        record = state.by_key.get(key)
        if record is not None and (
            record.state == MISSING or (record.state == FETCH and record.attempt != attempt)
        ):
            locate(state, record, attempt, nbytes, holders, spec_hash)
            if state.busy:
                found = state.by_key[key]
                if found.state in {MISSING, MEMORY}:
                    settle(state, found)


def locate(
    state: WorkerState,
    record: WorkerTask,
    attempt: int,
    nbytes: int,
    holders: list[str],
    spec_hash: bytes,
) -> None:
    """Fetch what `record` stands for as `attempt`, from one of `holders`."""
    known = state.by_attempt.get(attempt)
    here = state.released.get(attempt)
    if (
        (known is not None and known is not record)
        or (here is not None and here.key != record.key)
        or attempt in state.cancelled
    ):
        return  # the scheduler is wrong
    if record.state == FETCH:
        move(state, record, MISSING)
    if here is not None:
        # It was dropped, but is in use, and wanted again: the scheduler needs a report of it.
        move(state, record, FORGOTTEN)
        move(state, here, MEMORY)
        report_replica(state.to_scheduler, here)
        move_waiters(record, here)
        wake(state, here)
        return
    if record.attempt != attempt:
        state.by_attempt.pop(record.attempt, None)
        record.attempt = attempt
        state.by_attempt[attempt] = record
    record.nbytes = nbytes
    record.spec_hash = spec_hash
    others = [address for address in holders if address != state.address]
    if others:
        record.holders = others
        move(state, record, FETCH)
    elif holders:  # the scheduler lists this worker as a holder, and it is none
        note_missing(state, record)


def ask(state: WorkerState) -> None:
    """Send a request to every peer that may be asked now."""
    for request in state.fetching.start():
        for copy in request.copies.values():
            assert copy is not None
            move(state, copy, FLIGHT)
        keys = list(request.copies)
        attempts = list(request.attempts.values())
        fetch = Fetch(request.peer.address, request.number, keys, attempts, request.nbytes)
        state.after.append(fetch)


def on_fetched(state: WorkerState, event: CopiesFetched) -> None:
    """File the copies that are in the store; look elsewhere for the others."""
    request = state.fetching.end(event.request)
    assert request is not None, f"request {event.request} was never made, or ended before"
    for key, nbytes in zip(event.keys, event.nbytes, strict=True):
        copy = request.copies.pop(key)
        if copy is not None:
            copy.nbytes = nbytes
            for task in copy.waiters or ():
                task.fetched = state.now
            move(state, copy, MEMORY)
            report_replica(state.to_scheduler, copy)
            wake(state, copy)
            if state.busy:
                settle(state, copy)
            continue
        # It was dropped while it was on its way, and the shell has stored it. But the same
        # attempt may have come from elsewhere since, or still be in use.
        attempt = request.attempts[key]
        record = state.by_attempt.get(attempt)
        if attempt not in state.released and (record is None or record.state != MEMORY):
            state.forget.append(attempt)
    _end_copies(state, event.holder, request.copies.values())


def on_elsewhere(state: WorkerState, event: CopiesElsewhere) -> None:
    """Ask the worker that is named for the copies, and its predecessor if that does not help."""
    request = state.fetching.end(event.request)
    assert request is not None, f"request {event.request} was never made, or ended before"
    for copy in request.copies.values():
        if copy is None:
            continue
        holders = dict.fromkeys((event.elsewhere, event.holder, *copy.holders))
        holders.pop(state.address, None)
        move(state, copy, MISSING)
        if copy.pins:
            copy.holders = list(holders)
            move(state, copy, FETCH)
        else:
            move(state, copy, FORGOTTEN)


def on_fetch_failed(state: WorkerState, event: CopiesNotFetched) -> None:
    """Look elsewhere for the copies that were requested, or queued, at a holder."""
    request = state.fetching.end(event.request)
    assert request is not None, f"request {event.request} was never made, or ended before"
    # The other copies in its queue would fail as well, one time limit after the other.
    queued = state.fetching.give_up(event.holder)
    _end_copies(state, event.holder, [*request.copies.values(), *queued], unreachable=True)


def on_holders_gone(state: WorkerState, message: HoldersGone) -> None:
    """Send these holders no more requests: a suspended process is connected, but silent."""
    for holder in message.addresses:
        state.after.append(EndFetch(holder))
        peer = state.fetching.peers.get(holder)
        if peer is not None and peer.request is None:
            _end_copies(state, holder, state.fetching.give_up(holder), unreachable=True)


def _end_copies(
    state: WorkerState,
    holder: str,
    copies: Iterable[WorkerTask | None],
    *,
    unreachable: bool = False,
) -> None:
    """Ask another holder for the copies that `holder` did not give, or report them as missing."""
    for copy in copies:
        if copy is None:
            continue
        note_missing(state, copy, holder, unreachable=unreachable)
        others = [address for address in copy.holders if address != holder]
        move(state, copy, MISSING)
        if state.busy and not others:
            settle(state, copy, forget=False)
        if not copy.pins:
            move(state, copy, FORGOTTEN)
        elif others:
            copy.holders = others
            move(state, copy, FETCH)
