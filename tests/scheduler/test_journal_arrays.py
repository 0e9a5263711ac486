"""Arrays in the database: states, results and failures of rows are read as they were recorded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weft.protocol.wire import messages as m
from weft.protocol.wire.payload import Payload
from weft.scheduler.core.arrays.records import NONE_BLOB
from weft.scheduler.core.journal.entries import JobEnded, JobForgotten, RowEnded, RowsChanged
from weft.scheduler.journal import arrays as journal_arrays
from weft.scheduler.journal import journal as module
from weft.scheduler.journal.places import jobs_at

from .test_journal import Opened, job, read_again

ARRAY = replace(job("a"), options={"array": [[0, 3, 1, 0], [7, 5000, 1, 4]], "detached": True})
N = 3 + 4993


@pytest.fixture(params=["file", "postgresql"])
def path(request, tmp_path):
    if request.param == "file":
        return tmp_path / "journal.sqlite"
    return request.getfixturevalue("postgresql").url()


@pytest.fixture
def opened(path):
    opened = Opened(path)
    yield opened
    opened.journal.close()


def states(*codes: int, first: int = 0) -> dict[int, int]:
    return {first + place: code for place, code in enumerate(codes)}


def described(opened: Opened, key: str) -> dict:
    (found,) = opened.ask("job", key=key).info["jobs"]
    return found


def test_the_next_scheduler_reads_the_states_of_rows(opened, path):
    assert opened.write(ARRAY, RowsChanged("a", {}, is_new=True)) == ""
    opened.write(RowsChanged("a", states(1, 2) | states(1, first=4096)))
    opened.write(RowsChanged("a", {2: 1, 4: 1}))
    read = read_again(opened, path)
    assert read.arrays == {"a": {0: b"\1\2\1\0\1", 1: b"\1"}}
    assert read.jobs == [ARRAY]


def test_an_array_of_which_no_row_has_ended_is_read_as_one(opened, path):
    opened.write(ARRAY)
    assert read_again(opened, path).arrays == {"a": {}}


def test_an_array_is_described_with_the_counts_of_its_rows(opened, path):
    opened.write(ARRAY, job("b"))
    opened.write(RowsChanged("a", states(1, 3, 4) | states(2, 5, first=4096)))
    rows = {"pending": N - 5, "done": 2, "failed": 1, "cancelled": 1, "lost": 1}
    assert described(opened, "a")["rows"] == rows
    other, array = opened.ask("jobs").info["jobs"]
    assert (array["rows"], "rows" in other) == (rows, False)
    opened.write(JobEnded("a", "failed", ["rows-failed", "a", 3, N, "1"]))
    assert described(opened, "a")["rows"] == rows
    assert jobs_at(str(path), 5)[1]["rows"] == rows


def test_a_row_is_described_with_its_result_or_failure(opened):
    large = Payload(b"data", [bytearray(b"buffer")])
    ends = [
        RowEnded(0, result=large),
        RowEnded(1, ["exception", "a/1", "x"]),
        RowEnded(2, nbytes=1 << 21),
    ]
    opened.write(ARRAY)
    opened.write(RowsChanged("a", states(1, 3, 1, 2), ends))
    answer = opened.ask("job", key="a/0")
    assert answer.blobs[0].data == b"data"
    (row,) = answer.info["jobs"]
    assert (row["key"], row["array"], row["name"], row["state"]) == ("a/0", "a", "inc", "done")
    assert row["is_recorded"]
    assert opened.ask("job", key="a/1").blobs[1] is not None
    for key, state, is_recorded, nbytes in [
        ("a/1", "failed", True, 0),
        ("a/2", "done", False, 1 << 21),
        ("a/0007", "done", True, 0),
        ("a/0008", "pending", False, 0),
    ]:
        row = described(opened, key)
        assert (row["state"], row["is_recorded"], row["nbytes"]) == (state, is_recorded, nbytes)
    assert opened.ask("job", key="a/0007").blobs == [NONE_BLOB, None]
    for unknown in ("a/3", "a/7", "a/5000", "b/0", "a/x"):
        assert opened.ask("job", key=unknown) == m.Answer(request=1, info={"jobs": []})
    opened.write(JobEnded("a", "cancelled", ["cancelled", "a", ""]))
    assert described(opened, "a/0008")["state"] == "cancelled"


def test_rows_that_run_again_have_nothing_recorded(opened):
    ends = [RowEnded(0, ["exception", "a/0", "x"]), RowEnded(1, ["exception", "a/1", "x"])]
    opened.write(ARRAY)
    opened.write(RowsChanged("a", states(3, 3), ends))
    opened.write(RowsChanged("a", {0: 0}))
    assert (described(opened, "a/0")["state"], described(opened, "a/1")["state"]) == (
        "pending",
        "failed",
    )
    assert opened.ask("job", key="a/0").blobs == [None, None]


def test_changes_that_are_committed_together_leave_what_the_last_ones_say(opened, path):
    changes = [
        RowsChanged("a", states(3, 1, 3), [RowEnded(n, result=b"1") for n in range(3)]),
        RowsChanged("a", states(0, 4), [RowEnded(1, result=b"2")]),
        RowsChanged("a", {4: 2}),
    ]
    opened.write(ARRAY, RowsChanged("a", {3: 1}), RowsChanged("a", {}, is_new=True), *changes)
    assert [opened.ask("job", key=f"a/{n}").blobs for n in range(3)] == [
        [None, None],
        [b"2", None],
        [b"1", None],
    ]
    assert read_again(opened, path).arrays == {"a": {0: b"\0\4\3\0\2"}}


def test_an_array_that_has_failed_is_read_with_its_states_to_run_again(opened):
    opened.write(ARRAY, RowsChanged("a", states(1, 2)))
    opened.write(JobEnded("a", "failed", ["rows-failed", "a", 1, N, "1"]))
    again = opened.again("a")
    assert again.read.arrays == {"a": {0: b"\1\2"}}
    opened.write(ARRAY, RowsChanged("a", {}, is_new=True))
    assert opened.again("a").read.jobs == []  # it has not ended
    assert described(opened, "a")["rows"]["pending"] == N


def test_the_rows_of_an_array_are_forgotten_with_it(opened, path):
    opened.write(ARRAY, RowsChanged("a", states(1), [RowEnded(0, result=b"1")]))
    opened.write(JobEnded("a", "done", result=b"1"))
    opened.write(JobForgotten("a"))
    assert opened.ask("job", key="a/0") == m.Answer(request=1, info={"jobs": []})
    opened.write(ARRAY)
    assert read_again(opened, path).arrays == {"a": {}}


def test_the_oldest_results_of_rows_are_dropped_and_their_states_stay(opened, monkeypatch):
    monkeypatch.setattr(module, "_COMMITS_BETWEEN", 2)
    monkeypatch.setattr(journal_arrays, "MAX_KEPT", 2)
    ends = [RowEnded(position, result=b"1") for position in range(3)]
    opened.write(ARRAY)
    opened.write(RowsChanged("a", states(1, 1, 1), ends))
    assert [described(opened, f"a/{n}")["is_recorded"] for n in range(3)] == [False, True, True]
    assert described(opened, "a/0")["state"] == "done"


def test_the_oldest_results_of_rows_are_dropped_until_the_bytes_of_the_others_fit(
    opened, monkeypatch
):
    monkeypatch.setattr(module, "_COMMITS_BETWEEN", 2)
    monkeypatch.setattr(journal_arrays, "MAX_KEPT_NBYTES", 5)
    monkeypatch.setattr(journal_arrays, "_N_LOOKED_AT", 1)
    ends = [RowEnded(position, result=size * b"1") for position, size in enumerate((1, 4, 3, 2))]
    opened.write(ARRAY)
    opened.write(RowsChanged("a", states(1, 1, 1, 1), ends))
    recorded = [described(opened, f"a/{name}")["is_recorded"] for name in (0, 1, 2, "0007")]
    assert recorded == [False, False, True, True]
