"""activity.py: the plots of a recording, as XML with the right marks."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.display.test_timeline import timing
from tests.client.recordings import BEGIN, recording, recordings
from weft.client.display.activity import (
    MAX_TASKS,
    evenly,
    printable,
    svg,
    task_spans,
    threads_over_time,
    ticks,
)
from weft.client.insight.attempt_timing import record_of
from weft.client.insight.recording import MemberChange, Recording
from weft.protocol.timelines import N_COLOURS

SVG = "{http://www.w3.org/2000/svg}"


def marks(text):
    """Return how many marks of each class an SVG has."""
    return Counter(e.get("class") for e in ET.fromstring(text).iter() if e.get("class"))


def texts(text):
    return [e.text for e in ET.fromstring(text).iter(f"{SVG}text")]


def panels(text):
    return [e.get("id") for e in ET.fromstring(text).iter(f"{SVG}g") if e.get("id")]


def test_there_are_three_panels_with_a_mark_for_each_category_and_task():
    drawn = svg(recording(), "night & day")
    found = marks(drawn)
    assert panels(drawn) == ["running", "by-category", "tasks"]
    assert (found["running"], found["threads"], found["category"]) == (1, 1, 3)
    assert (found["waits"], found["runs"], found["raised"]) == (3, 2, 1)
    assert {"night & day", "night/a", "bad", "total"} <= {*texts(drawn)}


def test_a_panel_of_tasks_says_what_is_not_known():
    with_submissions = " ".join(texts(svg(recording())))
    assert "not when its result was fetched" in with_submissions
    alone = svg([record_of(timing(BEGIN, BEGIN + 1))])
    assert "its submission is not recorded" in " ".join(texts(alone))
    assert marks(alone)["waits"] == 0


def test_the_number_of_marks_is_bounded_whatever_the_number_of_tasks():
    many = [timing(BEGIN + i, BEGIN + i + 1, f"f{i % 20}") for i in range(4 * MAX_TASKS)]
    drawn = svg(map(record_of, many))
    assert marks(drawn)["runs"] == MAX_TASKS
    assert marks(drawn)["category"] == N_COLOURS + 1
    assert f"{MAX_TASKS} of 1 200 tasks" in " ".join(texts(drawn))
    assert "11 others" in texts(drawn)


def test_a_recording_without_attempts_says_so():
    drawn = svg([])
    assert panels(drawn) == []
    assert texts(drawn) == ["No task ended in this time."]


def test_lacks_of_a_recording_are_said_below_the_panels():
    lacking = Recording([timing(BEGIN, BEGIN + 1)], n_missed=1234)
    assert texts(svg(lacking))[-1] == "Missing: 1 234 attempts ended and are not in it."


def test_threads_are_added_when_workers_join_and_taken_when_they_are_gone():
    def worker(time, name, change, n=0):
        return MemberChange(time, "worker", name, change, {"nthreads": n} if n else {})

    members = [
        *(worker(0, "a", "present", 2), worker(0, "b", "present", 1), worker(3, "b", "away")),
        *(worker(4, "b", "gone"), worker(5, "c", "joined", 4), worker(99, "a", "gone")),
    ]
    assert threads_over_time(members, 1, 10) == [(1, 3), (4, 2), (5, 6), (10, 4)]


def test_attempts_of_one_task_are_one_line_from_its_submission_on():
    twice = [timing(BEGIN + i, BEGIN + i + 0.5, key="k", is_failed=not i) for i in range(2)]
    (task,) = task_spans(Recording(twice))
    assert (task.first, len(task.attempts)) == (BEGIN, 2)


@given(st.integers(0, 2000), st.integers(1, 400))
def test_tasks_are_chosen_evenly_and_in_order(n_tasks, n):
    chosen = evenly(range(n_tasks), n)
    places = [place for place, _ in chosen]
    assert places == sorted({*places})
    assert len(chosen) == min(n, n_tasks)
    assert all(place == task for place, task in chosen)


@given(st.floats(1e-6, 1e9))
def test_ticks_are_few_round_numbers_from_0_to_the_end_of_the_axis(last):
    found = ticks(last)
    assert found[0] == 0
    assert found[-1] <= last * (1 + 1e-6)
    assert 3 <= len(found) <= 8
    assert all(len(f"{tick:e}".rstrip("0").replace(".", "")) < 12 for tick in found)


@pytest.mark.parametrize("text", ["a\x00b", "a\x1bb", "a\ud800b", "a\uffffb", "a\x85b"])
def test_characters_that_xml_does_not_allow_are_replaced(text):
    assert printable(text) == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.slow
@given(recordings(), st.text())
def test_any_recording_is_valid_xml_within_the_drawing(any_recording, title):
    drawn = svg(any_recording, title)
    root = ET.fromstring(drawn.encode())
    _, _, width, height = map(float, root.get("viewBox").split())
    for rect in root.iter(f"{SVG}rect"):
        x, y, w, h = (float(rect.get(name)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
    found = marks(drawn)
    assert found["runs"] + found["raised"] == len(any_recording.timings)
