"""Blocked workers on real processes."""

from __future__ import annotations

import weft


def _where() -> str:
    return weft.get_worker().name


def test_a_blocked_worker_gets_no_calls_until_it_is_unblocked(wait_until):
    with weft.Client(n_workers=2, threads_per_worker=1) as client:
        blocked, other = sorted(w["name"] for w in client.scheduler_info()["workers"].values())
        kept = client.submit(_where, workers=[blocked])
        assert kept.result(timeout=60) == blocked
        assert client.block_workers(blocked, reason="its disk is full") == 1
        assert client.blocked_workers()[blocked]["reason"] == "its disk is full"
        assert {*client.gather(client.map(lambda _: _where(), range(20)))} == {other}
        waits = client.submit(_where, workers=[blocked], pure=False)
        wait_until(lambda: "its disk is full" in str(waits.explain()))
        assert client.submit(str.upper, kept).result(timeout=60) == blocked.upper()
        client.unblock_workers(blocked)
        assert waits.result(timeout=60) == blocked
        assert client.blocked_workers() == {}
