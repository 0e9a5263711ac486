"""The tables that a notebook shows for clients and clusters."""

from __future__ import annotations

import re

from weft.client import Client
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
            "Memory limit": "2 \u00d7 1.00 GiB",
            "Scheduler": cluster.scheduler_address,
        }
        assert rows(cluster) == {"LocalCluster": "&lt;b&gt;", **common}
        assert rows(client) == {"Client": client.name, **common}
        cluster.dashboard_link = "http://127.0.0.1:8787"
        link = "<a href='http://127.0.0.1:8787' target='_blank'>http://127.0.0.1:8787</a>"
        assert rows(cluster)["Dashboard"] == link
        client.close()
        assert rows(client) == {"Client": client.name, "Status": "closed"}
    assert rows(cluster) == {"LocalCluster": "&lt;b&gt;", "Status": "closed"}
