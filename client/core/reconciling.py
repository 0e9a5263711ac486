"""Finds out, after a lost connection, which keys the scheduler has, and submits the others again.

A part of the core.

The same scheduler is asked for the keys that the client wants (`ask`), and answers each by a state
or by `KeysUnknown`. When all are answered, unknown keys are submitted again from their records,
together with the tasks that were submitted while there was no connection, in the order of first
submission, so that dependencies come before their dependents. Nothing is submitted earlier, because
it may depend on an unknown key; and nothing is released earlier, because an unknown key may depend
on it: see `_release_again`. A new scheduler knows none of them, and is sent all that the client
wants in one go (`submit_again`).

A pending task keeps its record, and through `lineage` those of its dependencies even when their
futures are gone. Such a dependency is submitted along and released at once; if the scheduler has
the task already, it goes on with it. `recipes.py` has what is kept of finished results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import (
    ReleaseKeys,
    ReleaseOthers,
    Resubmitted,
    WantKeys,
)
from .lineage import is_kept_there, release_temporary, submit_with_inputs
from .recipes import has_recipe
from .releasing import release, set_barrier
from .retrying import in_retries, retry_again
from .submitting import close_submissions
from .tasks import (
    FINISHED,
    GONE,
    KEPT,
    SENT,
    UNSENT,
    FutureState,
    is_unreadable,
)
from .transitions import move
from .watching import ask_to_answer, fail

if TYPE_CHECKING:
    from .state import ClientState

#: Time without any answer after which the keys that were not answered count as unknown.
PATIENCE_S: Final = 30.0


def ask(core: ClientState) -> None:
    """Ask the same scheduler for all wanted keys; everything else waits for the answers."""
    core.unacknowledged = core.checked | core.unacknowledged
    core.checked = {}
    keys: list[str] = []
    retried = in_retries(core)
    for state in core.table.snapshot():
        forget_function(state)
        if state.phase != SENT or state.failure is not None or state in retried:
            continue
        if state.spec is not None and state.key in core.unacknowledged:
            # The scheduler's task of this name may be one that was released: an earlier task, or
            # an earlier failure of the same one.
            move(core, state, UNSENT)
        else:
            keys.append(state.key)
    want(core, keys)
    core.unanswered = dict.fromkeys(keys)
    core.n_unanswered_before = len(keys)
    core.last_answer = core.now


def submit_again(core: ClientState, *, is_first: bool) -> int:
    """Submit to a new scheduler all that it is needed for, in order of first submission.

    It has no tasks, so there is nothing to ask it, and nothing to release. What it finds at workers
    it reports as any other result.

    Returns:
        The number of keys that were submitted or wanted.
    """
    core.unacknowledged = {}
    core.checked = {}
    core.retries = {}
    keys: list[str] = []
    for state in core.table.snapshot():
        forget_function(state)
        if state.phase != SENT:
            continue
        if state.failure is not None:
            move(core, state, KEPT if is_unreadable(state) else GONE)
        elif state.has_data and core.recipes.is_constant(state) and state not in core.made:
            move(core, state, UNSENT if state in core.lent else KEPT)
        elif has_recipe(core, state):
            move(core, state, UNSENT)
        else:
            keys.append(state.key)
    want(core, keys)
    n_unsent = len(core.unsent)
    go_on(core, is_restarted=not is_first)
    return n_unsent + len(keys)


def want(core: ClientState, keys: list[str]) -> None:
    """Ask for the states of keys."""
    if keys:
        hashes = core.table.spec_hashes(keys)
        made = {state.key: attempt for state, attempt in core.made.items()}
        attempts = [made.get(key, 0) for key in keys] if made else []
        if not any(attempts):
            attempts = []
        core.to_scheduler.append(WantKeys(keys=keys, spec_hashes=hashes, attempts=attempts))


def forget_function(state: FutureState) -> None:
    """Note that only what is submitted in this session shows that the scheduler has a function."""
    function = state.function
    if function is not None:
        function.n_wanted = 0
        state.function = None


def look_at_answers(core: ClientState) -> None:
    """Stop waiting for answers when none came for `PATIENCE_S`; their keys count as unknown."""
    unanswered = core.unanswered
    if unanswered is None:
        return
    if len(unanswered) != core.n_unanswered_before:
        core.n_unanswered_before = len(unanswered)
        core.last_answer = core.now
    elif core.now - core.last_answer >= PATIENCE_S:
        core.unanswered = {}
        for key in unanswered:
            state = core.table.states.get(key)
            if state is None or is_of_no_use(core, state):
                continue
            if state.has_data:
                move(core, state, KEPT)
            elif has_recipe(core, state):
                move(core, state, UNSENT)


def is_of_no_use(core: ClientState, state: FutureState) -> bool:
    """Return whether a result has ended with its task, which the scheduler has dropped."""
    was_made = state.status == FINISHED or (state.failure is None and state in core.made)
    return was_made and any(dropped(core, state) for dropped in core.features.dropped)


def go_on(core: ClientState, *, is_restarted: bool = False) -> None:
    """Begin to submit, now that all wanted keys have been answered for.

    Only now are the tasks to be submitted known, and so the inputs that the scheduler must keep.
    """
    core.unanswered = None
    core.is_linked = True
    core.let_go = {}
    core.lent = {}
    later = _release_again(core) if core.unacknowledged else []
    if core.retries:
        retry_again(core)
    submit_unsent(core)
    later = [key for key in later if not is_kept_there(core.table, key)]
    if later:
        core.to_scheduler.append(ReleaseKeys(keys=later))
    for linked in core.features.linked:
        linked(core, is_restarted)
    if core.confirmations:
        number = ask_to_answer(core)
        core.confirmations = [(watcher, number) for watcher, _ in core.confirmations]
    if core.epoch:  # it is not the first session
        core.to_scheduler.append(Resubmitted())


def _release_again(core: ClientState) -> list[str]:
    """Repeat the releases that may not have been read; return the keys whose release must wait.

    All wanted keys were answered for by now, so only unsent tasks can still need a released key.
    Such keys wait until those are submitted. All others are released before, because their names
    may be in use again; and the names of unsent tasks only if the scheduler has another task of
    that name, because the inputs of this one may be gone.
    """
    stale: list[str] = []
    now: list[str] = []
    later: list[str] = []
    names: dict[str, bytes] = {}
    needed = _inputs(core.unsent)
    for key in core.unacknowledged:
        state = core.table.states.get(key)
        phase = GONE if state is None else state.phase
        if phase == SENT:
            continue  # answered in this session, so it is the right task
        if phase != UNSENT and key in needed:
            later.append(key)
            continue
        stale.append(key)
        if phase != UNSENT:
            now.append(key)
        elif state is not None and state.spec is not None and state.spec.args is not None:
            spec_hash = state.spec.row(key).spec_hash
            if spec_hash is not None:
                names[key] = spec_hash
    if now:
        core.to_scheduler.append(ReleaseKeys(keys=now))
    if names:
        core.to_scheduler.append(ReleaseOthers(keys=[*names], spec_hashes=[*names.values()]))
    if stale:
        # Messages of this session about keys that are released only now may be on their way.
        core.let_go = dict.fromkeys(stale)
        set_barrier(core)
        core.let_go = dict.fromkeys(later)
    return later


def submit_unsent(core: ClientState) -> None:
    """Submit the unsent states, and those of their dependencies that no longer have a future.

    They waited for the connection, or were found unknown, and so are in no order. States whose
    dependencies were cancelled before the scheduler read of them, or released since, fail.
    """
    if not core.unsent:
        return
    wanted: list[str] = []
    failed: list[str] = []
    for state in [state for state in core.table.snapshot() if state in core.unsent]:
        if state.phase != UNSENT:
            continue  # it was submitted before one that reads it
        if not has_recipe(core, state):
            move(core, state, SENT)
            wanted.append(state.key)
            continue
        culprit = submit_with_inputs(core, state)
        if culprit is None:
            continue
        if state.status == FINISHED:
            # A worker may have its result, although it could not be computed again.
            close_submissions(core)
            move(core, state, SENT)
            want(core, [state.key])
        else:
            assert culprit.failure is not None
            fail(core, state, culprit.status, culprit.failure)
            failed.append(state.key)
    close_submissions(core)
    want(core, wanted)
    if core.temporary:
        release_temporary(core)
    # The scheduler may have one of them although an earlier answer was that it had not.
    release(core, failed)


def _inputs(unsent: dict[FutureState, None]) -> dict[str, None]:
    """Return the keys of released states that unsent tasks depend on, directly or not."""
    keys: dict[str, None] = {}
    stack = list(unsent)
    while stack:
        state = stack.pop()
        if state.spec is None or state.spec.args is None:
            continue
        for dependency in state.spec.row(state.key).lineage:
            if dependency.phase == GONE and dependency.key not in keys:
                keys[dependency.key] = None
                stack.append(dependency)
    return keys
