"""For each invariant of the client's core, a state that breaks it by hand."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from weft.client.core import fetching
from weft.client.core.events import Loan
from weft.client.core.features import FEATURES
from weft.client.core.features.cluster import WatchCluster, cluster_of
from weft.client.core.features.remembered import QueueUse, remembered_of
from weft.client.core.fetching import FetchUnderWay
from weft.client.core.foreign_keys import Waiting
from weft.client.core.state import ClientState
from weft.client.core.table import FutureTable
from weft.client.core.tasks import (
    GONE,
    KEPT,
    NO_VALUE,
    SENT,
    UNSENT,
    FunctionRecord,
    FutureState,
    TaskRecord,
    Watcher,
)
from weft.client.core.validate import INVARIANTS, validate
from weft.client.core.watching import THROUGH_SCHEDULER
from weft.protocol.errors import InvalidState
from weft.protocol.wire.options import NO_OPTIONS


@pytest.fixture
def core():
    """A linked core with one state, sent and pending."""
    core = ClientState(FutureTable(nullcontext()), FEATURES)
    core.is_linked = True
    core.table.find_or_make("a").phase = SENT
    validate(core)
    return core


def hold(core, key):
    state = core.table.states[key]
    state.phase = UNSENT
    core.unsent[state] = None


def count_for(core, function):
    core.table.states["a"].function = function
    function.n_wanted = 1
    return function


def fetch(core, *states, holder="tcp://w:1", nbytes=0):
    core.last_request += 1
    core.fetches[core.last_request] = FetchUnderWay(holder, list(states), nbytes)
    core.n_fetches[holder] = core.n_fetches.get(holder, 0) + 1
    core.nbytes_in_flight += nbytes


def borrow(core, state, loans):
    waiting = Waiting(TaskRecord(state, F, b"<args>", ["lent"], NO_OPTIONS), loans, 0.0)
    waiting.shared = [state]
    core.waiting.append(waiting)
    core.waiting_states[state] = None
    if state.key not in core.table.states:
        state.n_references = 0


L = Loan("the lender", {"lent": None})
F = FunctionRecord(b"f" * 16, b"<f>", "f")

BREAKAGES = {
    "states are filed by their key": lambda core, a: setattr(a, "key", "b"),
    "states in the table have futures": lambda core, a: setattr(a, "n_references", 0),
    "a state has a failure iff it failed": lambda core, a: setattr(a, "failure", ["exception", ""]),
    "only finished states have data": lambda core, a: setattr(a, "blob", b"1"),
    "watchers wait for what is not here": lambda core, a: [
        setattr(a, name, value)
        for name, value in (("status", "finished"), ("blob", b"1"), ("watchers", Watcher(True)))
    ],
    "no submission is open between events": lambda core, a: setattr(core, "open_nbytes", 1),
    "all unsent states are known": lambda core, a: core.unsent.update({FutureState("b"): None}),
    "unsent are the states of that phase": lambda core, a: setattr(a, "phase", UNSENT),
    "kept are the states of that phase": lambda core, a: setattr(a, "phase", KEPT),
    "kept states are done": lambda core, a: [
        setattr(a, "phase", KEPT),
        core.kept.update({a: None}),
    ],
    "the makers of results that are gone are forgotten": lambda core, a: [
        core.made.update({a: 1}),
        setattr(a, "phase", GONE),
    ],
    "no input is left to be released between events": lambda core, a: core.temporary.update(
        {"b": None}
    ),
    "nothing is unsent while linked": lambda core, a: hold(core, "a"),
    "only sent states count for functions": lambda core, a: [
        count_for(core, F),
        setattr(a, "phase", "gone"),
    ],
    "functions count their states": lambda core, a: setattr(count_for(core, F), "n_wanted", 2),
    "waiting states are those of waiting submissions": lambda core, a: core.waiting_states.update(
        {a: None}
    ),
    "what waits has a loan to wait for, or is behind one": lambda core, a: borrow(core, a, []),
    "waiting submissions hold their states": lambda core, a: borrow(core, FutureState("b"), [L]),
    "nothing waits for other clients at the end": lambda core, a: [
        borrow(core, a, [L]),
        setattr(core, "is_linked", False),
        setattr(core, "end", ["client-closed"]),
    ],
    "a client at its end is not linked": lambda core, a: setattr(core, "end", ["client-closed"]),
    "all is answered for while linked": lambda core, a: setattr(core, "unanswered", {"a": None}),
    "barriers are in order": lambda core, a: [
        core.barriers.update({"a": 2, "b": 1}),
        setattr(core, "last_request", 2),
    ],
    "what is let go has no barrier yet": lambda core, a: [
        core.barriers.update({"a": 0}),
        core.let_go.update({"a": None}),
    ],
    "requests are numbered": lambda core, a: setattr(core, "check", core.last_request + 1),
    "no fetch queue is empty": lambda core, a: core.fetch_queues.update({"tcp://w:1": {}}),
    "a state is fetched once": lambda core, a: core.fetching.update({a: None}),
    "requests are counted by holder": lambda core, a: core.n_fetches.update({"tcp://w:1": 1}),
    "requests of a holder are few": lambda core, a: [
        fetch(core) for _ in range(fetching.MAX_REQUESTS_PER_HOLDER + 1)
    ],
    "bytes in flight are counted": lambda core, a: setattr(core, "nbytes_in_flight", 1),
    "the scheduler is asked for data while linked": lambda core, a: [
        fetch(core, holder=THROUGH_SCHEDULER),
        setattr(core, "is_linked", False),
    ],
    "reasons of holders are few": lambda core, a: core.unreachable_reasons.update(
        {f"tcp://w:{i}": "no route" for i in range(fetching.MAX_REASONS + 1)}
    ),
    "no batch is left between events": lambda core, a: core.touched.append(Watcher(True)),
    "no confirmation is left to be asked for between events": lambda core, a: (
        core.to_confirm.append(Watcher(False))
    ),
    "confirmations are asked for while linked": lambda core, a: core.confirmations.append(
        (Watcher(False), 0)
    ),
    "bytes of what was set are counted": lambda core, a: setattr(remembered_of(core), "nbytes", 1),
    "more was put into a queue than taken out": lambda core, a: remembered_of(core).queues.update(
        {"q": QueueUse(1, 1)}
    ),
    "watchers of the cluster want more workers": lambda core, a: cluster_of(core).watched.append(
        WatchCluster(Watcher(False), 0)
    ),
}


@pytest.mark.parametrize("name", BREAKAGES)
def test_a_broken_invariant_is_named(core, name):
    BREAKAGES[name](core, core.table.states["a"])
    with pytest.raises(InvalidState, match=f"^{name}; found"):
        validate(core)


def test_every_invariant_is_broken_by_a_test(core):
    assert [*INVARIANTS, *core.features.invariants] == list(BREAKAGES)


def test_the_error_describes_the_state_that_breaks_the_invariant(core):
    core.table.states["a"].blob = b"1"
    with pytest.raises(InvalidState) as caught:
        validate(core)
    assert "phase: 'sent'" in str(caught.value)
    assert "blob: True" in str(caught.value)


def test_a_description_shows_no_results():
    state = FutureState("a")
    assert state.value is NO_VALUE
    assert "value: False" in state.describe()
