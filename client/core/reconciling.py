"""After a lost connection: what does the scheduler still know, and what must be submitted again?
A part of the core.

The scheduler may be the same one, or a new one that knows little. Both get the same treatment: the
client says which keys it wants (`WantKeys`), and each is answered by its state or by `KeysUnknown`.
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

from typing import Final

from .submitting import Submitter
from .table import FutureTable
from .tasks import GONE, HELD, NEW, RELEASED, SENT, FutureState, TaskRecord

#: A scheduler that has been silent for so long about a key has lost the question.
PATIENCE_S: Final = 30.0


class Reconciliation:
    """Which keys the scheduler has yet to answer for. Inactive most of the time."""

    def __init__(self) -> None:
        self.is_active = False
        #: {key: None} asked for and not answered. Empty unless active.
        self._open: dict[str, None] = {}
        self._n_open_before = 0
        self._last_progress = 0.0
        self._overdue: list[str] = []

    @property
    def is_waiting(self) -> bool:
        """Tell whether an answer is missing."""
        return bool(self._open)

    def start(self, keys: list[str], now: float) -> None:
        """Wait for the answers for `keys`."""
        self.is_active = True
        self._open = dict.fromkeys(keys)
        self._n_open_before = len(keys)
        self._last_progress = now

    def stop(self) -> None:
        """Wait for nothing any more."""
        self.is_active = False
        self._open = {}

    def confirm(self, key: str) -> None:
        """Strike off a key that was answered for, or that nobody wants any more."""
        self._open.pop(key, None)

    def on_tick(self, now: float) -> None:
        """Give up on answers when none came for `PATIENCE_S`."""
        if len(self._open) != self._n_open_before:
            self._n_open_before = len(self._open)
            self._last_progress = now
        elif now - self._last_progress >= PATIENCE_S:
            self._overdue = list(self._open)
            self._open = {}

    def take_overdue(self) -> list[str]:
        """Return the keys that were given up on: as good as unknown."""
        overdue, self._overdue = self._overdue, []
        return overdue

    @staticmethod
    def submit(
        held: dict[FutureState, None],
        table: FutureTable,
        submitter: Submitter,
        wanted: list[str],
        failed: list[tuple[FutureState, FutureState]],
    ) -> list[str]:
        """Submit the held states, and what they need that has no future any more.

        Args:
            held: what to submit; not in order if some were found unknown later than others.
            table: which keys have futures.
            submitter: gets the tasks.
            wanted: gets the keys that we cannot submit, only ask for.
            failed: gets the states that cannot be submitted, with the failures of what they need:
                cancelled before the scheduler heard of it, or released since.

        Returns:
            Keys to be released after it.
        """
        temporary: dict[str, None] = {}
        done: dict[FutureState, None] = {}
        order = [state for state in table.snapshot() if state in held] if held else []
        for state in order:
            state.phase = NEW
        for state in order:
            if state.spec is None:
                state.phase = SENT
                wanted.append(state.key)
                continue
            # Depth first, without recursion: a chain may be a million long.
            stack = [(state, False)]
            while stack:
                current, is_expanded = stack.pop()
                if current in done:
                    continue
                spec = current.spec
                assert spec is not None
                task = spec.row(current.key)
                if is_expanded:
                    done[current] = None
                    _submit(task, current, submitter, temporary)
                    continue
                stack.append((current, True))
                for needed in reversed(task.lineage):
                    again = table.states.get(needed.key) if needed.phase == GONE else None
                    if again is not None and (again.spec is not None or again.phase == SENT):
                        needed = again  # it was submitted once more, as another state
                    if is_doomed(needed):
                        failed.append((state, needed))
                        stack.clear()
                        break
                    if needed.spec is None or needed in done:
                        continue
                    if needed.phase in (GONE, NEW):
                        stack.append((needed, False))
        # One that was only asked for again, from elsewhere, goes on being wanted.
        return [key for key in temporary if not is_held(table, key)]


class Releases:
    """What to say of keys that were let go, when the scheduler may not have heard of that.

    By now all that is wanted was answered for, so it has what it needs at the scheduler: except for
    the held tasks. What these read stays until they are submitted.
    """

    def __init__(
        self, keys: dict[str, None], table: FutureTable, held: dict[FutureState, None]
    ) -> None:
        #: What the scheduler says of these until it has heard so is about tasks that were let go.
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


def _submit(
    task: TaskRecord, state: FutureState, submitter: Submitter, temporary: dict[str, None]
) -> None:
    was_gone = state.phase == GONE
    task.state = state
    submitter.add(task)
    if was_gone:
        del task.state
        # Not in the table, so nothing else would undo this. The release goes out last, and with it
        # the scheduler's reason to keep the function: count no further than that.
        temporary[state.key] = None
        state.phase = GONE
        assert state.function is not None
        state.function.n_wanted -= 1
        state.function = None
