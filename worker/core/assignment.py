"""Tasks that the scheduler assigns: the message is checked, then each row becomes a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.errors import RemoteProtocolError
from ...protocol.wire.messages import AssignTasks
from .copies import on_located_keys
from .drops import supersede
from .inputs import link, note_missing
from .offered import amounts_of
from .tasks import MISSING, NO_ATTEMPT, READY, WorkerFunction, WorkerTask

if TYPE_CHECKING:
    from .feature import Filing
    from .state import WorkerState


def on_assign_tasks(state: WorkerState, message: AssignTasks) -> None:
    """File each task as ready or waiting; a new attempt takes the old one's place (a hot lane)."""
    _check(message)
    functions = []
    filing: dict[Filing, None] | None = None
    for id, blob in zip(message.functions, message.function_blobs, strict=True):
        function = function_of(state, id, blob)
        functions.append(function)
        if function.filing is not None:
            filing = {**(filing or {}), function.filing: None}
    filed = [file(state, message) for file in filing] if filing else None
    if message.function_options:
        _note_asked(state, message)
    clients, dependencies = message.function_clients, message.dependencies
    by_key, by_attempt = state.by_key, state.by_attempt
    failed = state.failures.by_attempt
    cancelled, released, now = state.cancelled, state.released, state.now
    ready: list[WorkerTask] = []  # not among `state.ready` yet
    unknown: list[WorkerTask] = []
    row = -1
    for key, function_index, attempt, priority, args, wanted in zip(
        message.keys,
        message.function_of,
        message.attempts,
        message.priorities,
        message.args,
        message.wanted,
        strict=True,
    ):
        row += 1
        if attempt in by_attempt or attempt in cancelled or attempt in released:
            continue  # sent twice, or filed above
        if failed and attempt in failed:
            continue  # sent twice
        assert args is not None  # checked
        function, client = functions[function_index], clients[function_index]
        task = WorkerTask(key, attempt, priority, function, args, wanted, client)
        task.arrived = now
        if key in by_key:
            _push(state, ready)
            supersede(state, by_key[key], task)
        by_key[key] = by_attempt[attempt] = task
        if dependencies and dependencies[row]:
            _push(state, ready)
            link(state, task, dependencies[row], unknown)
        else:
            task.state = READY
            ready.append(task)
    _push(state, ready)
    if message.spec_hashes:
        for attempt, spec_hash in zip(message.attempts, message.spec_hashes, strict=True):
            if attempt in by_attempt:
                by_attempt[attempt].spec_hash = spec_hash
    if message.n_raised:
        for attempt, n_raised in zip(message.attempts, message.n_raised, strict=True):
            if attempt in by_attempt:
                by_attempt[attempt].n_raised = n_raised
    for column, follow in state.features.columns:
        if getattr(message, column):
            follow(state, message)
    if unknown or message.located_keys:
        report_unknown(state, message, unknown)
    if filed:
        for go_on in filed:
            if go_on is not None:
                go_on()
    if message.attempts:
        state.last_attempt = max(state.last_attempt, message.attempts[-1])
    if state.busy:
        for name, assigned in state.features.assigned:
            if name in state.busy:
                assigned(state, message)


def _push(state: WorkerState, ready: list[WorkerTask]) -> None:
    """Move tasks to those that are ready: before anything is done that may look for them there."""
    if ready:
        if state.offered.asked:
            state.offered.push(*ready)
        else:
            state.ready.push(*ready)
        ready.clear()


def _note_asked(state: WorkerState, message: AssignTasks) -> None:
    """Note what the new tasks ask for of this worker's resources, before they are filed."""
    amounts = [amounts_of(options.get("resources", {})) for options in message.function_options]
    asked = state.offered.asked
    for attempt, place in zip(message.attempts, message.function_of, strict=True):
        if amounts[place] and not _is_known(state, attempt):
            asked[attempt] = amounts[place]


def _is_known(state: WorkerState, attempt: int) -> bool:
    files = (state.by_attempt, state.cancelled, state.released, state.failures.by_attempt)
    return any(attempt in file for file in files)


def report_unknown(state: WorkerState, message: AssignTasks, unknown: list[WorkerTask]) -> None:
    """Fetch the inputs that the message locates, and report the unknown ones that it does not."""
    if message.located_keys:
        on_located_keys(state, message)
    for placeholder in unknown:
        if placeholder.state == MISSING and placeholder.attempt == NO_ATTEMPT:
            note_missing(state, placeholder)


def _check(message: AssignTasks) -> None:
    """Check what the decoder cannot know, before anything is changed."""
    if None in message.args:
        raise RemoteProtocolError("AssignTasks has tasks without arguments")
    if message.dependencies:
        for key, dependencies in zip(message.keys, message.dependencies, strict=True):
            if key in dependencies:
                raise RemoteProtocolError(f"AssignTasks lets {key!r} depend on itself")
    if message.located_hashes and len(message.located_hashes) != len(message.located_keys):
        raise RemoteProtocolError("AssignTasks has located columns of different lengths")


def function_of(state: WorkerState, id: bytes, blob: Any) -> WorkerFunction:
    """Return the function of that id, which is new, or known, or known without its pickle."""
    function = state.functions.get(id)
    if function is None:
        function = WorkerFunction(id, blob, state.features.filing.get(id))
        state.functions[id] = function
    elif function.blob is None and blob is not None:
        function.blob = blob
    return function
