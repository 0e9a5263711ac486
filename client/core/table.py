"""The table of states that futures share, which user threads and the loop thread both change.

`FutureTable` maps each key that has futures to its state and counts the futures attached. A user
thread attaches (a submission of a key that is there already, a future unpickled); the loop thread
detaches, when it handles a release. Invariant:

    A state is in the table from the moment it is made until the loop has handled as many releases
    as there were attachments, or until a new state takes the key over from a failed one.

So a thread that finds a state in the table may attach to it: the state cannot be dropped meanwhile,
because "count is zero" and "leave the table" are one step under one lock. A release that waits in
the queue while another thread attaches only lowers the count again; a state that left the table
never comes back. A key that left and is submitted again gets a new state, whose submission is
queued after the release was handled.

The lock comes from outside, so that this module needs no threads. It is held for a few dictionary
operations at a time, and its holder waits for nothing else.

It is reentrant: where an object is made or a call returns, the collector may start, and a finalizer
of the user submits or unpickles a future. So what is known about a key holds only up to the next
call: a look at the table and the change that follows from it have no call between them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from ...protocol.wire.messages import NO_HASH
from .tasks import FAILED, FutureState


class FutureTable:
    """The states of all keys of one client. Any thread may call any method."""

    def __init__(self, lock: AbstractContextManager[Any]) -> None:
        self._lock = lock
        #: {key: state}. All and only keys with n_references > 0, failed ones that were replaced
        #: aside. Readers need no lock; iterate over `snapshot()`.
        self.states: dict[str, FutureState] = {}
        #: {key: hash of the task}, of keys in `states` that the user named.
        self._spec_hashes: dict[str, bytes] = {}

    def add(self, states: list[FutureState]) -> None:
        """Add new states, of keys that no other thread can know."""
        items = [(state.key, state) for state in states]
        with self._lock:
            self.states.update(items)

    def add_one(self, state: FutureState) -> None:
        """Do as `add` for one state: a single step, for which no lock is needed."""
        self.states[state.key] = state

    def attach(
        self, keys: list[str], spec_hashes: list[bytes] | None = None
    ) -> tuple[list[FutureState], list[FutureState]]:
        """Return the state of each key, made if there is none, with one more future counted.

        A failed state is not shared with a new submission: a new one takes its place.

        Args:
            keys: need not be unique.
            spec_hashes: of the tasks, when the user named the keys.

        Returns:
            The states, and the failed ones that were replaced.

        Raises:
            ValueError: a key is in use for another task, or is given twice here for different ones.
        """
        found: list[FutureState] = []
        replaced: list[FutureState] = []
        table = self.states
        with self._lock:
            if spec_hashes is not None:
                new = dict(zip(keys, spec_hashes, strict=True))
                for key, spec_hash in zip(keys, spec_hashes, strict=True):
                    if new[key] != spec_hash:
                        raise ValueError(
                            f"key {key!r} is given to two different calls; a key names "
                            "one task, so choose another key for one of them"
                        )
                    state = table.get(key)
                    if state is None or state.status in FAILED:
                        continue
                    if self._spec_hashes.get(key, spec_hash) != spec_hash:
                        raise ValueError(
                            f"key {key!r} belongs to a future of another function or other "
                            "arguments, or of other times (cron=); release that one first, or "
                            "choose another key"
                        )
                self._spec_hashes.update(new)
            for key in keys:
                if key in table:
                    state = table[key]
                    if state.status not in FAILED:
                        state.n_references += 1
                        found.append(state)
                        continue
                else:
                    fresh = FutureState(key)
                    if key not in table:  # a finalizer may have attached to it
                        table[key] = fresh
                        found.append(fresh)
                        continue
                found.append(self._share(key, replaced))
        return found, replaced

    def attach_one(self, key: str) -> tuple[FutureState, FutureState | None]:
        """Do as `attach` for one key that weft has made: return its state and the replaced one."""
        table = self.states
        fresh = FutureState(key)
        with self._lock:
            if key not in table:
                table[key] = fresh
                return fresh, None
            state = table[key]
            if state.status in FAILED:
                table[key] = fresh
                return fresh, state
            state.n_references += 1
            return state, None

    def share(self, state: FutureState) -> bool:
        """Count one more future of a state that has some; False if it has none any more."""
        with self._lock:
            if state.n_references <= 0:
                return False
            state.n_references += 1
            return True

    def _share(self, key: str, replaced: list[FutureState]) -> FutureState:
        """Return the state of a key with one more future counted, or a new one if it has failed."""
        table = self.states
        fresh = FutureState(key)
        if key in table:
            state = table[key]
            if state.status not in FAILED:
                state.n_references += 1
                return state
            table[key] = fresh
            replaced.append(state)
        else:
            table[key] = fresh
        return fresh

    def find_or_make(self, key: str) -> FutureState:
        """Return the state of a key, failed or not, with one more future counted."""
        table = self.states
        new = None if key in table else FutureState(key)
        with self._lock:
            while True:
                if key in table:
                    state = table[key]
                    state.n_references += 1
                    return state
                if new is not None:
                    table[key] = new
                    return new
                new = FutureState(key)  # it was there at the first look

    def detach(self, released: list[FutureState]) -> list[FutureState]:
        """Count releases, one for each item, and return the states that have no future left."""
        dead: list[FutureState] = []
        table = self.states
        hashes = self._spec_hashes
        with self._lock:
            for state in released:
                state.n_references = n = state.n_references - 1
                if n == 0:
                    key = state.key
                    if key in table and table[key] is state:
                        del table[key]
                        if key in hashes:
                            del hashes[key]
                    dead.append(state)
        return dead

    def spec_hashes(self, keys: list[str]) -> list[bytes]:
        """Return the tasks' hashes, zeros where the user did not name the key; [] for none."""
        hashes = self._spec_hashes
        if not hashes:
            return []
        found = [hashes.get(key, NO_HASH) for key in keys]
        return found if any(spec_hash != NO_HASH for spec_hash in found) else []

    def snapshot(self) -> list[FutureState]:
        """Return all states in the order in which their keys came: dependencies come first."""
        with self._lock:
            return list(self.states.values())
