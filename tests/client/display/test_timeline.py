"""timeline.py and summary.py: what a task stream is drawn as, and added up to."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from weft.client.display import timeline
from weft.client.display.summary import by_function, by_span, by_worker, in_total
from weft.client.insight.attempt_timing import AttemptTiming, TaskRecords, record_of


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


def bars(timings, step):
    return [(b.start, b.stop, b.n, b.function) for b in timeline.merged(timings, step)]


def test_long_attempts_are_bars_of_their_own():
    found = bars([timing(0, 10), timing(10, 20), timing(20, 30, "g")], 1)
    assert found == [(0, 10, 1, "f"), (10, 20, 1, "f"), (20, 30, 1, "g")]


def test_attempts_narrower_than_a_step_are_one_bar_with_those_beside_them():
    tiny = [timing(i / 10, i / 10 + 0.1, "fg"[i % 2]) for i in range(40)]
    found = timeline.merged(tiny, 1)
    assert sum(bar.n for bar in found) == 40
    assert all(bar.stop - bar.start <= 1.2 for bar in found)
    assert len(found) <= 5


def test_a_long_attempt_is_not_joined_with_short_ones_before_and_after():
    found = bars([timing(0, 0.1), timing(0.1, 9), timing(9, 9.1), timing(9.1, 9.2)], 1)
    assert [n for _, _, n, _ in found] == [1, 1, 2]


def test_a_run_of_short_attempts_of_one_function_is_one_bar_however_long():
    found = bars([timing(i / 100, i / 100 + 0.01) for i in range(1000)], 1)
    assert len(found) == 1
    assert found[0][2] == 1000


def test_gaps_of_a_step_end_a_bar():
    assert len(bars([timing(0, 0.1), timing(2, 2.1)], 1)) == 2


def test_the_number_of_bars_is_bounded_whatever_the_number_of_attempts():
    many = [
        timing(i / 1000, i / 1000 + 0.0005, f"f{i * 7 % 13}", worker=f"w-{i % 50}")
        for i in range(30_000)
    ]
    page = timeline.timeline(many, 0.0, 30.0)
    assert 100 < page.count("<rect") <= 2 * timeline.MAX_BARS
    n_together = sum(int(n.replace(" ", "")) for n in re.findall(r">([0-9 ]+) attempts, ", page))
    assert 25_000 < n_together <= 30_000


def test_more_threads_than_can_be_drawn_are_counted():
    many = [timing(0, 1, worker=f"w-{i}") for i in range(timeline.MAX_LANES + 7)]
    assert "7 more threads are not drawn" in timeline.timeline(many, 0.0, 1.0)


def test_workers_are_in_natural_order_and_threads_are_named_if_there_are_several():
    page = timeline.timeline(
        [timing(0, 1, worker="w-10"), timing(0, 1, worker="w-2"), timing(0, 1, thread=1)], 0, 1
    )
    labels = re.findall(r'title="worker (\S+), thread (\d)"', page)
    assert labels == [("w-0", "1"), ("w-2", "0"), ("w-10", "0")]
    assert ">w-0 · 1<" in page
    assert ">w-2<" in page


def test_texts_of_users_are_no_markup():
    bad = "<script>alert(1)</script>"
    page = timeline.timeline([timing(0, 1, bad, worker=bad, key=bad, span=(bad,))], 0, 1)
    assert "<script" not in page
    HTMLParser().feed(page)


def test_nothing_is_drawn_of_nothing():
    assert "No task ended" in timeline.timeline([], 0.0, 1.0)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_curve_adds_up_to_the_time_that_was_computed(n_threads):
    some = [timing(i / 3, i / 3 + 0.9, thread=t) for i in range(7) for t in range(n_threads)]
    some.append(timing(0.5, 1.5, waited=0.5))
    busy = timeline.busy_threads(some, 0.0, 4.0)
    total = sum(one.stop - one.start - one.waited for one in some)
    assert sum(busy) * 4.0 / len(busy) == pytest.approx(total)


def test_the_curve_has_a_scale_and_a_line_at_all_threads():
    page = timeline.timeline([timing(0, 4), timing(0, 4, thread=1)], 0.0, 4.0, n_threads=4)
    assert ">4 threads busy<" in page
    # The drawing is 48 high, of which 46 are for all 4 threads: half of them are busy.
    assert 'd="M0,2.0H10000"' in page
    assert "0,25.0 42,25.0" in page
    beyond = [timing(0, 4, thread=thread) for thread in range(4)]
    page = timeline.timeline(beyond, 0.0, 4.0, n_threads=2)
    assert ">4 threads busy<" in page
    assert 'd="M0,25.0H10000"' in page


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
