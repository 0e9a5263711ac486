"""recording.py and recording_files.py: recordings as data, and in files."""

from __future__ import annotations

import gzip
import json
import os

import pytest
from hypothesis import given

from tests.client.display.test_timeline import timing
from tests.client.recordings import BEGIN, recording, recordings
from weft.client.insight.attempt_timing import record_of
from weft.client.insight.recorder import ChangePages, member_change
from weft.client.insight.recording import (
    Recording,
    Submissions,
    TaskChange,
    recording_in,
    recording_of,
    rows_of,
    timing_of,
)
from weft.client.insight.recording_files import load, save, write_lines
from weft.protocol.errors import QuestionFailed


@pytest.mark.slow
@given(recordings())
def test_rows_are_the_recording_they_were_made_of(any_recording):
    rows = [json.loads(json.dumps(row)) for row in rows_of(any_recording)]
    back = recording_in(rows)
    assert [*back.timings] == [*any_recording.timings]
    assert [tuple(one) for one in back.changes] == [tuple(one) for one in any_recording.changes]
    assert [tuple(one) for one in back.members] == [tuple(one) for one in any_recording.members]
    for name in ("begin", "end", "n_missed"):
        assert getattr(back, name) == getattr(any_recording, name)


@pytest.mark.slow
@given(recordings())
def test_records_of_the_task_stream_are_the_timings_they_were_made_of(any_recording):
    assert [timing_of(record) for record in any_recording.records] == [*any_recording.timings]


@pytest.mark.parametrize("name", ["run.jsonl", "run.jsonl.gz"])
def test_a_file_has_the_recording_that_was_saved(tmp_path, name):
    save(recording(), tmp_path / name)
    assert (tmp_path / name).read_bytes()[:2] == (b"\x1f\x8b" if name.endswith("gz") else b'{"')
    assert repr(load(tmp_path / name)) == "<recording of 3 attempts in 2 s>"
    assert os.listdir(tmp_path) == [name]


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path):
    file = tmp_path / "log"
    file.write_text("before")

    def parts():
        yield "half"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_lines(file, parts())
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["log"]


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "no recording"),
        (["[]"], "no recording"),
        (["not json"], "Expecting value"),
        (['{"weft_timeline": 99}'], "format 99, which another version"),
        (['{"weft_timeline": 1}'], "first row"),
        (['{"weft_timeline": 1}', '{"other": []}'], "row 2 .* no row 'other'"),
        (['{"weft_timeline": 1}', '{"attempt": {}}'], "row 2 .* no record of the task stream"),
        (['{"weft_timeline": 1}', '{"change": [1]}'], "row 2"),
        (['{"weft_timeline": 1}', "7"], "row 2"),
    ],
)
def test_a_file_that_is_no_recording_is_an_error_with_its_name(tmp_path, lines, text):
    file = tmp_path / "other"
    file.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=f"other: .*{text}"):
        load(file)


def test_a_file_that_is_cut_or_not_compressed_is_an_error(tmp_path):
    whole = gzip.compress(json.dumps({"weft_timeline": 1}).encode() * 99)
    for name, content in (("cut.gz", whole[:30]), ("plain.gz", b"{}"), ("b", b"\xff\xfe")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=name):
            load(tmp_path / name)


def test_an_argument_that_is_neither_a_recording_nor_records_is_a_type_error():
    for wrong in ("records", b"records", {"key": "a"}, 7, None):
        with pytest.raises(TypeError, match="get_task_stream"):
            recording_of(wrong)


@pytest.mark.parametrize(
    "change",
    [
        {"startstops": []},
        {"startstops": [{"action": "compute", "start": 2.0, "stop": 1.0}]},
        {"startstops": [{"action": "compute", "start": "x", "stop": 1.0}]},
        {"startstops": [{"action": "compute", "start": float("nan"), "stop": 1.0}]},
        {"thread": "first"},
        {"waited": float("inf")},
        {"key": 7},
    ],
)
def test_a_wrong_record_is_a_value_error(change):
    with pytest.raises(ValueError, match=r"record of the task stream|times of"):
        recording_of([{**record_of(timing(BEGIN, BEGIN + 1)), **change}])


def test_records_are_a_recording_from_their_first_start_to_their_last_end():
    found = recording_of([record_of(timing(BEGIN + i, BEGIN + 9 - i)) for i in range(3)])
    assert (found.begin, found.end) == (BEGIN, BEGIN + 9)
    assert [one.stop - BEGIN for one in found.timings] == [7, 8, 9]
    assert found.lacks() == []


def test_a_submission_is_the_last_one_before_an_attempt():
    changes = [
        TaskChange(1.0, "queued", "alice", ["a", "b"]),
        TaskChange(2.0, "assigned", "w", ["a"]),
        TaskChange(5.0, "retried", "alice", ["a"]),
    ]
    found = Submissions(changes)
    assert [found.before("a", time) for time in (0.5, 0.9995, 1.5, 6.0)] == [None, 1.0, 1.0, 5.0]
    assert found.before("c", 9.0) is None


def test_lacks_of_a_recording_are_said_in_words():
    found = Recording((), n_missed=2, n_missed_changes=3000, notes=("the end: gone",)).lacks()
    assert found[0] == "the end: gone"
    assert found[1].startswith("2 attempts ended")
    assert found[2].startswith("3 000 submissions")


def page(cursor, *changes, n_missed=0):
    return {"cursor": cursor, "n_missed": n_missed, "to_unix_s": 100.0, "changes": [*changes]}


def test_changes_beyond_the_limit_are_counted(monkeypatch):
    monkeypatch.setattr("weft.client.insight.recorder.MAX_KEYS", 3)
    pages = ChangePages()
    pages._add(page("7.3", [1.0, "queued", "alice", ["a", "b"]], n_missed=1))
    pages._add(page("7.5", [2.0, "queued", "alice", ["c", "d"]], [3.0, "failed", "", ["a"]]))
    assert [(one.time, [*one.keys]) for one in pages.changes] == [(101, ["a", "b"]), (103, ["a"])]
    assert pages.n_missed == 3


def test_events_of_workers_are_changes_and_others_are_not():
    lost = {"event": "worker-lost", "worker": "w", "n_tasks": 1, "n_results": 2}
    facts = {"reason": "lost", "n_tasks": 1, "n_results": 2}
    assert member_change(5.0, lost) == (5.0, "worker", "w", "gone", facts)
    assert member_change(5.0, {"event": "client-left", "client": "c"})[1:4] == (
        "client",
        "c",
        "gone",
    )
    assert member_change(5.0, {"event": "task-failed", "key": "a"}) is None


async def test_a_scheduler_that_does_not_know_changes_is_asked_once(monkeypatch):
    asked = []

    async def ask(engine, name, arguments):
        asked.append(name)
        raise QuestionFailed(f"there is no question {name!r}", "the scheduler")
        yield

    monkeypatch.setattr("weft.client.insight.recorder.ask", ask)
    pages = ChangePages()
    await pages.read(None)
    await pages.read(None)
    assert (asked, pages.is_known) == (["task_changes"], False)
