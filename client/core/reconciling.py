"""Finds out, after a lost connection, which keys the scheduler has, and submits the others again.

A part of the core.

The scheduler may be the same one, or a new one without any tasks. Both are treated alike: the
client sends the keys that it wants (`WantKeys`); each is answered by its state or by `KeysUnknown`.
When all are answered, unknown keys are submitted again from their records, together with the tasks
that were submitted while there was no connection, in the order of first submission, so that
dependencies come before their dependents. Nothing is submitted earlier, because it may depend on an
unknown key; and nothing is released earlier, because an unknown key may depend on it: see
`Releases`.

A pending task keeps its record, and through `lineage` those of its dependencies even when their
futures are gone. Such a dependency is submitted along and released at once; if the scheduler has
the task already, it goes on with it. The lineage ends at finished results: if a scheduler has none
of such a result, it fails the dependent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import ReleaseKeys, ReleaseOthers, ShutdownCluster, WantKeys
from .operations import release, set_barrier
from .submitting import add_row, close_submissions, submit
from .tasks import GONE, HELD, RELEASED, SENT, FutureState
from .transitions import move
from .watching import ask_to_answer, fail, send_question

if TYPE_CHECKING:
    from .state import ClientState
    from .table import FutureTable

#: Time without any answer after which the keys that were not answered count as unknown.
PATIENCE_S: Final = 30.0


def ask(core: ClientState, keys: list[str], now: float) -> None:
    """Send the wanted keys, and wait for the answers."""
    if keys:
        hashes = core.table.spec_hashes(keys)
        core.to_scheduler.append(WantKeys(keys=keys, spec_hashes=hashes))
    core.unanswered = dict.fromkeys(keys)
    core.n_unanswered_before = len(keys)
    core.last_answer = now


def look_at_answers(core: ClientState, now: float) -> None:
    """Stop waiting for answers when none came for `PATIENCE_S`; their keys count as unknown."""
    unanswered = core.unanswered
    if unanswered is None:
        return
    if len(unanswered) != core.n_unanswered_before:
        core.n_unanswered_before = len(unanswered)
        core.last_answer = now
    elif now - core.last_answer >= PATIENCE_S:
        core.unanswered = {}
        for key in unanswered:
            state = core.table.states.get(key)
            if state is not None and state.spec is not None:
                move(core, state, HELD)


def go_on(core: ClientState) -> None:
    """Begin to submit, now that all wanted keys have been answered for.

    Only now are the tasks to be submitted known, and so the inputs that the scheduler must keep.
    """
    core.unanswered = None
    core.is_linked = True
    core.let_go = {}
    later = _release_again(core) if core.unacknowledged else []
    submit_held(core)
    later = [key for key in later if not is_held(core.table, key)]
    if later:
        core.to_scheduler.append(ReleaseKeys(keys=later))
    for request, question in core.questions.items():
        send_question(core, request, question)
    for request, (_, reason) in core.shutdowns.items():
        core.to_scheduler.append(ShutdownCluster(reason=reason, request=request))
    if core.confirmations:
        number = ask_to_answer(core)
        core.confirmations = [(watcher, number) for watcher, _ in core.confirmations]


def _release_again(core: ClientState) -> list[str]:
    """Repeat the releases that may not have been read; return the keys whose release must wait.

    They wait for the held tasks that will read them, because the scheduler must keep them until
    these are submitted. All others are sent before, because their names may be in use again.
    """
    releases = Releases(core.unacknowledged, core.table, core.held)
    if releases.now:
        core.to_scheduler.append(ReleaseKeys(keys=releases.now))
    if releases.names:
        core.to_scheduler.append(
            ReleaseOthers(keys=releases.names, spec_hashes=releases.spec_hashes)
        )
    if releases.stale:
        # Messages of this session about keys that are released only now may be on their way.
        core.let_go = dict.fromkeys(releases.stale)
        set_barrier(core)
        core.let_go = dict.fromkeys(releases.later)
    return releases.later


def submit_held(core: ClientState) -> None:
    """Submit the held states, and those of their dependencies that no longer have a future.

    They waited for the connection, or were found unknown, and so are in no order. A dependency
    without a future is released at once. States whose dependencies were cancelled before the
    scheduler read of them, or released since, fail.
    """
    if not core.held:
        return
    table = core.table.states
    wanted: list[str] = []
    temporary: dict[str, None] = {}
    failed: list[str] = []
    for state in [state for state in core.table.snapshot() if state in core.held]:
        if state.spec is None:
            move(core, state, SENT)
            wanted.append(state.key)
            continue
        # Depth first, without recursion: a chain may be a million long.
        stack = [(state, False)]
        while stack:
            current, is_expanded = stack.pop()
            if current.phase == SENT or (current.phase == GONE and current.key in temporary):
                continue
            assert current.spec is not None
            task = current.spec.row(current.key)
            if is_expanded:
                if current.phase == GONE:
                    # Not in the table, so nothing else would release it.
                    add_row(core, task, current.key)
                    temporary[current.key] = None
                else:
                    task.state = current
                    submit(core, task)
                continue
            stack.append((current, True))
            for needed in reversed(task.lineage):
                again = table.get(needed.key) if needed.phase == GONE else None
                if again is not None and (again.spec is not None or again.phase == SENT):
                    needed = again  # it was submitted again, as another state
                if is_doomed(needed):
                    assert needed.failure is not None
                    fail(core, state, needed.status, needed.failure)
                    failed.append(state.key)
                    stack.clear()
                    break
                if needed.spec is not None and needed.phase in (GONE, HELD):
                    stack.append((needed, False))
    close_submissions(core)
    if wanted:
        core.to_scheduler.append(WantKeys(keys=wanted))
    # A key that was only requested again, by another future, stays wanted.
    release(core, [key for key in temporary if not is_held(core.table, key)])
    # The scheduler may have one of them although an earlier answer was that it had not.
    release(core, failed)


class Releases:
    """The released keys, sorted by how to repeat their release in a new session.

    The scheduler may not have read of the release. All wanted keys were answered for by now, so
    only held tasks can still need a released key; such keys stay until those are submitted.
    """

    def __init__(
        self, keys: dict[str, None], table: FutureTable, held: dict[FutureState, None]
    ) -> None:
        #: Messages about these, until the scheduler has read of their release, are out of date.
        self.stale: list[str] = []
        #: To be released at once.
        self.now: list[str] = []
        #: To be released when the held tasks are submitted.
        self.later: list[str] = []
        #: Names of held tasks, with their hashes. They are released only if the scheduler has
        #: another task of that name, because the inputs of this one may be gone.
        self.names: list[str] = []
        self.spec_hashes: list[bytes] = []
        needed = _inputs(held)
        for key in keys:
            state = table.states.get(key)
            phase = GONE if state is None else state.phase
            if phase == SENT:
                continue  # answered in this session, so it is the right task
            if phase != HELD and key in needed:
                self.later.append(key)
                continue
            self.stale.append(key)
            if phase != HELD:
                self.now.append(key)
            elif state is not None and state.spec is not None:
                spec_hash = state.spec.row(key).spec_hash
                if spec_hash is not None:
                    self.names.append(key)
                    self.spec_hashes.append(spec_hash)


def _inputs(held: dict[FutureState, None]) -> dict[str, None]:
    """Return the keys of released states that held tasks depend on, directly or not."""
    keys: dict[str, None] = {}
    stack = list(held)
    while stack:
        state = stack.pop()
        if state.spec is None:
            continue
        for dependency in state.spec.row(state.key).lineage:
            if dependency.phase == GONE and dependency.key not in keys:
                keys[dependency.key] = None
                stack.append(dependency)
    return keys


def is_doomed(state: FutureState) -> bool:
    """Return whether dependents of this state cannot be computed: it failed, or was cancelled."""
    failure = state.failure
    return state.phase == GONE and failure is not None and failure[-1] != RELEASED


def is_held(table: FutureTable, key: str) -> bool:
    """Return whether there is a state of this key for which the scheduler is to keep the task."""
    state = table.states.get(key)
    return state is not None and state.phase != GONE
