"""report.py: the page of a performance report, from plain data."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from tests.client.display.test_timeline import timing
from weft.client.display.report import MAX_CODE_CHARS, MAX_ROWS, ReportContent, report_page


def worker(name="w-0", nthreads=2, **more):
    metrics = {"rss": 1 << 20}
    values = {"name": name, "host": "here", "nthreads": nthreads, "memory_limit": 1 << 30}
    return {**values, "metrics": metrics, **more}


def page_of(timings=(), **more):
    values = {"begin": 0.0, "end": 10.0, "when": "today", **more}
    page = report_page(ReportContent(timings=timings, **values))
    HTMLParser().feed(page)
    return page


def text_of(page):
    body = re.sub(r"<script.*?</script>", "", page.partition("<body>")[2], flags=re.DOTALL)
    return re.sub(r"<[^>]*>", " ", body)


def test_a_report_of_nothing_is_a_page():
    text = text_of(page_of())
    assert "No task ended in this time" in text
    assert "Functions" not in text
    assert "Failures" not in text
    assert "Versions" not in text


def test_the_tiles_have_the_sums_and_the_share_of_the_threads_time():
    some = [timing(0, 4), timing(4, 10), timing(0, 1, is_failed=True, thread=1)]
    text = text_of(page_of(some, workers={"tcp://w-0": worker(nthreads=2)}))
    assert "55% of the threads" in text
    assert "1 raised" in text


def test_bars_stand_beside_what_they_show():
    """A full bar beside the memory read as a worker that is out of it."""
    page = page_of([timing(0, 9.7)], workers={"tcp://w-0": worker(nthreads=1)})
    table = page.partition("Workers</h2>")[2] or page.partition("Workers<small>")[2]
    heads = re.findall(r"<th[^>]*scope=\"col\"[^>]*>([^<]*)<", table.partition("</thead>")[0])
    assert heads[-2:] == ["memory", "busy"]
    last = re.findall(r"<td.*?</td>", table.partition("</tbody>")[0])[-1]
    assert 'width="97.0%"' in last
    assert text_of(f"<body>{last}").split() == ["97%"]


def test_bars_of_functions_are_parts_of_all_that_was_computed():
    text = " ".join(text_of(page_of([timing(0, 6, "f"), timing(6, 8, "g")])).split())
    assert "of all computed" in text
    assert re.search(r" f .* 75% g .* 25%", text)


def test_columns_that_no_row_has_are_left_out():
    assert "waited" not in text_of(page_of([timing(0, 4)]))
    assert "waited" in text_of(page_of([timing(0, 4, waited=1.0)]))


def test_workers_that_have_left_are_listed_by_their_tasks():
    text = text_of(page_of([timing(0, 4, worker="gone")], workers={"tcp://w-0": worker()}))
    assert "gone (left)" in text
    assert "w-0" in text


def test_long_tables_end_with_the_number_of_what_is_left_out():
    many = [timing(i, i + 1, f"f{i}") for i in range(MAX_ROWS + 3)]
    assert "and 3 more functions" in text_of(page_of(many))


def test_versions_that_differ_are_counted():
    versions = {
        "client": {"packages": {"numpy": "1", "dask": None, "weft": "3"}},
        "scheduler": {"packages": {"numpy": None, "dask": None, "weft": "3"}},
        "workers": {"a": {"packages": {"numpy": "2", "dask": None, "weft": "3"}}, "b": OSError()},
    }
    text = " ".join(text_of(page_of(versions=versions)).split())
    assert "numpy 1 in 1 process, none in 1 process, 2 in 1 process" in text
    assert "weft 3" in text
    assert "dask" not in text
    assert "of 3 processes" in text


def test_texts_of_users_are_no_markup_and_long_code_is_cut():
    bad = "<script>alert(1)</script>"
    failure = {"function": bad, "key": bad, "worker": bad, "kind": "exception", "text": bad}
    page = page_of([timing(0, 1, bad)], failures=[failure], code=bad + "x" * MAX_CODE_CHARS * 2)
    assert page.count("<script") == page.count("</script>") == 4  # two of attempts, two of data
    assert "alert" not in page.partition("<script>")[2]
    assert page.count("xxxx") * 4 <= MAX_CODE_CHARS
    assert "[...]" in page


def test_notes_come_first():
    text = text_of(page_of([timing(0, 1)], notes=["The end is missing: no."]))
    assert text.index("The end is missing") < text.index("Duration")
