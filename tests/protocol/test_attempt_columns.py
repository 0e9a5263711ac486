"""attempt_columns.py: reports of attempts as numbers that a browser reads without parsing."""

from __future__ import annotations

from tests.protocol.columns import read, rows_of
from weft.protocol.attempt_columns import AttemptColumns, answer_of


def report(*keys, worker="w", **more):
    n = len(keys)
    return {
        "worker": worker,
        "address": f"tcp://{worker}",
        "host": "here",
        "offset_s": 0.0,
        "keys": [*keys],
        "functions": ["load", "sum"],
        "function_of": [i % 2 for i in range(n)],
        "ended_us": [1_000_000 * (i + 1) for i in range(n)],
        "durations_us": [500 * (i + 1) for i in range(n)],
        "threads": [0] * n,
        "waited_us": [],
        "arrived_us": [],
        "fetched_us": [],
        "raised": [],
        "disk": [],
        **more,
    }


def chunk_of(*reports, to_unix_s=0.0):
    columns = AttemptColumns()
    for one in reports:
        columns.add(one, to_unix_s)
    return columns.to_bytes()


def test_a_chunk_has_the_times_of_attempts_and_no_columns_without_numbers():
    rows = rows_of(chunk_of(report("a", "bé", threads=[0, 3]), to_unix_s=1_700_000_000.0))
    assert rows == [
        {"key": "a", "lane": ("here", "w", "tcp://w", 0), "function": "load", "raised": None}
        | {"stop": 1_700_000_001.0, "duration": 500.0},
        {"key": "bé", "lane": ("here", "w", "tcp://w", 3), "function": "sum", "raised": None}
        | {"stop": 1_700_000_002.0, "duration": 1000.0},
    ]


def test_waiting_fetching_and_failures_are_of_their_attempts():
    columns = {"waited_us": [0, 7], "arrived_us": [0, 1_600_000], "fetched_us": [0, 1_900_000]}
    first, second = rows_of(chunk_of(report("a", "b", raised=[[1, "ValueError"]], **columns)))
    assert [first[name] for name in ("waited", "arrived", "fetched", "raised")] == [0, 0, 0, None]
    assert (second["waited"], second["raised"]) == (7, "ValueError")
    assert (second["arrived"], second["fetched"]) == (400_000, 100_000)  # before the stop


def test_attempts_that_were_taken_back_are_left_out():
    rows = rows_of(chunk_of(report("a", "", "c", raised=[[1, "KeyError"], [2, "OSError"]])))
    assert [(row["key"], row["raised"]) for row in rows] == [("a", None), ("c", "OSError")]


def test_reports_of_several_workers_are_one_chunk():
    rows = rows_of(chunk_of(report("a", "b"), report("c", worker="v"), report("d")))
    assert [(row["key"], row["lane"][1]) for row in rows] == [
        ("a", "w"), ("b", "w"), ("c", "v"), ("d", "w"),
    ]  # fmt: skip


def test_an_answer_is_a_head_and_chunks_each_after_its_length():
    head, rows = read(answer_of({"next": "x.3"}, [chunk_of(report("a")), chunk_of(report("b"))]))
    assert head == {"next": "x.3"}
    assert [row["key"] for row in rows] == ["a", "b"]
