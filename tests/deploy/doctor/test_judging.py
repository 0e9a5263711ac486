"""The judgements of `weft doctor`, on plain numbers."""

from __future__ import annotations

from typing import Any

import pytest

from weft.deploy.doctor.checks import FAILED, OK, WARNING, Finding, report, summary, worst
from weft.deploy.doctor.gathering import choose_asked
from weft.deploy.doctor.judging import (
    judge_certificate,
    judge_clock,
    judge_clocks,
    judge_files,
    judge_health,
    judge_loop,
    judge_machine,
    judge_memory_limits,
    judge_round_trip,
    judge_versions,
    judge_workers,
    skew_of,
)
from weft.scheduler.core.insight.health import RefusedWorkers, Signs, judge

GIB = 1 << 30
FACTS: dict[str, Any] = {
    "open_files": 20,
    "max_open_files": 4096,
    "hard_max_open_files": 1 << 20,
    "rss": GIB // 10,
    "machine_memory": 16 * GIB,
    "available_memory": 8 * GIB,
    "memory_limit": 0,
    "shared_page_nbytes": 2 << 20,
    "temporary_free": 100 * GIB,
}


def levels(checks: list[Finding]) -> list[str]:
    return [check.level for check in checks]


def test_a_machine_with_room_is_all_right():
    checks = judge_machine("m", FACTS)
    assert levels(checks) == [OK] * 4
    assert [check.name for check in checks] == ["memory", "files", "pages", "disk"]
    assert not any(check.advice for check in checks)


def test_small_pages_are_no_fault_but_slower():
    (check,) = [c for c in judge_machine("m", {**FACTS, "shared_page_nbytes": 4096}) if c.advice]
    assert (check.level, check.name) == (OK, "pages")
    assert "shmem_enabled" in check.advice


@pytest.mark.parametrize(
    ("change", "name", "words"),
    [
        ({"available_memory": GIB}, "memory", ["1 GiB of 16 GiB", "--memory-limit"]),
        ({"memory_limit": GIB, "rss": 0.95 * GIB}, "memory", ["control group", "1 GiB", "raise"]),
        ({"max_open_files": 256}, "files", ["20 of at most 256", "ulimit -n 65536"]),
        ({"open_files": 4000}, "files", ["4000 of at most 4096", "refused", "LimitNOFILE"]),
        ({"temporary_free": 1 << 20}, "disk", ["1 MiB are free", "--local-directory"]),
    ],
)
def test_a_shortage_is_named_with_its_remedy(change, name, words):
    (bad,) = [check for check in judge_machine("m", {**FACTS, **change}) if check.level != OK]
    assert bad.name == name
    text = f"{bad.text} {bad.advice}"
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("n_peers", "soft", "hard", "expected"),
    [
        (1000, 4096, 4096, OK),
        (1000, 1024, 1 << 20, WARNING),
        (5000, 4096, 1 << 20, FAILED),
        (5000, 0, 0, OK),
    ],
)
def test_the_limit_of_files_is_judged_by_the_number_of_peers(n_peers, soft, hard, expected):
    facts = {**FACTS, "max_open_files": soft, "hard_max_open_files": hard}
    assert judge_files("scheduler", facts, n_peers).level == expected


def test_a_hard_limit_is_not_proposed_beyond_itself():
    facts = {**FACTS, "max_open_files": 1024, "hard_max_open_files": 1024}
    assert "limits.conf" in judge_files("scheduler", facts, 2000).advice
    facts["hard_max_open_files"] = 4096
    assert "ulimit -n 4096" in judge_files("scheduler", facts, 2000).advice


def test_the_difference_of_clocks_is_taken_from_the_middle_of_the_wait():
    assert skew_of(100.0, 160.5, 101.0) == (60.0, 0.5)
    assert judge_clock("w", 0.9, 0.001).level == OK
    # A long wait shows nothing of the clock.
    assert judge_clock("w", 1.5, 1.0).level == OK
    slow = judge_clock("w", -60.0, 0.1)
    assert slow.level == WARNING
    assert slow.text == "60.000 s behind this machine's (± 0.100 s)"
    assert "NTP" in slow.advice
    assert judge_clock("w", 7200.0, 0.1).level == FAILED


def test_the_clock_of_a_process_that_differs_from_those_of_its_machine_is_a_line():
    clocks = [("w0", 0.01, 0.001), ("w1", 90.0, 0.002), ("w2", -0.01, 0.3), ("w3", 90.1, 0.001)]
    good, bad = judge_clocks("h", [*clocks, ("w4", 0.0, 0.001)])
    assert (good.level, good.place) == (OK, "machine h")
    assert (bad.level, bad.place) == (WARNING, "machine h")
    assert bad.text == (
        "worker w1, worker w3: 90.000 s ahead of this machine's (± 0.002 s), unlike other "
        "processes of machine h"
    )
    assert "NTP" in bad.advice


def test_a_machine_whose_clock_is_off_is_one_line_also_with_many_workers():
    (bad,) = judge_clocks("h", [(f"w{i}", -90.0, 0.001) for i in range(9)])
    assert (bad.level, bad.text) == (WARNING, "90.000 s behind this machine's (± 0.001 s)")


def test_times_of_the_scheduler_are_judged():
    assert judge_round_trip("s", 0.001).level == OK
    assert judge_round_trip("s", 0.2).level == WARNING
    assert [judge_loop("s", lag).level for lag in (0.01, 1.0, 9.0)] == [OK, WARNING, FAILED]


def test_another_minor_version_of_python_fails_and_names_the_workers():
    of = {"python": "3.11.7", "weft": "0.1", "numpy": "2.1"}
    versions = {
        "this process": of,
        "scheduler": {**of, "python": "3.12.1", "numpy": None},
        **{f"w-{i}": {**of, "python": "3.10.2"} for i in range(6)},
    }
    python, packages = judge_versions(versions)
    assert python.level == FAILED
    assert python.text == "3.11 here, 3.10 on w-0, w-1, w-2, w-3 and 2 more"
    assert packages == Finding(
        OK, "versions", "packages", "the same everywhere: weft 0.1, numpy 2.1"
    )


def test_other_versions_of_packages_are_warnings():
    of = {"python": "3.11.7", "weft": "0.1", "numpy": "2.1"}
    versions = {
        "this process": of,
        "scheduler": {**of, "weft": "0.2"},
        "w": {**of, "python": "3.11.9", "numpy": None},
    }
    python, *packages = judge_versions(versions)
    assert python.level == OK
    assert levels(packages) == [WARNING, WARNING]
    assert packages[0].text == "weft: 0.1 on this process, w; 0.2 on scheduler"
    assert packages[1].text == "numpy: 2.1 on this process; none on w"


def test_a_cluster_without_workers_or_with_refused_ones_is_a_warning():
    (check,) = judge_workers("scheduler", {"n_workers": 0, "nthreads": 0})
    assert (check.level, "weft worker" in check.advice) == (WARNING, True)
    refused = [{"name": "w", "host": "h", "why": "Python 3.12, the cluster has 3.11"}]
    cluster = {"n_workers": 2, "nthreads": 2, "refused_workers": refused}
    good, bad = judge_workers("scheduler", cluster)
    assert (good.level, good.text) == (OK, "2 with 2 threads")
    assert bad.text == "w on h was refused: Python 3.12, the cluster has 3.11"


def test_limits_of_workers_are_compared_with_the_memory_of_their_machine():
    workers = [{"memory_limit": 8 * GIB}, {"memory_limit": 8 * GIB}]
    assert judge_memory_limits("m", workers, FACTS).level == OK
    tight = judge_memory_limits("m", workers, {**FACTS, "memory_limit": 8 * GIB})
    assert tight.level == WARNING
    assert tight.text == "2 workers may use 16 GiB of its control group's 8 GiB"
    assert judge_memory_limits("m", [{"memory_limit": 0}], FACTS).level == WARNING


def test_lines_of_the_scheduler_s_health_are_passed_on_with_their_advice():
    lines = judge(
        Signs(
            workerless_s=300.0,
            n_waiting=1,
            full=[(0.9, "w-0")],
            n_full=1,
            refused=[RefusedWorkers(1, "Python 3.12, the cluster has 3.11", 9.0)],
        )
    )
    none, full = judge_health("scheduler", {"health": lines})  # `judge_workers` has the refused one
    assert none == Finding(
        FAILED, "scheduler", "health", "1 task waits, and there has been no worker for 5 min",
        "start 'weft worker'",
    )  # fmt: skip
    assert (full.level, full.advice) == (
        WARNING, "release results, use smaller pieces, or give workers more memory",
    )  # fmt: skip
    assert full.text.startswith("1 worker uses more than 80% of the memory (w-0 90%)")
    assert judge_health("scheduler", {"health": judge(Signs())}) == []
    assert judge_health("scheduler", {}) == []


def test_lines_of_an_older_scheduler_have_their_advice_in_the_text():
    lines = [{"level": "warning", "code": "full", "text": "w-0 is full: release results"}]
    (line,) = judge_health("scheduler", {"health": lines})
    assert (line.text, line.advice) == ("w-0 is full: release results", "")


def test_a_certificate_is_judged_by_the_time_that_is_left():
    days = [judge_certificate("way", n * 86400.0, "TLSv1.3, pinned") for n in (3000, 10, -2)]
    assert levels(days) == [OK, WARNING, FAILED]
    assert days[0].text == "TLSv1.3, pinned, valid for 3000 days"
    assert "expired 2 days ago" in days[2].text


def test_of_many_workers_one_of_each_machine_is_asked_first():
    workers = [{"name": f"{host}{i}", "host": host} for host in "ab" for i in range(3)]
    chosen = choose_asked([*workers, {"name": "c0", "host": "c"}], 4)
    assert [worker["name"] for worker in chosen] == ["a0", "b0", "c0", "a1"]


def test_the_report_is_by_place_and_ends_with_a_count():
    checks = [
        Finding(OK, "this machine", "memory", "8 GiB"),
        Finding(FAILED, "scheduler", "loop", "it is late", "give it a core of its own"),
        Finding(WARNING, "this machine", "disk", "full " * 30, "make room"),
    ]
    text = report(checks)
    lines = text.splitlines()
    assert lines[0] == "this machine"
    assert lines[1] == "  ok        memory      8 GiB"
    assert lines[-2].strip() == "-> give it a core of its own"
    assert lines[-1] == "1 ok, 1 with a warning, 1 failed"
    assert max(map(len, lines)) <= 100
    assert worst(checks) == FAILED
    assert worst([]) == OK
    plain = summary(checks)
    assert plain["worst"] == "failed"
    assert plain["checks"][0] == {
        "level": "ok",
        "place": "this machine",
        "name": "memory",
        "text": "8 GiB",
        "advice": "",
    }
