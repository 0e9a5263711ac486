"""deaths.py: few lines for many deaths of workers."""

from __future__ import annotations

from weft.protocol.deaths import MAX_CAUSES, DeathLog, summarize

LIMIT = "memory limit: {} of 0.20 GiB, killed by the supervisor"


def test_reasons_that_differ_only_in_sizes_are_one_with_their_range():
    reasons = [LIMIT.format(size) for size in ("0.26", "0.19", "0.22")] + ["killed by SIGSEGV"]
    assert summarize(reasons) == (
        "memory limit: 0.19 to 0.26 of 0.20 GiB, killed by the supervisor (3 times); "
        "killed by SIGSEGV"
    )


def test_addresses_and_exit_codes_are_no_sizes():
    reasons = ["exit code 3", "exit code 4", "no answer of 127.0.0.1:1", "no answer of 127.0.0.2:1"]
    assert summarize(reasons) == "; ".join(reasons)


def test_the_first_death_of_a_cause_is_logged_at_once_and_later_ones_in_one_line():
    log = DeathLog("were lost")
    assert log.note("a", LIMIT.format("0.21"), 0.0)
    assert not log.note("a", LIMIT.format("0.30"), 1.0, n_tasks=2, n_results=30)
    assert not log.note("b", LIMIT.format("0.20"), 2.0, n_tasks=1)
    assert not log.note("a", LIMIT.format("0.25"), 2.5)
    assert log.due(4.9) == []
    assert log.due(5.0) == [
        "workers were lost 3 more times in 5 s (memory limit: 0.20 to 0.30 of 0.20 GiB, killed by "
        "the supervisor): a 2 times, b; 3 tasks are placed again, 30 results were there. Give the "
        "workers more memory (memory_limit=, weft worker --memory-limit), or let each task need "
        "less of it"
    ]
    assert log.due(6.0) == []


def test_each_cause_is_counted_by_itself():
    log = DeathLog("ended")
    assert log.note("a", "exit code 3", 0.0)
    assert log.note("a", "killed by SIGSEGV", 0.0)
    assert not log.note("a", "exit code 3", 1.0)
    assert log.due(5.0) == ["workers ended 1 more time in 5 s (exit code 3): a"]


def test_a_cause_that_goes_on_is_reported_less_and_less_often():
    log, lines = DeathLog("ended"), []
    for second in range(200):
        log.note("a", "exit code 3", float(second))
        lines += [(second, line.split(" (")[0]) for line in log.due(float(second))]
    assert lines == [
        (5, "workers ended 5 more times in 5 s"),
        (15, "workers ended 10 more times in 10 s"),
        (35, "workers ended 20 more times in 20 s"),
        (75, "workers ended 40 more times in 40 s"),
        (135, "workers ended 60 more times in 60 s"),
        (195, "workers ended 60 more times in 60 s"),
    ]


def test_a_cause_that_has_stopped_is_logged_at_once_when_it_comes_again():
    log = DeathLog("ended")
    assert log.note("a", "exit code 3", 0.0)
    assert log.due(5.0) == []
    assert log.note("a", "exit code 3", 6.0)


def test_counted_deaths_are_reported_at_the_end():
    log = DeathLog("ended")
    log.note("a", "exit code 3", 0.0)
    log.note("a", "exit code 3", 1.0)
    assert log.finish(2.0) == ["workers ended 1 more time in 2 s (exit code 3): a"]
    assert log.finish(2.0) == []


def test_causes_and_names_are_bounded():
    log = DeathLog("ended")
    for i in range(MAX_CAUSES + 5):
        log.note("a", f"exit code {i}", 0.0)
    assert not log.note("b", "killed by SIGSEGV", 1.0)
    (line,) = log.due(5.0)
    assert line.startswith("workers ended 6 more times in 5 s (other causes, the last one: killed")
    log = DeathLog("ended")
    for i in range(8):
        log.note(f"w{i}", "exit code 3", 0.0)
    (line,) = log.due(5.0)
    assert line.endswith("w1, w2, w3, w4, w5 and 2 others")
