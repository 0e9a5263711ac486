"""Which ends of workers the kernel's out-of-memory killer explains."""

from __future__ import annotations

import os
import subprocess

import pytest

from weft.worker.family.oom_kills import OomClaims, OomMark, kills_since, mark_of


@pytest.fixture
def counter(tmp_path):
    path = tmp_path / "memory.events"

    def count(n):
        path.write_text(f"oom 9\noom_kill {n}\n")
        return path

    count(5)
    return count


def test_only_kills_since_the_start_of_the_worker_count(counter):
    mark = OomMark(counter(5), 5)
    claims = OomClaims()
    assert kills_since(mark) == 0
    assert not claims.claim(mark, kills_since(mark))
    counter(6)
    assert kills_since(mark) == 1
    assert claims.claim(mark, kills_since(mark))


def test_each_kill_explains_the_end_of_one_worker(counter):
    first = second = third = OomMark(counter(5), 5)
    claims = OomClaims()
    counter(7)
    assert [claims.claim(mark, kills_since(mark)) for mark in (first, second, third)] == [
        True,
        True,
        False,
    ]
    later = OomMark(counter(9), 9)
    assert not claims.claim(later, kills_since(later))
    assert claims.claim(third, kills_since(third)), "8 and 9 are not explained yet"


def test_without_a_counter_no_kill_is_known(counter):
    assert kills_since(None) is None
    assert not OomClaims().claim(None, None)
    mark = OomMark(counter(5), 5)
    mark.counter.unlink()
    assert kills_since(mark) is None
    assert not OomClaims().claim(mark, None)


def test_the_mark_of_a_process_is_that_of_its_group():
    mark = mark_of(os.getpid())
    if mark is None:
        pytest.skip("a memory control group that counts kills is missing: Linux with cgroups")
    assert kills_since(mark) >= 0


def test_the_mark_of_a_process_that_has_gone_is_that_of_the_group_it_was_started_in():
    process = subprocess.Popen(["true"])
    process.wait()
    assert mark_of(process.pid) == mark_of(os.getpid())
