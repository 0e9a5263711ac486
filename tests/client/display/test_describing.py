"""Descriptions of clients, clusters and futures, from what this process knows."""

from __future__ import annotations

import re

import pytest

from tests.client.display.test_html import Shown
from weft.client import Client
from weft.client.core.features.cluster import cluster_of
from weft.client.display import describing
from weft.deploy.local.cluster import LocalCluster


def rows(thing):
    found = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", thing._repr_html_())
    return dict(found)


def test_a_cluster_and_its_client_show_workers_memory_and_pages():
    options = {"n_workers": 2, "threads_per_worker": 3, "memory_limit": "1 GiB", "name": "<b>"}
    with LocalCluster(processes=False, **options) as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=30)
        common = {
            "Status": "running",
            "Workers": "2",
            "Threads": "6",
            "Memory limit": "2 \u00d7 1 GiB",
            "Scheduler": cluster.scheduler_address,
            "Dashboard": "none; a cluster that is started with dashboard_address=&quot;:0&quot; "
            "and processes serves a status page",
        }
        assert rows(cluster) == {"LocalCluster": "&lt;b&gt;", **common}
        assert rows(client) == {"Client": client.name, **common, "Futures": "0"}
        cluster._pages_address = "http://127.0.0.1:8787/"
        shown = rows(cluster)["Dashboard"]
        assert shown.startswith('<a href="http://127.0.0.1:8787/?access=')
        assert shown.endswith(' target="_blank" rel="noopener">http://127.0.0.1:8787/</a>')
        client.close()
        assert rows(client) == {"Client": client.name, "Status": "closed"}
    assert rows(cluster) == {"LocalCluster": "&lt;b&gt;", "Status": "closed"}


def test_the_table_of_workers_comes_without_waiting_and_stays_for_the_next_time(wait_until):
    with Client(processes=False, n_workers=2, threads_per_worker=1, name="me") as client:
        assert client._engine is not None
        with client._engine.lock:  # no request could be sent now
            assert "Workers at" not in client._repr_html_()
        wait_until(lambda: "Workers at" in client._repr_html_())
        page = Shown(client._repr_html_())
        assert {f"{client.cluster.name}-{i}" for i in range(2)} <= set(page.texts)
        table = client.scheduler_info()["workers"]._repr_html_()
        assert f"{client.cluster.name}-1" in Shown(table).texts


def test_the_text_of_a_client_whose_workers_are_starting_says_how_many_there_will_be():
    with Client(processes=False, n_workers=3, threads_per_worker=1) as client:
        assert "workers=3 threads=3>" in repr(client)
        size = cluster_of(client._engine.core)
        size.n_workers, size.nthreads = 0, 0
        assert "workers=0 of 3 threads=0>" in repr(client)


def fails(x):
    raise ValueError(f"<bad> {x}")


def test_futures_show_their_status_the_type_of_the_result_and_the_error(wait_until):
    with Client(processes=False, n_workers=1, threads_per_worker=1) as client:
        good, bad = client.submit(abs, -1, key="good"), client.submit(fails, 1, key="bad")
        assert good.result() == 1
        wait_until(bad.done)
        assert "finished" in Shown(good._repr_html_()).text
        assert "int" in Shown(good._repr_html_()).texts
        assert "ValueError: <bad> 1" in Shown(bad._repr_html_()).text
        text = Shown(describing.of_futures([good, bad])).text
        assert "2 futures" in text
        assert "bad: ValueError: <bad> 1" in text
        good.release()
        assert "good" in Shown(good._repr_html_()).text


def test_a_description_that_fails_shows_the_name_and_raises_nothing():
    class Broken:
        status = property(lambda self: 1 / 0)
        name = "x"

    assert "ZeroDivisionError" in describing.of_cluster(Broken())


@pytest.mark.slow
def test_a_client_shows_its_workers_right_after_it_was_made():
    with LocalCluster(n_workers=2, threads_per_worker=1) as cluster:
        with Client(cluster) as client:
            assert "workers=2 threads=2>" in repr(client)
        for _ in range(20):  # further clients wait for nothing
            with Client(cluster.scheduler_address, security=cluster.security) as other:
                assert "workers=2 threads=2>" in repr(other)
