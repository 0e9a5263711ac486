"""Waits of the threads of actors: reported, also to the next scheduler, and failed on request."""

from __future__ import annotations

import pytest

from weft.protocol.wire.messages import ActorsBlocked, ActorsResumed, FailWaits, InventoryEnd
from weft.worker.core.events import FailWait, SchedulerLost, SchedulerSent, SessionOpened
from weft.worker.core.features import FEATURES
from weft.worker.core.features.actor_waits import ActorBlocked, ActorResumes
from weft.worker.core.state import WorkerState

WAIT = ActorBlocked("a", 7, ["x"], ["b"], ["h/1/2"], ["h/1/1"], ["h/1/1"])
REPORT = ActorsBlocked(
    names=["a"],
    attempts=[7],
    keys=[["x"]],
    actors=[["b"]],
    calls=[["h/1/2"]],
    begun=[["h/1/1"]],
    open=[["h/1/1"]],
)


@pytest.fixture
def state() -> WorkerState:
    state = WorkerState(1, "tcp://me", FEATURES)
    state.handle(SessionOpened(is_first=True), 0.0)
    return state


def sent(state: WorkerState, event: object) -> list[object]:
    state.handle(event, 0.0)  # type: ignore[arg-type]
    messages, state.to_scheduler = state.to_scheduler, []
    return messages


def test_a_wait_and_its_end_are_reported(state):
    assert sent(state, WAIT) == [REPORT]
    assert sent(state, ActorResumes(7)) == [ActorsResumed(attempts=[7])]
    assert sent(state, ActorResumes(7)) == []


def test_a_wait_is_reported_to_the_next_scheduler_behind_the_inventory(state):
    sent(state, WAIT)
    sent(state, SchedulerLost())
    assert sent(state, SessionOpened(is_first=False)) == [InventoryEnd(n_rows=0), REPORT]


def test_a_wait_fails_on_request_while_it_lasts(state):
    fail = SchedulerSent([FailWaits(attempts=[7], texts=["why"])])
    sent(state, fail)
    sent(state, WAIT)
    state.before.clear()
    sent(state, fail)
    assert state.before == [FailWait(7, "why")]
    sent(state, ActorResumes(7))
    state.before.clear()
    sent(state, fail)
    assert state.before == []
