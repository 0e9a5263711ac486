"""The targets that Prometheus' service discovery gets, of the addresses that supervisors report."""

from __future__ import annotations

import pytest

from weft.deploy.http.api import target_group


@pytest.mark.parametrize("url", ["http://10.0.0.7:9000/metrics", "https://10.0.0.7:9000"])
def test_a_page_is_a_target(url: str) -> None:
    group = target_group(url)
    assert group is not None
    assert group["targets"] == ["10.0.0.7:9000"]
    assert group["labels"] == {
        "__scheme__": url.partition(":")[0],
        "__metrics_path__": "/metrics",
    }


@pytest.mark.parametrize(
    "url",
    [
        "",
        "http://[x",
        "http://:9000/metrics",
        "http://host/metrics",
        "http://host:99999/metrics",
        "http://user@host:9000/metrics",
        "http://host:9000/admin",
        "ftp://host:9000/metrics",
        "file:///etc/passwd",
    ],
)
def test_an_address_that_is_no_page_of_metrics_is_left_out(url: str) -> None:
    assert target_group(url) is None
