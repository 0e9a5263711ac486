"""Lines about a cluster's health, as functions of plain facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from weft.scheduler.core.events import Load
from weft.scheduler.core.insight.health import (
    CHECKS,
    RefusedWorkers,
    SetAside,
    Signs,
    Unreached,
    Unrunnable,
    judge,
)

#: {code: (facts, level, part of the text)}
CASES = {
    "no-workers": (
        Signs(workerless_s=240.0, n_waiting=12), "error",
        "12 tasks wait, and there has been no worker for 4 min: start 'weft worker'",
    ),
    "unrunnable": (
        Signs(unrunnable=[Unrunnable(1, "train", "no worker offers GPU: 1", 30.0)]), "error",
        "1 task of train cannot run, for 30 s: no worker offers GPU: 1. Start such a worker",
    ),
    "recovering": (
        Signs(recovering="recovering: 1 of 3 workers are back"), "warning",
        "1 of 3 workers are back; no task is started until then",
    ),
    "memory": (
        Signs(full=[(0.97, "w3"), (0.81, "w1")], n_full=5), "error",
        "5 workers use more than 80% of the memory (w3 97%, w1 81% and 3 more)",
    ),
    "workers-paused": (
        Signs(paused=["w: 81% of 4 GiB"], n_paused=2), "warning",
        "2 workers are paused, and they get no task before there is room in memory (w: 81% of 4 "
        "GiB; and 1 more). Release results",
    ),
    "workers-blocked": (
        Signs(blocked=["w: blocked by ann: its disk"], n_blocked=2, are_all_blocked=True),
        "warning",
        "2 workers are blocked and there is no other, so no task begins (w: blocked by ann: its "
        "disk; and 1 more). Look at that, then 'weft unblock'",
    ),
    "memory-wait": (
        Signs(n_set_aside=3), "error",
        "3 tasks wait for memory: workers that may run them use more than 80% of theirs",
    ),
    "workers-away": (
        Signs(n_away=2, away_s=5.0), "warning", "if they do not come back within 5 s",
    ),
    "workers-leaving": (
        Signs(leaving=["w: it is leaving, for 2 min"], n_leaving=3), "warning",
        "3 workers cannot leave yet (w: it is leaving, for 2 min; and 2 more). Start workers",
    ),
    "workers-preparing": (
        Signs(n_preparing=2), "warning", "2 new workers set up plugins, and they get no task",
    ),
    "plugins-aside": (
        Signs(set_aside=[SetAside("p", 3, "exit code 4")]), "error",
        "plugin 'p' is set aside: 3 workers in a row died while they set it up (exit code 4), and "
        "later ones work without it. Unregister it, or mend and register it again",
    ),
    "unreached": (
        Signs(unreached=[Unreached(["r1", "r2"], 4, "h", "tls://h:5000", 14, 48.0, 3.0)]),
        "warning",
        "workers r1, r2 and 2 more cannot reach the data port of h at tls://h:5000: 14 fetches "
        "failed within 45 s, the last one 3 s ago. Open that port",
    ),
    "no-progress": (
        Signs(n_processing=3, quiet_s=300.0, expected_s=2.0), "warning",
        "no task has finished for 5 min, with 3 at workers, though the longest usually takes 2 s",
    ),
    "refused-workers": (
        Signs(refused=[RefusedWorkers(2, "it runs Python 3.9", 60.0)]), "warning",
        "2 workers were refused, the last one 60 s ago: it runs Python 3.9",
    ),
    "scheduler-busy": (Signs(load=Load(cpu_share=1.02)), "warning", "100% of the time"),
    "scheduler-late": (Signs(load=Load(loop_lag_s=1.5)), "warning", "up to 1.5 s late"),
    "journal": (
        Signs(journal_error="the disk is full", journal_s=9.0),
        "error",
        "no job could be recorded 9 s ago: the disk is full. New detached calls are refused",
    ),
    "clock": (Signs(load=Load(clock_behind_s=7200.0)), "warning", "is 2 h behind the time"),
}  # fmt: skip


@pytest.mark.parametrize("code", CHECKS)
def test_each_check_has_a_line_that_names_cause_and_remedy(code):
    signs, level, text = CASES[code]
    (line,) = judge(signs)
    assert (line["code"], line["level"]) == (code, level)
    assert text in line["text"]
    assert CHECKS[code].about.endswith(".")


def test_the_documentation_lists_all_lines():
    text = (Path(__file__).parents[4] / "docs" / "status_page.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `") and "/" not in line]
    assert rows == [f"| `{code}` | {check.about} |" for code, check in CHECKS.items()]


WELL = {
    "level": "ok",
    "code": "ok",
    "text": "no problem is known",
    "what": "no problem is known",
    "advice": "",
}


def test_a_cluster_without_signs_is_well():
    assert judge(Signs()) == [WELL]


def test_advice_is_in_the_text_of_a_line_and_apart_from_it():
    (line,) = judge(Signs(workerless_s=5.0))
    assert line["text"] == "there has been no worker for 5 s: start 'weft worker'"
    assert (line["what"], line["advice"]) == (
        "there has been no worker for 5 s", "start 'weft worker'",
    )  # fmt: skip
    (line,) = judge(Signs(refused=[RefusedWorkers(1, "Python 3.12, the cluster has 3.11", 9.0)]))
    assert line["advice"] == "start it as the others are; 'weft info' names it"
    assert line["text"] == (
        "1 worker was refused, the last one 9 s ago: Python 3.12, the cluster has 3.11. Start it "
        "as the others are; 'weft info' names it"
    )


@pytest.mark.parametrize(
    "signs",
    [
        Signs(n_waiting=5),
        Signs(n_processing=1, quiet_s=59.0),
        Signs(n_processing=1, quiet_s=3599.0, expected_s=360.0),
        Signs(n_processing=1, quiet_s=599.0, expected_s=None),
        Signs(n_processing=0, quiet_s=1e9),
        Signs(load=Load(0.89, 0.99, 59.0)),
        Signs(load=Load(clock_behind_s=-1e6)),
        Signs(journal_error="the disk is full", journal_s=301.0),
    ],
)
def test_usual_facts_are_no_line(signs):
    assert judge(signs) == [WELL]


def test_errors_come_before_warnings_and_many_causes_are_bounded():
    many = [Unrunnable(2, f"f{i}", "no worker offers GPU", 9.0) for i in range(10)]
    refused = [RefusedWorkers(1, f"reason {i}", 1.0) for i in range(10)]
    lines = judge(Signs(unrunnable=many, refused=refused, n_away=1, away_s=5.0))
    assert [line["code"] for line in lines] == [
        *["unrunnable"] * 4,
        "workers-away",
        *["refused-workers"] * 3,
    ]
    assert "14 more tasks cannot run" in lines[3]["text"]


def test_a_recovery_explains_why_nothing_progresses():
    signs = Signs(n_processing=1, quiet_s=1e4, workerless_s=5.0, n_waiting=1)
    codes = [line["code"] for line in judge(replace(signs, recovering="recovering"))]
    assert codes == ["recovering"]
