"""The memory that clients and workers can make the scheduler use is bounded in bytes."""

from __future__ import annotations

import pytest

from tests.scheduler.builders import graph
from weft.protocol.errors import TaskErred
from weft.protocol.story import MAX_CHARS, Story
from weft.protocol.values.exceptions import pack_exception, unpack_exception
from weft.scheduler.core.insight.metrics import metrics
from weft.scheduler.core.records import failures as failures_module
from weft.scheduler.core.records.failures import Failures
from weft.scheduler.core.records.prefixes import (
    MAX_IDLE,
    MAX_NAME_CHARS,
    MAX_SHOWN,
    OTHER,
    Prefixes,
)


def seconds(prefixes: Prefixes) -> dict[str, float]:
    return prefixes.totals(lambda prefix: prefix.compute_ns / 1e9)


def test_names_without_functions_are_bounded_and_their_sums_stay():
    prefixes = Prefixes()
    n = 10_000
    for i in range(n):
        prefix = prefixes.take(f"f{i}")
        prefix.learn(1, 10**9)
        prefixes.give_back(prefix)
    assert len(prefixes) == MAX_SHOWN + MAX_IDLE
    assert sum(seconds(prefixes).values()) == n
    assert len(seconds(prefixes)) == MAX_SHOWN + 1


def test_no_series_of_a_name_ever_vanishes_or_decreases():
    prefixes = Prefixes()
    last: dict[str, float] = {}
    for i in range(2500):
        # Some come back, and later ones take much more time than the first.
        prefix = prefixes.take(f"f{i % (2 * MAX_IDLE)}")
        prefix.learn(1, 10**6 * (i + 1))
        prefixes.give_back(prefix)
        if i % 10:
            continue
        found = seconds(prefixes)
        assert all(found[name] >= value for name, value in last.items())
        last = found


def test_a_name_in_use_is_kept_and_a_function_called_other_is_one_of_the_others():
    prefixes = Prefixes()
    kept = prefixes.take("kept" + "x" * MAX_SHOWN)
    for i in range(MAX_SHOWN):
        prefixes.take(f"early{i}")
    late = prefixes.take("late")
    other = prefixes.take(OTHER)
    other.learn(2, 2 * 10**9)
    for i in range(2 * MAX_IDLE):
        prefixes.give_back(prefixes.take(f"f{i}"))
    assert prefixes.take("late") is late
    assert prefixes.take(kept.name) is kept
    assert seconds(prefixes)[OTHER] == 2


def test_a_long_name_is_cut():
    prefixes = Prefixes()
    assert len(prefixes.take("x" * 65_536).name) == MAX_NAME_CHARS
    assert prefixes.take("x" * 65_536) is prefixes.take("x" * 65_536)


def test_the_story_is_bounded_by_the_length_of_keys():
    story = Story()
    long = MAX_CHARS // 4
    for i in range(10):
        story.note(float(i), "submitted", [f"{i}" * long])
    assert story.ring.size <= MAX_CHARS
    assert story.of("9" * long) == ["9.000000 submitted"]
    assert story.of("0" * long) == []
    # Even one entry is not kept at any price.
    story.note(11.0, "submitted", ["x" * (MAX_CHARS + 1)])
    assert story.ring.size <= MAX_CHARS
    assert story.of("9" * long) == ["9.000000 submitted"]


def failure_of(text: str) -> list[object]:
    return ["exception", "k", *pack_exception(ValueError(text), "k", "w")]


def test_failures_beyond_the_limit_are_cut_to_type_and_text(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(failures_module, "MAX_NBYTES", 50_000)
    kept = Failures()
    whole = kept.fit(failure_of("x" * 10_000))
    assert isinstance(unpack_exception(whole[2:]), ValueError)
    kept.add(whole)
    kept.add(whole)
    cut = kept.fit(failure_of("y" * 30_000))
    kept.add(cut)
    assert kept.nbytes < 50_000
    error = unpack_exception(cut[2:], "k")
    assert isinstance(error, TaskErred)
    assert str(error).startswith("task 'k' raised ValueError: yyy")
    assert "too many failures" in error.__notes__[0]
    for failure in (whole, whole, cut):
        kept.remove(failure)
    assert (len(kept), kept.nbytes) == (0, 0)


def test_erred_tasks_count_their_failure_while_they_are_kept(board):
    alice, worker = board.client(), board.worker()
    board.send(alice, graph("a -> b"))
    board.raise_(worker, "a")
    state = board.state
    assert board.states("a", "b") == ["erred", "erred"]
    assert len(state.failures) == 1
    assert state.failures.nbytes > 0
    board.close(alice)
    board.pass_time(120)
    assert not state.tasks
    assert state.failures.nbytes == 0
    assert metrics(state)["tasks_failed_total"]["exception"] == 1
