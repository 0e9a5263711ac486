"""The command itself: a short round, and its report of a missing or wrong result."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.deploy.daemons import ROOT
from tests.trouble.__main__ import Outcome, Watched, _count
from tests.trouble.graph import Failing, described, draw, serial

pytestmark = pytest.mark.slow


def test_a_short_round_ends_with_all_results(tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.trouble", "--rounds", "1", "--tasks", "100"),
            *("--hosts", "1", "--trouble", "3", "--folder", str(tmp_path / "logs")),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 0: 100 tasks" in done.stdout
    assert "0 missing, 0 wrong" in done.stdout
    assert done.stdout.endswith("failed: none\n")
    assert not list((tmp_path / "logs").iterdir())


def test_a_seed_is_a_graph_and_clients_share_the_beginning_of_it():
    first, second = draw(3, 0, 500), draw(3, 1, 500)
    assert first == draw(3, 0, 500)
    assert first[:50] == second[:50]
    assert first[50:] != second[50:]
    assert {call.kind for call in first} == {"plain", "flaky", "failing", "cutting", "impure"}
    results = serial(3, first)
    for call, result in zip(first, results, strict=True):
        if call.kind == "failing" or "Failing" in [results[i] for i in call.inputs]:
            assert result == described(Failing(call.number))
        elif call.nbytes:
            assert result.startswith(f"{call.nbytes} bytes, ")


def test_missing_and_wrong_results_are_named_and_counted():
    report = {
        "n_missing": 1,
        "n_wrong": 1,
        "done": 2,
        "missing": [[5, "plain-1", "pending"]],
        "wrong": [[6, "plain-2", "this", "that"]],
    }
    code = f"print({json.dumps({'report': report})!r})"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        client = Watched(child)
        client.join()
        outcome = Outcome(seed=1, tasks=10)
        _count(outcome, client)
    assert (outcome.missing, outcome.wrong, outcome.is_good) == (1, 1, False)
    assert "missing: call 5, key plain-1, its future is pending" in outcome.diagnosis
    assert "wrong: call 6, key plain-2: this instead of that" in outcome.diagnosis


def test_a_client_that_ends_without_a_report_counts_as_missing():
    code = "print('{\"wanted\": 7}'); raise SystemExit(3)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        client = Watched(child)
        client.join()
        outcome = Outcome(seed=1, tasks=10)
        _count(outcome, client)
    assert outcome.missing == 7
    assert not outcome.is_good
