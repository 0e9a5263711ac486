"""The HTML of notebooks, made of plain dicts."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.client.display import html

_ELEMENTS = {"a", "b", "code", "details", "div", "p", "span", "summary", "table", "tr", "th", "td"}


class Shown(HTMLParser):
    """The texts that a browser would show; fails on elements that must not be there."""

    def __init__(self, text):
        assert len(text) <= html.MAX_CHARS
        super().__init__()
        self.open, self.texts = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag in _ELEMENTS
        assert {name for name, _ in attrs} <= {"style", "href", "target", "rel"}
        assert not any("javascript" in value or "url(" in value for _, value in attrs)
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    @property
    def text(self):
        return " ".join(self.texts)


texts = st.one_of(st.none(), st.text(max_size=400), st.just("<script>alert('x')</script>&\"'"))
counts = st.one_of(st.none(), st.integers(0, 10**12))
workers = st.fixed_dictionaries(
    {
        "name": texts,
        "address": texts,
        "threads": counts,
        "memory": counts,
        "memory_limit": counts,
        "status": texts,
    }
)
clusters = st.fixed_dictionaries(
    {
        "name": texts,
        "status": texts,
        "scheduler": texts,
        "dashboard": texts,
        "n_workers": st.integers(0, 10**6),
        "n_expected": counts,
        "threads": counts,
        "memory_limit": counts,
        "n_futures": counts,
        "note": texts,
        "workers": st.lists(workers, max_size=60),
        "as_of": texts,
    }
)


@given(clusters)
def test_every_description_of_a_cluster_is_small_escaped_and_well_formed(seen):
    Shown(html.of_cluster(seen))


@given(st.lists(workers, max_size=80))
def test_every_table_of_workers_is_small_escaped_and_well_formed(rows):
    Shown(html.of_workers(rows))


@given(texts, texts, texts, texts)
def test_every_description_of_a_future_is_small_escaped_and_well_formed(key, status, kind, error):
    Shown(html.of_future({"key": key, "status": status, "type": kind, "error": error}))


@given(
    st.dictionaries(
        st.text(max_size=300),
        st.dictionaries(st.sampled_from(["pending", "error", "lost"]), st.integers(1, 10**7)),
        max_size=100,
    ),
    st.lists(st.text(max_size=500), max_size=5),
)
def test_every_list_of_futures_is_small_escaped_and_well_formed(groups, errors):
    Shown(html.of_futures(groups, errors))


rows = st.builds(
    lambda name, done, failed, cancelled, more, note: {
        "name": name,
        "done": done + failed + cancelled,
        "failed": failed,
        "cancelled": cancelled,
        "total": done + failed + cancelled + more,
        "note": note,
    },
    st.text(max_size=300),
    *[st.integers(0, 10**7)] * 4,
    st.text(max_size=300),
)


@given(texts, st.lists(rows, max_size=100))
def test_every_progress_is_small_escaped_and_well_formed(title, rows):
    Shown(html.of_progress({"title": title, "rows": rows}))


def test_a_description_has_no_colours_that_a_dark_or_a_light_page_would_hide():
    text = html.of_cluster({"name": "lab", "workers": [{"name": "one"}], "n_workers": 1})
    assert "background:#" not in text
    assert "background:white" not in text
    assert "<style" not in text


def test_workers_beyond_the_limit_of_a_table_are_counted():
    rows = [{"name": f"worker-{i}", "address": f"tcp://10.0.0.1:{i}"} for i in range(1000)]
    page = Shown(html.of_workers(rows))
    n_shown = sum(text.startswith("worker-") for text in page.texts)
    assert n_shown > 10
    assert f"and {1000 - n_shown} more workers" in page.text


@pytest.mark.parametrize("address", ["javascript:alert(1)", "file:///etc/passwd", "//host"])
def test_only_addresses_of_http_become_links(address):
    page = html.of_cluster({"dashboard": address})
    assert "<a " not in page
    assert '<a href="https://host/?a=1&amp;b=2"' in html.of_cluster(
        {"dashboard": "https://host/?a=1&b=2"}
    )


def test_workers_that_are_starting_are_announced():
    page = Shown(html.of_cluster({"n_workers": 1, "n_expected": 4}))
    assert "1 of 4, the others are starting" in page.text
