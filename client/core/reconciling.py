"""After a lost connection: what the scheduler still knows, and what must be submitted again.

A part of the core.

The scheduler may be the same one, or a new one that knows little. Both get the same treatment: the
client states which keys it wants (`WantKeys`); each is answered by its state or by `KeysUnknown`.
When all are answered, what is unknown is submitted again from its record, together with what was
submitted while there was no connection, in the order of first submission, so that dependencies come
before their dependents. Nothing is submitted earlier, because it may depend on an unknown key; and
nothing is released earlier, because an unknown key may depend on it: see `Releases`.

A pending task keeps its record, and through `lineage` those of its dependencies even when their
futures are gone. Such a dependency is submitted along and released at once; the scheduler, if it
knows it, just goes on with it. The lineage ends at results: the workers that hold those announce
them to a new scheduler, and if they are lost as well the scheduler says so on the dependent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ...protocol.wire.messages import GetClusterInfo, ReleaseKeys, ReleaseOthers, WantKeys
from .operations import release, set_barrier
from .submitting import add_row, close_submissions, submit
from .tasks import GONE, HELD, RELEASED, SENT, FutureState
from .transitions import move
from .watching import ask_to_answer, fail

if TYPE_CHECKING:
    from .state import ClientState
    from .table import FutureTable

#: A scheduler that has been silent for so long about a key has lost the question.
PATIENCE_S: Final = 30.0


def ask(core: ClientState, keys: list[str], now: float) -> None:
    """State what is wanted, and wait for the answers."""
    if keys:
        hashes = core.table.spec_hashes(keys)
        core.to_scheduler.append(WantKeys(keys=keys, spec_hashes=hashes))
    core.unanswered = dict.fromkeys(keys)
    core.n_unanswered_before = len(keys)
    core.last_answer = now


def look_at_answers(core: ClientState, now: float) -> None:
    """Give up on answers when none came for `PATIENCE_S`: those keys are as good as unknown."""
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
    """Begin to submit: all that is wanted has been answered for.

    Only now is known what is to be submitted, and so what the scheduler has to keep for it.
    """
    core.unanswered = None
    core.is_linked = True
    core.let_go = {}
    later = _release_again(core) if core.unacknowledged else []
    submit_held(core)
    later = [key for key in later if not is_held(core.table, key)]
    if later:
        core.to_scheduler.append(ReleaseKeys(keys=later))
    for request in core.info_requests:
        core.to_scheduler.append(GetClusterInfo(request=request))
    if core.confirmations:
        number = ask_to_answer(core)
        core.confirmations = [(watcher, number) for watcher, _ in core.confirmations]


def _release_again(core: ClientState) -> list[str]:
    """Repeat the releases that may not have been read; return those that are to wait.

    They wait for the held tasks that will read them: for these, the scheduler must have them
    until then. All others come before, because their names may be in use again.
    """
    releases = Releases(core.unacknowledged, core.table, core.held)
    if releases.now:
        core.to_scheduler.append(ReleaseKeys(keys=releases.now))
    if releases.names:
        core.to_scheduler.append(
            ReleaseOthers(keys=releases.names, spec_hashes=releases.spec_hashes)
        )
    if releases.stale:
        # News of what is let go only now may be on its way, in this session.
        core.let_go = dict.fromkeys(releases.stale)
        set_barrier(core)
        core.let_go = dict.fromkeys(releases.later)
    return releases.later


def submit_held(core: ClientState) -> None:
    """Submit the held states, and what they need that has no future any more.

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
                    needed = again  # it was submitted once more, as another state
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
    # One that was only asked for again, from elsewhere, goes on being wanted.
    release(core, [key for key in temporary if not is_held(core.table, key)])
    # The scheduler may have one of them all the same: it may have answered before that it is not.
    release(core, failed)


class Releases:
    """How to release keys that were let go, when the scheduler may not have read of that.

    By now all that is wanted was answered for, so it has what it needs at the scheduler: except for
    the held tasks. What these read stays until they are submitted.
    """

    def __init__(
        self, keys: dict[str, None], table: FutureTable, held: dict[FutureState, None]
    ) -> None:
        #: What the scheduler sends of these until it has read so is about tasks that were let go.
        self.stale: list[str] = []
        #: To be released at once.
        self.now: list[str] = []
        #: To be released when the held tasks are submitted.
        self.later: list[str] = []
        #: Names of held tasks, with their hashes: not to be released if the scheduler has the very
        #: task, because its inputs may be gone from here, and released it would be gone from there.
        self.names: list[str] = []
        self.spec_hashes: list[bytes] = []
        needed = _inputs(held)
        for key in keys:
            state = table.states.get(key)
            phase = GONE if state is None else state.phase
            if phase == SENT:
                continue  # asked about in this session, and so the right one
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
    """Whether what depends on this state cannot be made: it failed, or was cancelled."""
    failure = state.failure
    return state.phase == GONE and failure is not None and failure[-1] != RELEASED


def is_held(table: FutureTable, key: str) -> bool:
    """Whether there is a state of this key that the scheduler is to keep the task for."""
    state = table.states.get(key)
    return state is not None and state.phase != GONE
