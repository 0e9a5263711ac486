"""The status page as a function of plain data: what is shown, escaped, and left out."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from weft.deploy.http.documents import login_page, missing_page, onward_page, problem_page
from weft.deploy.http.status_page import (
    MAX_CLIENTS,
    MAX_FUNCTIONS,
    MAX_WORKERS,
    ORDERS,
    PageContent,
    status_page,
    workers_page,
)
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.insight.overview import overview
from weft.scheduler.core.state import SchedulerState

HOSTILE = "<script>alert(1)</script>\"'&"
#: Elements without an end tag.
VOID = {"meta", "link", "input", "br"}


def info(**changes):
    """Return the overview of an empty cluster, with changes."""
    found = overview(SchedulerState(1, features=FEATURES))
    health = [{"level": "ok", "code": "ok", "text": "no problem is known"}]
    return found | {"health": health, "host": "here", "python": "3.11"} | changes


def function(name="load", **changes):
    row = {"n_finished": 0, "n_failed": 0, "n_unfinished": 0, "n_processing": 0, "compute_s": 0.0}
    return {"name": name, **row, **changes}


def worker(name="w", **changes):
    row = {
        "id": f"id of {name}", "name": name, "host": "here", "pid": 7, "nthreads": 2,
        "memory_limit": 1000, "is_leaving": False, "is_away": False, "n_processing": 0,
        "n_in_memory": 0, "nbytes": 0, "last_seen_s": 0.1, "metrics": {},
    }  # fmt: skip
    return row | changes


def failure(**changes):
    row = {"key": "k", "function": "f", "type": "E", "n": 1, "text": "E", "worker": "w"}
    return row | {"age_s": 60.0} | changes


class Checker(HTMLParser):
    """Checks that elements are closed in order; collects tags and texts."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts, self.attributes = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def test_an_empty_cluster_is_a_whole_page():
    found = Checker(status_page(PageContent(info(), as_of="12:00:00 UTC")))
    for text in ("no problem is known", "nothing to do", "There is no worker", "No task has failed",
                 "No client is connected", "As of 12:00:00 UTC"):  # fmt: skip
        assert text in found.text


def test_texts_of_users_never_become_elements_or_attributes():
    content = PageContent(
        info(
            name=HOSTILE,
            host=HOSTILE,
            n_clients=1,
            functions=[function(HOSTILE, n_unfinished=1)],
            failure_groups=[failure(key=HOSTILE, function=HOSTILE, text=HOSTILE, worker=HOSTILE)],
            health=[{"level": "error", "code": "x", "text": HOSTILE}],
        ),
        workers={HOSTILE: worker(HOSTILE, host=HOSTILE)},
        clients=[{"name": HOSTILE, "n_wants": 1, "lost_s": None}],
    )
    pages = status_page(content), workers_page(content, "name"), login_page(HOSTILE, HOSTILE)
    for page in (*pages, problem_page(HOSTILE, 2.0)):
        assert "<script>alert" not in page
        found = Checker(page)
        assert HOSTILE in " ".join(found.texts)
        assert not [name for name, _ in found.attributes if name.startswith("on")]
        assert found.tags.count("script") == page.count('<script src="refresh.js" defer>')


def test_nothing_is_inline_and_nothing_comes_from_elsewhere():
    content = PageContent(info(functions=[function(n_unfinished=3)]), {"a": worker()})
    for page in (status_page(content), workers_page(content, "cpu"), login_page("h"),
                 onward_page("./"), missing_page("/a/b"), problem_page("silent", 2.0)):  # fmt: skip
        found = Checker(page)
        assert "style" not in found.tags
        assert "style" not in dict(found.attributes)
        links = [value for name, value in found.attributes if name in ("href", "src", "action")]
        assert not [link for link in links if re.match(r"[a-z]+:|//", link)]


def test_progress_has_a_rate_and_the_time_that_is_left():
    functions = [
        function("load", n_finished=900, n_unfinished=1100, n_processing=8, compute_s=18.0),
        function("done", n_finished=50, n_failed=2, compute_s=1.0),
    ]
    content = PageContent(
        info(functions=functions), rates={"load": (250.0, 4.4), "done": (0.0, 0.0)}
    )
    text = Checker(status_page(content)).text
    assert "load 900 of 2 000 1 100 8 250 4.4 s – 20 ms" in text
    assert "done 50 done, 2 failed – – – – 2 20 ms" in text


def bars(page):
    """Return each bar: its parts, as (class, width), and its words."""
    found = re.findall(r'<svg class="bar"[^>]*aria-label="([^"]*)">(.*?)</svg>', page)
    part = r'width="([\d.]+)" height="10" class="(\w+)"'
    return [({c: float(w) for w, c in re.findall(part, rects)}, text) for text, rects in found]


def test_tasks_that_failed_have_their_colour_and_number_in_the_bar():
    rows = [
        function("broken", n_failed=2, n_done=2, n_done_failed=2),
        function("mixed", n_finished=1001, n_failed=6, n_done=7, n_done_failed=4, n_unfinished=3),
    ]
    page = status_page(PageContent(info(functions=rows)))
    text = Checker(page).text
    assert "broken 2 failed – – – – 2 –" in text
    assert "mixed 7 of 10, 4 failed" in text
    _, broken, mixed = bars(page)
    assert broken == ({"fail": 100.0}, "0% finished, 100% failed, 0% at workers")
    assert mixed == ({"done": 30.0, "fail": 40.0}, "30% finished, 40% failed, 0% at workers")


def test_a_rate_that_is_not_known_yet_is_no_zero():
    first = Checker(status_page(PageContent(info()))).text
    assert "Throughput – tasks/s measured with the next refresh" in first
    later = Checker(status_page(PageContent(info(), total_rate=(0.0, None)))).text
    assert "Throughput 0 tasks/s" in later


def test_a_round_counts_from_when_nothing_of_the_function_was_left():
    rows = [function("load", n_finished=10**6 + 10, n_done=10, n_unfinished=30)]
    text = Checker(status_page(PageContent(info(functions=rows)))).text
    assert "load 10 of 40" in text


def test_many_rows_are_cut_and_counted():
    n = 1000
    workers = {f"tcp://{i}": worker(f"w{i:04}", n_processing=i % 2) for i in range(n)}
    workers["tcp://1000"] = worker("full", metrics={"rss": 970})
    workers["tcp://1001"] = worker("gone", is_away=True)
    content = PageContent(
        info(
            functions=[function(f"f{i}", n_unfinished=2) for i in range(51)],
            n_clients=70,
        ),
        workers=workers,
        clients=[{"name": f"c{i}", "n_wants": 0, "lost_s": 5.0} for i in range(50)],
    )
    page = status_page(content)
    text = Checker(page).text
    assert "Workers 1002 workers" in text
    assert f"and {n + 2 - MAX_WORKERS} more" in text
    assert f"and {51 - MAX_FUNCTIONS} more functions, with 62 tasks left" in text
    assert f"and {70 - MAX_CLIENTS} more" in text
    assert text.index("gone away") < text.index("full")
    assert text.index("full") < text.index("w0001 busy")
    assert len(page) < 60_000
    whole = workers_page(content, "name")
    assert whole.count("<tr>") == n + 3
    assert len(whole) < 1_500_000


@pytest.mark.parametrize("order", ORDERS)
def test_workers_are_sorted_as_asked_and_the_column_says_so(order):
    workers = {
        "1": worker("b", n_processing=3, metrics={"rss": 100, "cpu": 5}),
        "2": worker("a", n_processing=1, metrics={"rss": 900, "cpu": 1}),
        "3": worker("c", n_processing=2, metrics={"rss": 500, "cpu": 90}),
    }
    page = workers_page(PageContent(info(), workers), order)
    names = re.findall(r'<th scope="row"[^>]*><a[^>]*>(\w)</a></th>', page)
    expected = {"name": "abc", "memory": "acb", "tasks": "bca", "cpu": "cba"}[order]
    assert "".join(names) == expected
    assert page.count("aria-sort") == 1


def test_hosts_have_a_table_of_their_sums_and_stand_above_their_workers():
    workers = {
        "1": worker("a", host="n10", n_processing=5, metrics={"rss": 100, "cpu": 50}),
        "2": worker("b", host="n9", n_processing=1),
        "3": worker("c", host="n10", n_processing=1, metrics={"rss": 1500, "cpu": 7}),
    }
    content = PageContent(info(), workers)
    page = Checker(workers_page(content, "name"))
    assert "Hosts 2 Host Workers Busy Memory Queued CPU n9 1 1/2 – – 0 % n10" in page.text
    assert "n10 2 3/4 1.56 KiB of 1.95 KiB 3 57 %" in page.text
    shown = [text for text in page.texts if text in ("n9", "n10", *"abc")]
    assert shown == ["n9", "n10", "n9", "b", "n10", "a", "c"]
    # In other orders, over all hosts.
    shown = [text for text in Checker(workers_page(content, "memory")).texts if text in "abc"]
    assert shown == ["c", "a", "b"]


def test_a_cluster_on_one_host_has_no_table_of_hosts():
    workers = {"1": worker("a"), "2": worker("b")}
    page = Checker(workers_page(PageContent(info(), workers), "name"))
    assert "Hosts" not in page.texts
    assert ("scope", "rowgroup") not in page.attributes


def test_a_worker_that_leaves_shows_what_it_still_has():
    leaving = {"is_leaving": True, "why_not": "it is leaving, for 3 s"}
    workers = {
        "1": worker("a", leaving={"n_left": 12_345}, **leaving),
        "2": worker("b", leaving={"n_left": 0}, **leaving),
        "3": worker("c", **leaving),  # an earlier scheduler tells less
    }
    content = PageContent(info(), workers)
    page = Checker(status_page(content))
    assert "leaving, 12 345 to move" in page.texts
    assert page.texts.count("leaving") == 2
    titles = [value for name, value in page.attributes if name == "title"]
    assert titles.count("it is leaving, for 3 s") == 3


def test_memory_near_the_limit_is_said_in_words_as_well():
    workers = {"1": worker("a", metrics={"rss": 990, "managed": 500})}
    page = status_page(PageContent(info(), workers))
    assert 'aria-label="99% of the memory limit, 50% are results"' in page
    assert 'class="fail"' in page


def test_the_title_shows_trouble_and_what_is_left():
    broken = info(
        name="prod",
        tasks=info()["tasks"] | {"queued": 1200},
        health=[{"level": "error", "code": "no-workers", "text": "no workers"}],
    )
    assert "<title>Error, 1\u202f200 left – prod</title>" in status_page(PageContent(broken))
    assert "<title>idle – weft</title>" in status_page(PageContent(info()))
