"""transactions.py: the log of a recording, one line for each change."""

from __future__ import annotations

import shutil
import subprocess
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.display.test_timeline import timing
from tests.client.recordings import BEGIN, recording, recordings
from weft.client.display.transactions import COLUMNS, HEADER, transactions, word
from weft.client.insight.attempt_timing import record_of
from weft.protocol.wire.keys import text_of


def rows(log):
    """Return the lines below the header as dicts, with times from the beginning in ms."""
    header, *lines = log
    assert header == HEADER
    found = [dict(zip(COLUMNS, line.split(" "), strict=True)) for line in lines]
    return [{**row, "ms": round(int(row["time_us"]) / 1e3 - BEGIN * 1e3)} for row in found]


def test_each_change_of_a_task_is_a_line():
    found = [row for row in rows(transactions(recording())) if row["id"] == "load-1"]
    assert [(row["ms"], row["change"]) for row in found] == [
        *((100, "queued"), (150, "assigned"), (200, "running"), (500, "finished")),
    ]
    queued, assigned, running, finished = found
    assert (queued["worker"], queued["detail"]) == ("-", "alice")
    assert (assigned["worker"], assigned["detail"]) == ("w-0", "-")
    assert (running["thread"], running["attempt"], running["detail"]) == ("0", "1", "load")
    assert finished["seconds"] == "0.300000"
    assert (finished["nbytes"], finished["detail"]) == ("8", "int")


def test_a_task_that_raises_has_a_line_for_the_attempt_and_one_for_the_task():
    found = [row for row in rows(transactions(recording())) if row["id"] == "bad-1"]
    assert [row["change"] for row in found] == ["queued", "assigned", "running", "raised", "failed"]
    assert (found[3]["detail"], found[3]["nbytes"]) == ("ValueError", "-")


def test_time_in_which_a_task_waited_is_not_computed():
    (row,) = [r for r in rows(transactions(recording())) if r["change"] == "finished"][1:]
    assert (unquote(row["id"]), row["seconds"]) == ("('x', 1)", "0.550000")


def test_workers_are_lines_with_their_facts():
    found = [row for row in rows(transactions(recording())) if row["category"] == "worker"]
    assert [(row["id"], row["change"], row["detail"]) for row in found] == [
        ("w-0", "present", "nthreads=1,host=n%201"),
        ("w-1", "present", "nthreads=2,host=n2"),
        ("w-0", "gone", "reason=lost"),
    ]


def test_the_end_says_whether_anything_is_missing():
    assert rows(transactions(recording()))[-1]["detail"] == "complete"


def test_records_of_the_task_stream_alone_have_starts_and_ends():
    log = rows(transactions([record_of(timing(BEGIN, BEGIN + 1))]))
    assert [row["change"] for row in log] == ["begin", "running", "finished", "end"]


def test_awk_reads_the_columns():
    awk = shutil.which("awk")
    if awk is None:
        pytest.skip("awk is missing")
    program = '$2 == "task" && $4 == "finished" {n++; s += $8} END {printf "%d %.2f\\n", n, s}'
    text = "\n".join(transactions(recording()))
    done = subprocess.run([awk, program], input=text, capture_output=True, text=True, check=True)
    assert done.stdout == "2 0.85\n"


@pytest.mark.slow
@given(recordings())
def test_any_log_is_sorted_and_each_line_has_all_columns(any_recording):
    found = rows(transactions(any_recording))
    times = [int(row["time_us"]) for row in found]
    assert times == sorted(times)
    ends = [row for row in found if row["change"] in ("finished", "raised")]
    assert sorted(unquote(row["id"]) for row in ends) == sorted(
        text_of(one.key) for one in any_recording.timings
    )
    n_changes = sum(len(one.keys) for one in any_recording.changes)
    n_attempts = len(any_recording.timings)
    assert len(found) == 2 + 2 * n_attempts + n_changes + len(any_recording.members)


@given(st.text())
def test_a_word_is_one_column_and_has_its_text_in_it(text):
    found = word(text)
    assert found.split() == [found]
    assert found.splitlines() == [found]
    assert unquote(found) == (text or "-")
    assert found != "-" or not text
