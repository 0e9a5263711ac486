"""Small tables that a notebook shows for a client and for a cluster, made without a request."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client import Client


def of_client(client: Client) -> str:
    """Describe a client; of one that is closed or has ended, only that."""
    engine = client._engine
    is_lost = client.status == "running" and engine is not None and engine.core.end is not None
    rows = [("Client", client.name), ("Status", "ended" if is_lost else client.status)]
    if engine is not None and client.status == "running" and not is_lost:
        n_workers = engine.core.n_workers
        rows += _of_workers(n_workers, engine.core.nthreads, client.cluster)
        rows += [
            ("Scheduler", client.scheduler_address),
            ("Dashboard", client.dashboard_link or ""),
        ]
    return _as_html(rows)


def of_cluster(cluster: Any) -> str:
    """Describe a `LocalCluster`; of one that is closed or has ended, only that."""
    rows = [("LocalCluster", cluster.name), ("Status", status_of(cluster))]
    if status_of(cluster) == "running":
        nthreads = cluster.n_workers * cluster.threads_per_worker
        rows += _of_workers(cluster.n_workers, nthreads, cluster)
        rows.append(("Scheduler", cluster.scheduler_address))
        rows.append(("Dashboard", cluster.dashboard_link or ""))
    return _as_html(rows)


def status_of(cluster: Any) -> str:
    """Return the status of a `LocalCluster` for display: "ended" if its scheduler has ended."""
    status: str = cluster.status
    return "ended" if status == "running" and cluster.failure else status


def _of_workers(n_workers: int, nthreads: int, cluster: Any) -> list[tuple[str, str]]:
    rows = [("Workers", str(n_workers)), ("Threads", str(nthreads))]
    limit = getattr(cluster, "memory_limit", None)  # a scheduler elsewhere would have to be asked
    if isinstance(limit, int) and limit > 0:
        rows.append(("Memory limit", f"{n_workers} \u00d7 {limit / 2**30:.2f} GiB"))
    return rows


def _as_html(rows: list[tuple[str, str]]) -> str:
    cells = "".join(
        f"<tr><th style='text-align:left'>{name}</th>"
        f"<td style='text-align:left'>{_cell(text)}</td></tr>"
        for name, text in rows
        if text
    )
    return f"<table>{cells}</table>"


def _cell(text: str) -> str:
    shown = html.escape(text)
    if text.startswith(("http://", "https://")):
        return f"<a href='{shown}' target='_blank'>{shown}</a>"
    return shown
