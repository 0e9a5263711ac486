"""The client's core: which futures there are, what the scheduler was told, who waits for what.

Owns every decision of the client and no I/O: one door, `handle(event, now)`, two out-boxes,
`to_scheduler` and `actions`, which the shell (`engine`) drains after each event. Only the loop
thread calls it. User threads hand in operations through one queue, in order; so a submission comes
before the release of its future, reference counts are exact, and neither needs a lock here. What
user threads read without asking (`status` and content of a `FutureState`) is written only here,
content first. `FutureTable` is the one structure that both sides change, and explains itself.

`operations` handles what users did, `answers` what the scheduler said; this module has the door, the
watchers, the connection and what the others share. `submitting`, `fetching` and `reconciling` keep
the books of three things that need some.

Life of a state here: NEW, then SENT (or HELD while there is no connection), then GONE; its status
goes from pending to a final one and, when the only copy of a large result was lost, back.

After a loss of the connection the client states what is true instead of replaying what it said; see
`reconciling`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

from ...protocol.wire.failure import Failure, cancelled
from ...protocol.wire.message import Message
from ...protocol.wire.messages import (
    GetClusterInfo,
    ReleaseKeys,
    ReleaseOthers,
    SubmitTasks,
    WantKeys,
)
from .events import (
    Action,
    Closed,
    Connected,
    Disconnected,
    Event,
    Fetched,
    FetchFailed,
    GaveUp,
    Notify,
    Operations,
    Received,
    Tick,
    Unsendable,
    Warn,
)
from .fetching import Fetches
from .answers import on_received
from .operations import MAX_KEYS, ask_to_confirm, on_operations, say_released, set_barrier
from .reconciling import Reconciliation, Releases, is_held
from .submitting import Submitter, drop
from .table import FutureTable
from .tasks import (
    GONE,
    HELD,
    NO_VALUE,
    RELEASED,
    SENT,
    FutureState,
    Status,
    Watcher,
)


class ClientState:
    """See the module's docstring."""

    def __init__(self, table: FutureTable) -> None:
        self.table = table
        self.to_scheduler: list[Message] = []
        self.actions: list[Action] = []
        #: Messages may be made: there is a session, and the scheduler knows what we want.
        self.is_linked = False
        #: Why no submission can succeed any more, None while one can.
        self.end: Failure | None = None
        self.n_workers = 0
        self.nthreads = 0
        #: Messages about keys that were released meanwhile: expected, and only counted.
        self.n_stale = 0
        #: {state: None} in phase HELD, in order.
        self.held: dict[FutureState, None] = {}
        #: {key: None} released or cancelled since the last check, or not said yet; nothing shows
        #: that the scheduler heard of it, so it is said again in the next session.
        self.unacknowledged: dict[str, None] = {}
        #: The same, before the check that is under way, and the number of that request.
        self._checked: dict[str, None] = {}
        self._check = 0
        self.submitter = Submitter()
        self.fetches = Fetches()
        self.reconciliation = Reconciliation()
        #: {key: None} released or cancelled since the last barrier, and not submitted since: what
        #: comes about this key may be about the task that was let go.
        self.let_go: dict[str, None] = {}
        #: {key: barrier}: what comes about this key before the answer to that request is about an
        #: earlier task of the same name. Barriers never decrease.
        self.barriers: dict[str, int] = {}
        #: Watchers whose batch is not empty; empty between events.
        self.touched: list[Watcher] = []
        self.cluster_watchers: list[tuple[Watcher, int]] = []
        #: {request: watcher} of GetClusterInfo.
        self.info_requests: dict[int, Watcher] = {}
        #: [(watcher, request)] of `Confirm`; 0 = not asked yet, for want of a connection.
        self.confirmations: list[tuple[Watcher, int]] = []
        self.warnings: dict[str, None] = {}
        self._handlers: dict[type, Callable[[Any, float], None]] = {
            Operations: partial(on_operations, self),
            Received: partial(on_received, self),
            Fetched: self._on_fetched,
            FetchFailed: self._on_fetch_failed,
            Connected: self._on_connected,
            Disconnected: self._on_disconnected,
            GaveUp: self._on_gave_up,
            Closed: self._on_closed,
            Unsendable: self._on_unsendable,
            Tick: self._on_tick,
        }

    def handle(self, event: Event, now: float) -> None:
        """Take in what happened; see `to_scheduler` and `actions` for what to do about it."""
        self._handlers[type(event)](event, now)
        if self.reconciliation.is_active and not self.reconciliation.is_waiting:
            self.go_on()
        fetches = self.fetches
        if fetches:
            fetches.issue(is_linked=self.is_linked)
        if fetches.messages and self.is_linked:
            self.to_scheduler += fetches.messages
            fetches.messages = []
        if fetches.actions:
            self.actions += fetches.actions
            fetches.actions = []
        while fetches.failed:
            state, failure = fetches.failed.pop()
            self.fail(state, "lost", failure)
        if self.touched:
            for watcher in self.touched:
                self.actions.append(Notify(watcher, watcher.batch))
                watcher.batch = []
            self.touched = []

    # --- Shared by those who handle events ---

    def close_submissions(self) -> None:
        submitter = self.submitter
        submitter.close()
        if submitter.out:
            self.to_scheduler += submitter.out
            submitter.out = []

    def hold(self, state: FutureState) -> None:
        state.phase = HELD
        self.held[state] = None

    def find(self, key: str) -> FutureState | None:
        """Return the state that a message is about, or None if it is too late."""
        state = self.table.states.get(key)
        if state is None or state.phase != SENT or key in self.barriers:
            self.n_stale += 1
            return None
        if self.reconciliation.is_active:
            self.reconciliation.confirm(key)
        return state

    def fail_released(self, state: FutureState) -> None:
        """Tell who waits for a state without futures that nothing will come."""
        spec = state.spec
        self.fail(state, "cancelled", cancelled(state.key, RELEASED))
        # The task goes on if others need it, and this is how to make it for them.
        state.spec = spec

    def fail(self, state: FutureState, status: Status, failure: Failure) -> None:
        state.failure = failure
        state.spec = None
        state.location = None
        state.status = status
        # A scheduler may forget the function of a task that will not run.
        drop(state)
        if state.phase < SENT:
            self.held.pop(state, None)
            state.phase = GONE
        self.wake(state)

    # --- Watching ---------------------------------------------------------------------------------

    def on_watch(self, watcher: Watcher, states: list[FutureState]) -> None:
        wants_data = watcher.wants_data
        fetches = self.fetches
        for state in states:
            status = state.status
            if status == "finished":
                if not wants_data or state.has_data:
                    self.touch(watcher, state)
                    continue
                if state.location is not None:
                    fetches.add(state)
            elif status != "pending":
                self.touch(watcher, state)
                continue
            elif state.phase == GONE:
                # Released before we came here: nobody will tell us anything about it.
                self.fail_released(state)
                self.touch(watcher, state)
                continue
            watchers = state.watchers
            if watchers is None:
                state.watchers = watcher
            elif watchers.__class__ is list:
                watchers.append(watcher)
            else:
                state.watchers = [watchers, watcher]  # type: ignore[list-item]

    def on_unwatch(self, watcher: Watcher, states: list[FutureState]) -> None:
        for state in states:
            watchers = state.watchers
            if watchers is watcher:
                state.watchers = None
            elif watchers.__class__ is list and watcher in watchers:
                watchers.remove(watcher)

    def touch(self, watcher: Watcher, item: Any) -> None:
        batch = watcher.batch
        if not batch:
            self.touched.append(watcher)
        batch.append(item)

    def wake(self, state: FutureState) -> None:
        """Tell the watchers of a state what is new; those that it satisfies leave."""
        watchers = state.watchers
        if watchers is None:
            return
        state.watchers = None
        staying: list[Watcher] = []
        is_elsewhere = state.failure is None and not state.has_data
        for watcher in watchers if isinstance(watchers, list) else [watchers]:
            if is_elsewhere and watcher.wants_data:
                staying.append(watcher)
            else:
                self.touch(watcher, state)
        if staying:
            state.watchers = staying
            if state.location is not None:
                self.fetches.add(state)

    def on_answer(self, request: int) -> None:
        """Everything that was sent before this request has been heard."""
        if request == self._check:
            self._checked = {}
        if self.barriers:
            heard = list(itertools.takewhile(lambda i: i[1] <= request, self.barriers.items()))
            for key, _ in heard:
                del self.barriers[key]
        if self.confirmations:
            for watcher, number in self.confirmations:
                if 0 < number <= request:
                    self.touch(watcher, None)
            self.confirmations = [c for c in self.confirmations if not 0 < c[1] <= request]

    # --- Data -------------------------------------------------------------------------------------

    def _on_fetched(self, event: Fetched, _now: float) -> None:
        self.take(event.request, event.keys, event.blobs)

    def _on_fetch_failed(self, event: FetchFailed, _now: float) -> None:
        self.fetches.fail(event.request, event.reason)

    def take(self, request: int, keys: list[str], blobs: list[Any]) -> None:
        asked = self.fetches.finish(request, keys, blobs)
        for state in asked or ():
            if state.failure is None:
                state.location = None
                state.status = "finished"
                self.wake(state)
        for state in self.fetches.take_missing():
            # Unless there was news of it already, it is pending until there is.
            state.location = None
            if state.failure is None and not state.has_data:
                state.status = "pending"

    # --- The connection ---------------------------------------------------------------------------

    def _on_connected(self, _event: Connected, now: float) -> None:
        assert not self.is_linked
        self.fetches.on_connected()
        self.unacknowledged = self._checked | self.unacknowledged
        self._checked = {}
        keys: list[str] = []
        for state in self.table.snapshot():
            # Only what is submitted in this session shows that the scheduler has a function.
            function = state.function
            if function is not None:
                function.n_wanted = 0
                state.function = None
            if state.phase != SENT or state.failure is not None:
                continue
            if state.spec is not None and state.key in self.unacknowledged:
                # What the scheduler has of this name may be what was let go: an earlier task, or
                # an earlier failure of the same one.
                self.hold(state)
            else:
                keys.append(state.key)
        for start in range(0, len(keys), MAX_KEYS):
            part = keys[start : start + MAX_KEYS]
            self.to_scheduler.append(WantKeys(keys=part, spec_hashes=self.table.spec_hashes(part)))
        self.reconciliation.start(keys, now)

    def _say_released(self, keys: list[str]) -> None:
        for start in range(0, len(keys), MAX_KEYS):
            self.to_scheduler.append(ReleaseKeys(keys=keys[start : start + MAX_KEYS]))

    def go_on(self) -> None:
        """Begin to submit: all that we want has been answered for.

        Only now is known what is to be submitted, and so what the scheduler has to keep for it.
        """
        self.reconciliation.stop()
        self.is_linked = True
        self.let_go = {}
        later = self._say_again() if self.unacknowledged else []
        self.submit_held()
        self._say_released([key for key in later if not is_held(self.table, key)])
        for request in self.info_requests:
            self.to_scheduler.append(GetClusterInfo(request=request))
        if self.confirmations:
            number = ask_to_confirm(self)
            self.confirmations = [(watcher, number) for watcher, _ in self.confirmations]

    def _say_again(self) -> list[str]:
        """Say the releases that nobody may have heard; return those that are to wait.

        They wait for the held tasks that will read them: for these, the scheduler must have them
        until then. All others come before, because their names may be in use again.
        """
        releases = Releases(self.unacknowledged, self.table, self.held)
        self._say_released(releases.now)
        for start in range(0, len(releases.names), MAX_KEYS):
            part = slice(start, start + MAX_KEYS)
            self.to_scheduler.append(
                ReleaseOthers(keys=releases.names[part], spec_hashes=releases.spec_hashes[part])
            )
        if releases.stale:
            # News of what is let go only now may be on its way, in this session.
            self.let_go = dict.fromkeys(releases.stale)
            set_barrier(self)
            self.let_go = dict.fromkeys(releases.later)
        return releases.later

    def submit_held(self) -> None:
        """Submit what waited for the connection or got lost, and what that needs."""
        held = self.held
        self.held = {}
        wanted: list[str] = []
        failed: list[tuple[FutureState, FutureState]] = []
        temporary = self.reconciliation.submit(held, self.table, self.submitter, wanted, failed)
        self.close_submissions()
        if wanted:
            self.to_scheduler.append(WantKeys(keys=wanted))
        if temporary:
            say_released(self, temporary)
        for state, culprit in failed:
            assert culprit.failure is not None
            self.fail(state, culprit.status, culprit.failure)
        if failed:
            # The scheduler may have one of them all the same: "unknown" was said of it before.
            say_released(self, [state.key for state, _ in failed])

    def _on_disconnected(self, _event: Disconnected, _now: float) -> None:
        self.is_linked = False
        self.reconciliation.stop()
        self.to_scheduler.clear()
        self.submitter = Submitter()
        self.fetches.on_disconnected()
        # Nothing that was said in this session will be heard in the next.
        self.barriers.clear()
        self.let_go = {}
        self.confirmations = [(watcher, 0) for watcher, _ in self.confirmations]

    def _on_unsendable(self, event: Unsendable, _now: float) -> None:
        if isinstance(event.message, SubmitTasks):
            for key in event.message.keys:
                state = self.table.states.get(key)
                if state is not None and state.status == "pending":
                    state.phase = GONE
                    self.fail(state, "error", ["not-sent", key, event.reason])
        else:
            self.actions.append(Warn(f"a message could not be sent: {event.reason}"))

    def _on_gave_up(self, event: GaveUp, _now: float) -> None:
        self._end(["connection-lost", "", event.reason])

    def _on_closed(self, _event: Closed, _now: float) -> None:
        self._end(["client-closed", ""])

    def _end(self, failure: Failure) -> None:
        self.is_linked = False
        self.end = failure
        self.reconciliation.stop()
        self.to_scheduler.clear()
        for state in self.table.snapshot():
            if state.failure is None and not state.has_data:
                status: Status = "cancelled" if failure[0] == "client-closed" else "lost"
                self.fail(state, status, [failure[0], state.key, *failure[2:]])
        self.held.clear()
        for watcher, _ in self.cluster_watchers:
            self.touch(watcher, None)
        for watcher in self.info_requests.values():
            self.touch(watcher, None)
        for watcher, _ in self.confirmations:
            self.touch(watcher, None)
        self.cluster_watchers.clear()
        self.info_requests.clear()
        self.confirmations.clear()

    def _on_tick(self, _event: Tick, now: float) -> None:
        if self.is_linked and self.unacknowledged and not self._checked:
            self._checked, self.unacknowledged = self.unacknowledged, {}
            self._check = set_barrier(self)
        self.fetches.on_tick()
        if self.reconciliation.is_active:
            self.reconciliation.on_tick(now)
            for key in self.reconciliation.take_overdue():
                state = self.table.states.get(key)
                if state is not None and state.spec is not None:
                    drop(state)
                    self.hold(state)

    # --- Checks -----------------------------------------------------------------------------------

    def validate(self) -> None:
        """Assert the invariants that the fields' comments state."""
        table = self.table.states
        counts: dict[int, int] = {}
        for key, state in table.items():
            assert state.key == key
            assert state.n_references > 0, state
            assert (state.failure is not None) == (
                state.status in ("error", "cancelled", "lost")
            ), state
            assert (state.phase == HELD) == (state in self.held), state
            if state.function is not None:
                assert state.phase == SENT, state
                counts[id(state.function)] = counts.get(id(state.function), 0) + 1
            if state.status != "finished":
                assert not state.has_data, state
            if state.has_data:
                assert state.blob is None or state.value is NO_VALUE, state
        for state in table.values():
            if state.function is not None:
                assert state.function.n_wanted == counts[id(state.function)], state
        assert not (self.held and self.is_linked)
        assert not self.touched
        assert list(self.barriers.values()) == sorted(self.barriers.values())
        assert self.barriers.keys().isdisjoint(self.let_go)
        assert not self.submitter.out
        assert not (self.is_linked and any(number == 0 for _, number in self.confirmations))
        assert not (self.is_linked and self.reconciliation.is_active)
        self.fetches.validate()
