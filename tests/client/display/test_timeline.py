"""timeline.py and summary.py: what a task stream is drawn as, and added up to."""

from __future__ import annotations

import base64
import itertools
import re
import zlib

import pytest

from tests.protocol.columns import rows_of
from weft.client.display import timeline
from weft.client.display.summary import by_function, by_span, by_worker, in_total
from weft.client.insight.attempt_timing import AttemptTiming, TaskRecords, record_of
from weft.protocol.timelines import N_COLOURS


def timing(start, stop, function="f", *, worker="w-0", thread=0, key=None, **more):
    values = {
        "key": key or f"{function}-{start}",
        "function": function,
        "span": (),
        "worker": worker,
        "address": f"tcp://{worker}",
        "thread": thread,
        "attempt": 1,
        "is_failed": False,
        "type": "int",
        "nbytes": 8,
        "start": start,
        "stop": stop,
        "waited": 0.0,
        "transfer": None,
        **more,
    }
    return AttemptTiming(**values)


def drawn(page):
    """Return the attempts that a plot has in it, as its script reads them."""
    (text,) = re.findall(r'class="stream-data"[^>]*>([^<]*)<', page)
    return rows_of(zlib.decompress(base64.b64decode(text)))


def test_each_attempt_is_a_bar_with_its_times_and_what_came_of_it():
    some = [
        timing(3.0, 4.0, "g", thread=1, transfer=(1.5, 2.5), waited=0.25, is_failed=True),
        timing(1.0, 2.0, type="list", nbytes=2048, span=("a", "b")),
    ]
    one, two = drawn(timeline.timeline(some, 1.0, 5.0, hosts={"tcp://w-0": "here"}))
    assert (one["key"], one["lane"]) == ("f-1.0", ("here", "w-0", "tcp://w-0", 0))
    assert (one["stop"], one["duration"], one["raised"]) == (1.0, 1e6, None)
    assert one["note"] == "list, 2 KiB; span a, b"
    assert (two["stop"], two["duration"], two["waited"], two["raised"]) == (3.0, 75e4, 25e4, "int")
    assert (two["arrived"], two["fetched"]) == (2.5e6, 1.5e6)


def test_the_number_of_bars_is_bounded_and_their_time_is_that_of_the_attempts():
    some = [
        timing(i / 100 + t / 1000, i / 100 + t / 1000 + 0.001, f"f{t}", is_failed=i == 7)
        for i in range(1000)
        for t in range(5)
    ]
    some.append(timing(20.0, 30.0, "long"))
    found = timeline.bars_of(some, 600)
    assert len(found) <= 600
    assert sum(bar.n for bar in found) == len(some)
    assert sum(bar.n_failed for bar in found) == 5
    assert sum(bar.stop - bar.start for bar in found) == pytest.approx(15.0)
    assert all(a.stop <= b.start + 1e-9 for a, b in itertools.pairwise(found))
    assert found[-1].function == "long"
    assert {bar.function for bar in found} == {*(f"f{t}" for t in range(5)), "long"}


def test_functions_without_a_colour_share_bars_where_there_are_too_many():
    some = [timing(i / 1000, (i + 0.5) / 1000, f"f{i % 50}") for i in range(1000)]
    found = timeline.bars_of(some, 30)
    assert len(found) <= 30
    assert len({bar.function for bar in found}) == N_COLOURS + 1
    assert any("attempts" in row["key"] for row in drawn_bars(found))


def drawn_bars(bars):
    return rows_of(timeline._columns(bars, 0.0, {}).to_bytes())


def test_texts_of_users_are_no_markup():
    page = timeline.timeline([timing(0, 1, "</script><b>", key="<i>")], 0.0, 1.0)
    assert "<b>" not in page
    assert [(row["key"], row["function"]) for row in drawn(page)] == [("<i>", "</script><b>")]


def test_nothing_is_drawn_of_nothing():
    assert "No task ended" in timeline.timeline([], 0.0, 1.0)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_curve_adds_up_to_the_time_that_was_computed(n_threads):
    some = [timing(i / 3, i / 3 + 0.9, thread=t) for i in range(7) for t in range(n_threads)]
    some.append(timing(0.5, 1.5, waited=0.5))
    busy = timeline.busy_threads(some, 0.0, 4.0)
    total = sum(one.stop - one.start - one.waited for one in some)
    assert sum(busy) * 4.0 / len(busy) == pytest.approx(total)


def test_attempts_that_began_before_are_counted_from_the_beginning():
    busy = timeline.busy_threads([timing(-5.0, 2.0)], 0.0, 4.0)
    assert sum(busy) * 4.0 / len(busy) == pytest.approx(2.0)


def test_sums_by_function_worker_and_span():
    some = [
        timing(0, 2, "f", span=("a", "b"), nbytes=10),
        timing(2, 3, "g", span=("a",), transfer=(1.0, 1.5), waited=0.25),
        timing(0, 5, "f", worker="w-1", is_failed=True, nbytes=0),
    ]
    functions = by_function(some)
    assert [*functions] == ["f", "g"]
    assert (functions["f"].n, functions["f"].n_failed, functions["f"].compute_s) == (2, 1, 7)
    assert (functions["g"].compute_s, functions["g"].waited_s) == (0.75, 0.25)
    assert functions["g"].transfer_s == 0.5
    assert {name: sums.n for name, sums in by_span(some).items()} == {"a": 2, "a > b": 1}
    assert {name: sums.compute_s for name, sums in by_worker(some).items()} == {
        "tcp://w-1": 5,
        "tcp://w-0": 2.75,
    }
    assert (in_total(some).n, in_total(some).nbytes, in_total(some).longest_s) == (3, 18, 5)
    assert in_total([]).n == 0


def test_a_record_has_the_fields_of_dask_and_those_of_weft():
    record = record_of(timing(3, 4, transfer=(1.0, 2.0), is_failed=True))
    assert record["startstops"] == [
        {"action": "transfer", "start": 1.0, "stop": 2.0},
        {"action": "compute", "start": 3, "stop": 4},
    ]
    assert (record["worker"], record["name"], record["status"]) == ("tcp://w-0", "w-0", "error")


def test_records_are_a_list_whose_display_is_one_line():
    some = [timing(1, 2, transfer=(0.5, 0.75)), timing(2, 2.7)]
    records = TaskRecords(map(record_of, some))
    assert repr(records) == "<2 records of the task stream, 2.2 s>"
    assert records == [record_of(one) for one in some]
    assert repr(records[:1]).startswith("[{'key': ")
    assert repr(TaskRecords()) == "<0 records of the task stream>"
    records[0].pop("startstops")
    assert repr(records) == "<2 records of the task stream, 700 ms>"
