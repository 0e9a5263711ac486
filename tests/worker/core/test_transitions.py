"""transitions.py: the table, moves that it lacks, and the functions that may change a state.

The fused lanes do the same as the moves of the table: `TestLanes` in
tests/worker/core/test_state_machine.py proves it.
"""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from tests.worker.builders import assign
from weft.protocol.errors import InvalidTransition
from weft.worker.core.features import FEATURES
from weft.worker.core.state import WorkerState
from weft.worker.core.tasks import EXECUTING, FORGOTTEN, NEW, NO_FUNCTION, State, WorkerTask
from weft.worker.core.transitions import TRANSITIONS, move
from weft.worker.core.validate import validate

STATES = get_args(State)
ROOT = Path(__file__).parents[3]
LANES = {"on_assign_tasks", "link", "wake", "fill", "finish", "on_drop_attempts"}


def test_every_state_can_be_reached_and_left_and_the_end_is_the_end():
    reached = {NEW}
    while more := {b for a, b in TRANSITIONS if a in reached} - reached:
        reached |= more
    assert reached == set(STATES)
    assert {a for a, _ in TRANSITIONS} == set(STATES) - {FORGOTTEN}
    assert all(TRANSITIONS.values())


@pytest.mark.parametrize(
    ("start", "finish"), [pair for pair in product(STATES, STATES) if pair not in TRANSITIONS]
)
def test_a_move_that_the_table_lacks_raises_and_changes_nothing(start, finish):
    record = WorkerTask("x", 1, 0, NO_FUNCTION, b"", 0)
    record.state = start
    with pytest.raises(InvalidTransition) as caught:
        move(WorkerState(1, "tcp://me", FEATURES), record, finish)
    assert (caught.value.start, caught.value.finish) == (start, finish)
    assert record.state == start


def test_an_invalid_transition_describes_the_record_and_its_neighbours(worker):
    worker.receive(assign("1 a", "2 b <- a", "3 c <- b"))
    with pytest.raises(InvalidTransition) as caught:
        move(worker.state, worker.state.by_key["b"], EXECUTING)
    record, reads, is_waited_for = caught.value.story
    assert "'b' attempt 2 waiting" in record
    assert "waits for 1 inputs" in record
    assert reads.startswith("reads <WorkerTask 'a'")
    assert is_waited_for.startswith("is waited for by <WorkerTask 'c'")
    validate(worker.state)


def test_only_moves_and_the_lanes_change_a_state():
    found = set()
    for path in (ROOT / "worker" / "core").glob("*.py"):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    targets = node.targets if isinstance(node, ast.Assign) else []
                    if any(isinstance(t, ast.Attribute) and t.attr == "state" for t in targets):
                        found.add(function.name)
    assert found == {"move"} | LANES


def test_the_readme_shows_the_table():
    rows = [f"| {start} | {finish} | {why} |" for (start, finish), why in TRANSITIONS.items()]
    table = "\n".join(["| from | to | because |", "|---|---|---|", *rows]) + "\n"
    readme = ROOT / "worker" / "README.md"
    assert table in readme.read_text(encoding="utf-8"), f"put this into {readme}:\n{table}"
