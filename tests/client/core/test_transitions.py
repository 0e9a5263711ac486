"""The table of moves: a state makes no other moves, and the fused lanes make the same ones."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from itertools import product
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.client.core import answers, operations
from weft.client.core.events import (
    AnswersReceived,
    Cancel,
    ClientTick,
    Connected,
    Disconnected,
    Operations,
    Watch,
)
from weft.client.core.features import FEATURES
from weft.client.core.state import ClientState
from weft.client.core.submitting import add_row, close_submissions
from weft.client.core.table import FutureTable
from weft.client.core.tasks import (
    FINISHED,
    GONE,
    SENT,
    FunctionRecord,
    FutureState,
    Phase,
    Status,
    TaskColumns,
    TaskRecord,
    Watcher,
)
from weft.client.core.transitions import TRANSITIONS, move, set_status
from weft.client.core.validate import validate
from weft.client.core.watching import fail_released, wake
from weft.protocol.errors import InvalidTransition
from weft.protocol.wire.messages import KeysErred, KeysUnknown, ResultsReady
from weft.protocol.wire.options import NO_OPTIONS

README = Path(__file__).parents[3] / "client" / "README.md"
PHASES = Phase.__args__
STATUSES = Status.__args__


def table() -> str:
    """Render the transitions as README.md shows them."""
    rows = [f"| {start} | {finish} | {why} |" for (start, finish), why in TRANSITIONS.items()]
    return "\n".join(["| from | to | because |", "|---|---|---|", *rows]) + "\n"


def test_readme_shows_the_transitions_of_the_code():
    assert table() in README.read_text(encoding="utf-8"), f"put this into {README}:\n{table()}"


@pytest.mark.parametrize(
    ("start", "finish"), [*product(PHASES, PHASES), *product(STATUSES, STATUSES)]
)
def test_a_move_that_the_table_lacks_is_refused_with_a_description(start, finish):
    core = ClientState(FutureTable(nullcontext()), FEATURES)
    state = FutureState("a")
    is_phase = start in PHASES
    if is_phase:
        state.phase = start
        if start in ("unsent", "kept"):
            getattr(core, start)[state] = None
    else:
        state.status = start
    is_listed = (start, finish) in TRANSITIONS
    with (
        nullcontext()
        if is_listed or (start == finish and not is_phase)
        else pytest.raises(
            InvalidTransition, match=f"'a' cannot go from {start} to {finish}"
        ) as caught
    ):
        move(core, state, finish) if is_phase else set_status(state, finish)
    if caught is None:
        assert (state.phase if is_phase else state.status) == finish
        assert (state in core.unsent) == (state.phase == "unsent")
        assert (state in core.kept) == (state.phase == "kept")
    else:
        assert f"{'phase' if is_phase else 'status'}: {start!r}" in str(caught.value)


# --- The fused lanes, once more in small steps ----------------------------------------------------


def slow_submit(core, state, task, options):
    add_row(core, task, state.key, options)
    if state.phase != SENT:
        move(core, state, SENT)
    assert state.function is None
    state.function = task.function
    task.function.n_wanted += 1


def slow_submit_columns(core, tasks, states):
    close_submissions(core)
    for state in states:
        slow_submit(core, state, tasks.row(state.key), tasks.options)
    close_submissions(core)


def slow_on_results_ready(core, message):
    for key, blob in zip(message.keys, message.results, strict=True):
        state = answers.find(core, key)
        if state is not None:
            state.blob = blob
            state.spec = None
            set_status(state, FINISHED)
            wake(core, state)


def slow_on_released(core, released):
    keys = []
    for state in core.table.detach(released):
        if state.phase == SENT:
            keys.append(state.key)
        if state.phase != GONE:
            move(core, state, GONE)
        if state.watchers is not None and state.failure is None and not state.has_data:
            fail_released(core, state)
    operations.release(core, keys)


class Side:
    """One of two cores with the same users."""

    def __init__(self):
        self.table = FutureTable(nullcontext())
        self.core = ClientState(self.table, FEATURES)
        self.functions = [FunctionRecord(c * 16, b"<f>", "f") for c in (b"f", b"g")]
        self.futures = []
        self.seen = []

    def do(self, step):
        kind, n, names = step
        operation = None
        if kind == "submit":
            (state,), replaced = self.table.attach([f"k{n}"])
            operation = TaskRecord(
                state, self.functions[n % 2], b"1", [], NO_OPTIONS, None, *replaced
            )
            self.futures.append(state)
        elif kind == "map":
            states, replaced = self.table.attach([f"k{name}" for name in names])
            operation = TaskColumns(
                states, self.functions[0], [b"1"] * len(states), [], NO_OPTIONS, None, replaced
            )
            self.futures += states
        elif self.futures and kind == "release":
            operation = self.futures.pop(n % len(self.futures))
        elif self.futures and kind == "cancel":
            operation = Cancel([self.futures[n % len(self.futures)]])
        elif self.futures and kind == "watch":
            operation = Watch(Watcher(wants_data=n % 2 == 0), self.futures[:: n + 1])
        if operation is not None:
            self.handle(Operations([operation]))
        elif kind == "ready":
            keys = list(dict.fromkeys(f"k{name}" for name in names))
            self.handle(AnswersReceived([ResultsReady(keys=keys, results=[b"r"] * len(keys))]))
        elif kind == "erred":
            failure = ["exception", f"k{n}", b"", "T", "t", "", b""]
            self.handle(
                AnswersReceived([KeysErred(keys=[f"k{n}"], failure_of=[0], failures=[failure])])
            )
        elif kind == "unknown":
            self.handle(AnswersReceived([KeysUnknown(keys=[f"k{n}"])]))
        elif kind == "reconnect":
            self.handle(Disconnected())
            self.handle(Connected())
        elif kind == "restart":
            self.handle(Disconnected())
            self.handle(Connected(epoch=self.core.epoch + 1))
        elif kind == "tick":
            self.handle(ClientTick())

    def handle(self, event):
        core = self.core
        core.handle(event, 1.0)
        validate(core)
        notified = [[state.key for state in notify.items] for notify in core.before]
        self.seen.append((core.to_scheduler, notified, core.after))
        core.before, core.to_scheduler, core.after = [], [], []

    def facts(self):
        states = [*self.table.states.values(), *self.futures]
        return [
            (s.key, s.phase, s.status, s.blob, s.failure, s.n_references, s.spec is None)
            for s in states
        ] + [f.n_wanted for f in self.functions]


KINDS = (
    "submit map map release release cancel watch ready ready erred unknown reconnect restart tick"
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS.split()),
        st.integers(0, 7),
        st.lists(st.integers(0, 7), min_size=1, max_size=4),
    ),
    max_size=40,
)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_the_fused_lanes_do_what_the_moves_of_the_table_do(steps):
    fast, slow = Side(), Side()
    fast.handle(Connected())
    slow.handle(Connected())
    for step in steps:
        fast.do(step)
        with ExitStack() as stack:
            for module, name, replacement in (
                (operations, "submit", slow_submit),
                (operations, "submit_columns", slow_submit_columns),
                (operations, "on_released", slow_on_released),
            ):
                stack.enter_context(patch.object(module, name, replacement))
            handlers = {ResultsReady: slow_on_results_ready}
            stack.enter_context(patch.dict(slow.core.handlers, handlers))
            slow.do(step)
        assert fast.facts() == slow.facts()
        assert fast.seen == slow.seen
