"""The table of futures, while finalizers of the user run within its methods."""

from __future__ import annotations

import gc
import threading

import pytest

from tests.client.client_kit import Cycle
from weft.client.core.table import FutureTable
from weft.client.core.tasks import FutureState


class EndedLock:
    """The lock of a table, but a thread that would wait for itself fails."""

    def __init__(self):
        self.lock = threading.RLock()

    def __enter__(self):
        assert self.lock.acquire(timeout=5)

    def __exit__(self, *_):
        self.lock.release()


@pytest.fixture
def collects_always():
    before = gc.get_threshold()
    gc.set_threshold(1)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def table():
    return FutureTable(EndedLock())


@pytest.mark.usefixtures("collects_always")
@pytest.mark.parametrize("act", ["attach", "find_or_make"])
def test_a_finalizer_that_attaches_to_the_same_key_shares_its_state(table, act):
    found = []
    for i in range(5):
        key = f"key-{i}"
        seen = []

        def attach(key=key, seen=seen):
            seen.append(table.find_or_make(key))
            seen.extend(table.attach([key])[0])

        Cycle(attach)
        seen += table.attach([key])[0] if act == "attach" else [table.find_or_make(key)]
        gc.collect(0)
        assert len(seen) == 3
        assert all(state is table.states[key] for state in seen)
        assert table.states[key].n_references == 3
        found += seen
    assert len(table.detach(found)) == 5
    assert not table.states


def test_a_key_that_a_finalizer_takes_while_its_state_is_made_has_one_state(table, monkeypatch):
    """At each state that the table makes, as the collector may do."""
    states = []
    make = FutureState.__init__

    def made(state, key):
        make(state, key)
        monkeypatch.setattr(FutureState, "__init__", make)
        states.extend(table.attach([key])[0])

    for n, attach in enumerate([lambda k: table.attach([k])[0][0], table.find_or_make], 1):
        monkeypatch.setattr(FutureState, "__init__", made)
        states.append(attach(f"key-{n}"))
        assert states[-1] is states[-2] is table.states[f"key-{n}"]
        assert states[-1].n_references == 2


def test_a_failed_state_is_replaced_once_if_a_finalizer_does_it_meanwhile(table, monkeypatch):
    ((failed,), _) = table.attach(["key"])
    failed.status = "error"
    nested = []
    make = FutureState.__init__

    def made(state, key):
        make(state, key)
        monkeypatch.setattr(FutureState, "__init__", make)
        nested.append(table.attach([key]))

    monkeypatch.setattr(FutureState, "__init__", made)
    (state,), replaced = table.attach(["key"])
    ((other,), others) = nested[0]
    assert state is other is table.states["key"]
    assert (replaced, others) == ([], [failed])
    assert state.n_references == 2
