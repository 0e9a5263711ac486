"""The bytecodes that a task costs: counted in real processes, and the tables of two states."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

from benchmarks import bytecode_counts, bytecodes
from benchmarks.framework.driving import ROOT


def test_each_case_is_counted_in_the_client_and_in_the_scheduler():
    script = ROOT / "benchmarks" / "bytecode_counts.py"
    cases = [f"{case}:64" for case in bytecodes.CASES]
    ran = subprocess.run(
        [sys.executable, str(script), "run", *cases],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(ran.stdout)
    assert [*found] == [*bytecodes.CASES]
    for case, by_role in found.items():
        assert [*by_role] == [*bytecodes.ROLES], case
        finished = by_role["scheduler"]["weft/scheduler/core/completion.py:on_finished"]
        assert finished[0] > finished[1] > 0, case
        assert bytecodes.total(by_role["client"]) > 64, case


def test_only_what_runs_between_begin_and_end_is_counted():
    counter = bytecode_counts.BytecodeCounter()
    tracer = sys.gettrace()
    counter.install()
    try:
        bytecode_counts.inc(0)
        counter.begin()
        bytecode_counts.inc(1)
        bytecode_counts.inc(2)
        found = counter.end()
        bytecode_counts.inc(3)
    finally:
        sys.settrace(tracer)
        threading.settrace(None)  # type: ignore[arg-type]
    (name,) = [name for name in found if name.endswith(":inc")]
    n, n_calls = found[name]
    assert n_calls == 2
    assert n % 2 == 0
    assert n >= 4


def test_the_table_has_both_states_and_the_functions_that_differ_most(monkeypatch):
    monkeypatch.setattr(bytecodes, "CASES", {"map": 10})
    other = {"map": {"client": {"a:f": [100, 1], "a:g": [50, 1]}, "scheduler": {"b:h": [40, 1]}}}
    this = {"map": {"client": {"a:f": [100, 1], "a:g": [80, 1]}, "scheduler": {"b:i": [20, 1]}}}
    assert bytecodes.render(other, this).splitlines()[2] == (
        "| map | 15 | 18 | 1.200 | 4 | 2 | 0.500 |"
    )
    shown = bytecodes.render_functions(other, this, 1)
    assert "+3.0  a:g" in shown
    assert "-4.0  b:h" in shown
    assert "a:f" not in shown
