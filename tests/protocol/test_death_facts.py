"""The facts about a worker that died: their text, their ways, and their bounds."""

from __future__ import annotations

import msgpack
import pytest

from weft.protocol.death_facts import (
    MAX_LINE_CHARS,
    MAX_LINES,
    MAX_LOG_CHARS,
    DeathFacts,
    HeldResults,
    last_lines_of,
    most_of,
)
from weft.protocol.deaths import OUT_OF_MEMORY

KNOWN = DeathFacts(
    peak_nbytes=300 << 20,
    n_oom_kills=2,
    held_most=(HeldResults("load", 3, 200 << 20), HeldResults("a b", 1, 5)),
    last_lines=("12:00:00 WARNING app: first", "12:00:01 WARNING app: second"),
)


def test_the_text_has_a_line_about_memory_and_then_the_log():
    assert str(KNOWN).splitlines() == [
        "Its memory was 300 MiB at most; it held 3 results of load (200 MiB), 1 result of a b "
        "(5 B); the kernel's out-of-memory killer ended 2 processes of its control group.",
        "The last lines of its log:",
        "  12:00:00 WARNING app: first",
        "  12:00:01 WARNING app: second",
    ]


def test_unknown_facts_have_no_text():
    assert str(DeathFacts()) == DeathFacts().of_memory() == ""
    assert str(DeathFacts(n_oom_kills=0)) == ""
    assert str(DeathFacts(last_lines=("a",))) == "The last lines of its log:\n  a"


@pytest.mark.parametrize("facts", [KNOWN, DeathFacts(), DeathFacts(0, 0), DeathFacts(5)])
def test_facts_come_back_from_reports_and_failures(facts):
    plain = msgpack.unpackb(msgpack.packb(facts.to_plain()))
    assert DeathFacts.from_plain(plain).holding(facts.held_most) == facts
    items = facts.to_items()
    assert {type(item) for item in items} <= {int, str, type(None)}, "a failure is flat"
    assert DeathFacts.from_items(items) == facts
    assert DeathFacts.from_items([*items, "of a later version"]) == facts


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"peak_nbytes": -1, "n_oom_kills": "many", "last_lines": 7, "later": [1]},
        {"peak_nbytes": True, "n_oom_kills": 1.5, "last_lines": ["a"]},
    ],
)
def test_facts_that_are_not_understood_are_left_out(plain):
    assert DeathFacts.from_plain(plain) == DeathFacts()


@pytest.mark.parametrize("items", [[], [None], ["x", "y", 3, 4], [-1, -1, "a\n1\n1 2\nx y z"]])
def test_items_of_a_failure_that_are_not_understood_are_left_out(items):
    assert DeathFacts.from_items(items) == DeathFacts()


def test_the_last_lines_of_a_log_are_few_short_and_printable():
    lines = last_lines_of("\n".join(f"line {i}" for i in range(100)) + "\n\n")
    assert lines == tuple(f"line {i}" for i in range(100 - MAX_LINES, 100))
    assert last_lines_of("a\x1b[31m\tb\r") == ("a [31m b",)
    (long,) = last_lines_of("x" * 5000)
    assert len(long) == MAX_LINE_CHARS
    assert long.endswith("x [...]")
    many = last_lines_of("\n".join("y" * MAX_LINE_CHARS for _ in range(MAX_LINES)))
    assert sum(map(len, many)) <= MAX_LOG_CHARS
    assert len(many) == MAX_LOG_CHARS // MAX_LINE_CHARS


def test_the_functions_whose_results_took_most_bytes_come_first():
    sizes = [("small", 1), ("big", 50), ("none", 0), ("small", 2), ("mid", 9), ("four", 4)]
    assert most_of(sizes) == [
        HeldResults("big", 1, 50), HeldResults("mid", 1, 9), HeldResults("four", 1, 4)
    ]  # fmt: skip
    assert most_of([("none", 0)]) == []


def test_facts_about_memory_are_told_of_deaths_that_may_be_of_memory():
    facts = DeathFacts(1 << 30, 0)
    for reason in ("memory limit: 2.00 of 1.00 GiB", OUT_OF_MEMORY, "killed by SIGKILL, by whom"):
        assert facts.of_memory_after(reason) == "; its memory was 1 GiB at most"
        assert DeathFacts().of_memory_after(reason) == ""
    assert facts.of_memory_after("exit code 3") == facts.of_memory_after("killed by SIGSEGV") == ""
