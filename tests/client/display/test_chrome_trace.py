"""chrome_trace.py: the structure of a trace, as chrome://tracing and Perfetto read it."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given

from tests.client.display.test_timeline import timing
from tests.client.recordings import BEGIN, recording, recordings
from weft.client.display.chrome_trace import (
    CLUSTER_PID,
    INPUTS_TID,
    chrome_trace,
    trace_text,
    without_overlaps,
)
from weft.client.insight.attempt_timing import record_of
from weft.client.insight.recording import Recording

#: {phase: the fields that it needs beside its name, process and thread}
NEEDS = {"X": {"ts", "dur", "cat", "args"}, "i": {"ts", "s"}, "M": {"args"}}
#: What metadata may be, and the type of its only argument.
METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def check(trace):
    """Check what the Trace Event format demands, and that threads have names."""
    assert {*trace} == {"displayTimeUnit", "otherData", "traceEvents"}
    named = set()
    lanes = {}
    for event in trace["traceEvents"]:
        assert event.keys() >= NEEDS[event["ph"]] | {"name", "pid", "tid"}
        assert (type(event["pid"]), type(event["tid"])) == (int, int)
        assert event["pid"] > 0
        if event["ph"] == "M":
            argument, kind = METADATA[event["name"]]
            assert type(event["args"][argument]) is kind
            named.add((event["name"], event["pid"], event["tid"]))
            continue
        assert type(event["ts"]) is int
        assert event["ts"] >= 0
        assert ("process_name", event["pid"], 0) in named
        if event["ph"] == "X":
            assert type(event["dur"]) is int
            assert event["dur"] >= 0
            assert ("thread_name", event["pid"], event["tid"]) in named
            lanes.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in lanes.values():
        for one, following in itertools.pairwise(sorted(events, key=lambda e: (e["ts"], e["dur"]))):
            assert one["ts"] + one["dur"] <= following["ts"]
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def test_an_attempt_is_a_complete_event_of_its_worker_and_thread():
    trace = chrome_trace(recording())
    names = {
        e["pid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"
    }
    load, bad, total, inputs = check(trace)
    assert (load["name"], load["cat"], load["ts"], load["dur"]) == (
        "load",
        "night/a",
        200000,
        300000,
    )
    assert names == {CLUSTER_PID: "cluster", load["pid"]: "worker w-0", total["pid"]: "worker w-1"}
    assert load["args"] == {
        "key": "load-1",
        "function": "load",
        "state": "finished",
        "span": "night/a",
        "attempt": 1,
        "type": "int",
        "nbytes": 8,
        "queued_s": 0.1,
    }
    assert (bad["args"]["state"], bad["cname"], bad["cat"]) == ("raised", "terrible", "bad")
    assert (total["tid"], total["args"]["key"]) == (1, "('x', 1)")
    assert total["args"]["meta"] == {"run": 7}
    assert (total["args"]["waited_s"], total["args"]["inputs_s"]) == (0.25, 0.1)
    assert (inputs["pid"], inputs["tid"], inputs["dur"]) == (total["pid"], INPUTS_TID, 100000)


def test_changes_of_workers_are_instants_of_the_cluster():
    instants = [e for e in chrome_trace(recording())["traceEvents"] if e["ph"] == "i"]
    assert [(e["name"], e["ts"], e["pid"]) for e in instants] == [
        ("worker w-0 present", 0, CLUSTER_PID),
        ("worker w-1 present", 0, CLUSTER_PID),
        ("worker w-0 gone", 1600000, CLUSTER_PID),
    ]


def test_attempts_of_a_thread_that_seem_to_overlap_are_threads_of_their_own():
    timings = [timing(BEGIN, BEGIN + 2), timing(BEGIN + 1, BEGIN + 3), timing(BEGIN + 2, BEGIN + 4)]
    lanes = without_overlaps(timings, BEGIN)
    assert [[one.start - BEGIN for one in lane] for lane in lanes] == [[0, 2], [1]]
    trace = chrome_trace(map(record_of, timings))
    check(trace)
    names = [e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"]
    assert names == ["thread 0", "thread 0 (overlap)"]


def test_an_empty_trace_is_one_too():
    assert check(chrome_trace([])) == []
    assert check(json.loads("".join(trace_text(Recording(()))))) == []


@pytest.mark.slow
@given(recordings())
def test_any_trace_has_each_attempt_once_and_no_event_overlaps_another(any_recording):
    trace = chrome_trace(any_recording)
    events = [event for event in check(trace) if event["tid"] != INPUTS_TID]
    assert len(events) == len(any_recording.timings)
    # What is written part by part is the same.
    assert json.loads("".join(trace_text(any_recording))) == json.loads(json.dumps(trace))
