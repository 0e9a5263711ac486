"""The bytecodes that a task costs: counted in real processes, and the tables of two states."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from benchmarks import bytecode_counts, bytecodes
from benchmarks.framework.checkouts import add_other
from benchmarks.framework.driving import ROOT


@pytest.mark.slow
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
        finished = by_role["scheduler"]["weft/scheduler/core/reports/completion.py:on_finished"]
        assert finished[0] > finished[1] > 0, case
        assert bytecodes.total(by_role["client"]) > 64, case


@pytest.mark.slow
def test_sigterm_ends_the_processes_that_were_started(wait_until):
    script = ROOT / "benchmarks" / "bytecode_counts.py"
    # More tasks than can end before the signal.
    command = [sys.executable, str(script), "run", "submits:10000000"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as counting:
        me = psutil.Process(counting.pid)
        wait_until(lambda: len(me.children()) == 2, 60.0, "scheduler and worker have begun")
        started = me.children(recursive=True)
        counting.terminate()
        assert counting.wait(60) == 128 + signal.SIGTERM
    assert psutil.wait_procs(started, timeout=10)[1] == []


def test_another_checkout_without_an_environment_is_refused_before_anything_runs(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_other(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([str(tmp_path)])
    assert f"has no .venv; run: make -C {tmp_path}" in capsys.readouterr().err
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").touch()
    assert parser.parse_args([str(tmp_path)]).other == tmp_path


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
