"""Describes clients, clusters and futures for `html`, from what this process knows already.

Nothing here sends a request and waits for it, takes long, or raises: a notebook calls it whenever
a cell ends with such an object. The table of workers is the one that was seen last (`Glimpse`).
"""

from __future__ import annotations

import contextlib
import functools
import html as html_texts
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...protocol.wire.keys import key_of, prefix_of
from ..core.features.cluster import cluster_of
from ..core.tasks import NO_VALUE, FutureState
from . import html
from .notebook import shell_of_program

if TYPE_CHECKING:
    from ..client import Client
    from ..future import Future

#: The end of a key of a call that is not pure: a number behind the part that names the client.
_NUMBER: Final = re.compile(r"-\d+$")
#: Futures of a list that are looked at.
_MAX_FUTURES: Final = 100_000


def worker_row(address: str, worker: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a worker for `html`."""
    metrics = worker.get("metrics") or {}
    return {
        "name": worker.get("name"),
        "address": address,
        "threads": worker.get("nthreads"),
        "memory": metrics.get("rss"),
        "memory_limit": worker.get("memory_limit"),
        "status": worker.get("status"),
    }


class DescribedWorkers(dict[str, dict[str, Any]]):
    """`{address: description}` of workers, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        return safely(
            lambda: html.of_workers([worker_row(*item) for item in self.items()]), "workers"
        )


def safely(make: Callable[[], str], name: str) -> str:
    """Return what `make` returns, or the name alone if it fails: a description never raises."""
    try:
        return make()
    except Exception as error:
        return f"<p>{html_texts.escape(name)} (cannot be shown: {type(error).__name__})</p>"


# --- Clients and clusters -------------------------------------------------------------------------


def client_status(client: Client[Any]) -> str:
    """Return the status for display: "ended" if the scheduler will not come back."""
    engine = client._engine
    has_ended = client.status == "running" and engine is not None and engine.core.end is not None
    return "ended" if has_ended else client.status


def line_of(client: Client[Any]) -> str:
    """Return the line of a client: its scheduler, and the size of the cluster."""
    name = type(client).__name__
    if client._engine is None or client.status != "running":
        return f"<{name}: {client.status}>"
    core = client._engine.core
    if core.end is not None:
        return f"<{name}: {client.scheduler_address!r} has ended: make a new one>"
    n_workers, nthreads = cluster_of(core).n_workers, cluster_of(core).nthreads
    expected = n_expected(client.cluster, n_workers)
    of = f" of {expected}" if n_workers < expected else ""
    return f"<{name}: {client.scheduler_address!r} workers={n_workers}{of} threads={nthreads}>"


def of_client(client: Client[Any]) -> str:
    """Return the HTML of a client; of one that is closed or has ended, only that."""
    return safely(lambda: _of_client(client), client.name)


def _of_client(client: Client[Any]) -> str:
    seen: dict[str, Any] = {"type": "Client", "name": client.name, "status": client_status(client)}
    engine = client._engine
    if engine is not None and seen["status"] == "running":
        glimpse = client._glimpse
        size, cluster = cluster_of(engine.core), client.cluster
        seen |= {
            "n_workers": size.n_workers,
            "n_expected": n_expected(cluster, size.n_workers),
            "threads": size.nthreads,
            "memory_limit": getattr(cluster, "memory_limit", None),
            "n_futures": len(engine.table.states),
            "scheduler": client.scheduler_address,
            "dashboard": client.dashboard_link,
            "no_dashboard": no_dashboard(cluster),
            "workers": glimpse.workers,
            "as_of": glimpse.as_of,
        }
        if not engine.core.is_linked:
            seen["note"] = "There is no connection to the scheduler; the client is reconnecting."
        glimpse.refresh_soon(engine)
    return html.of_cluster(seen)


def n_expected(cluster: Any, n_workers: int) -> int:
    """Return how many workers a cluster object is to have; at least `n_workers`."""
    requested = getattr(cluster, "n_workers", None)
    return max(requested, n_workers) if isinstance(requested, int) else n_workers


def no_dashboard(cluster: Any) -> str:
    """Return how a cluster that serves no pages could serve some; None = `weft scheduler`."""
    if cluster is None:
        return "none; weft scheduler serves a status page, unless it has --no-dashboard"
    return getattr(cluster, "no_pages_text", "none")


def cluster_status(cluster: Any) -> str:
    """Return the status of a cluster for display: "ended" if its scheduler has ended."""
    status: str = cluster.status
    return "ended" if status == "running" and cluster.failure else status


def of_cluster(cluster: Any) -> str:
    """Return the HTML of a cluster object; of one that is closed or has ended, only that."""
    return safely(lambda: _of_cluster(cluster), type(cluster).__name__)


def _of_cluster(cluster: Any) -> str:
    seen: dict[str, Any] = {
        "type": type(cluster).__name__,
        "name": cluster.name,
        "status": cluster_status(cluster),
    }
    if seen["status"] == "running":
        n_workers = getattr(cluster, "n_workers", None)
        threads = getattr(cluster, "threads_per_worker", None)
        seen |= {
            "n_workers": n_workers,
            "threads": n_workers * threads if n_workers is not None and threads else None,
            "memory_limit": getattr(cluster, "memory_limit", None),
            "scheduler": cluster.scheduler_address,
            "dashboard": cluster.dashboard_link,
            "no_dashboard": no_dashboard(cluster),
        }
    return html.of_cluster(seen)


# --- Futures --------------------------------------------------------------------------------------


def function_of(state: FutureState) -> str:
    """Return the name of the function that a state's task calls, as far as it is known."""
    spec = state.spec  # the loop's thread may clear it at any time
    function = state.function or (spec.function if spec is not None else None)
    if function is not None and function.name:
        return function.name
    key = key_of(state.key)
    prefix = prefix_of(key)
    if prefix != key:  # a tuple, or there is a hash of dask in it
        return prefix
    head, separator, _ = _NUMBER.sub("", state.key).rpartition("-")
    return head if separator else state.key


def of_future(future: Future[Any, Any]) -> str:
    """Return the HTML of a future."""
    return safely(lambda: _of_future(future._state), "Future")


def _of_future(state: FutureState) -> str:
    seen: dict[str, Any] = {"key": state.key, "status": state.status}
    if state.value is not NO_VALUE:
        seen["type"] = type(state.value).__name__
    if state.failure is not None:
        seen["error"] = failure_text(state)
    return html.of_future(seen)


def failure_text(state: FutureState) -> str:
    """Return one line about the failure of a state, without unpickling anything."""
    failure = state.failure or ["", ""]
    kind, texts = str(failure[0]), [part for part in failure[2:] if isinstance(part, str)]
    if kind in ("exception", "unreadable") and len(texts) >= 2:
        return f"{texts[0]}: {texts[1]}".partition("\n")[0]
    return f"{kind}: {texts[-1]}" if texts else kind


def of_futures(futures: Iterable[Future]) -> str:
    """Return the HTML of a list of futures: how many of each function have which status."""
    groups: dict[str, dict[str, int]] = {}
    errors: list[str] = []
    for i, future in enumerate(futures):
        if i >= _MAX_FUTURES:
            errors.append(f"only the first {_MAX_FUTURES} were looked at")
            break
        state = future._state
        counts = groups.setdefault(function_of(state), {})
        counts[state.status] = counts.get(state.status, 0) + 1
        if state.failure is not None and len(errors) < 3:
            errors.append(f"{state.key}: {failure_text(state)}")
    return html.of_futures(groups, errors)


def show_lists_of_futures(future: type[Future]) -> None:
    """Have IPython show lists of `future` as tables. Without IPython this has no effect."""
    shell = shell_of_program()
    formatter = getattr(getattr(shell, "display_formatter", None), "formatters", {}).get(
        "text/html"
    )
    if formatter is None or threading.current_thread() is not threading.main_thread():
        return
    with contextlib.suppress(KeyError):
        formatter.lookup_by_type(list)
        return  # the program has one of its own, or this is the second client
    formatter.for_type(list, functools.partial(_of_list, future))


def _of_list(future: type[Future], items: list[Any]) -> str | None:
    """Return the HTML of a list of futures; None for any other list."""
    if not items or type(items[0]) is not future or not {*map(type, items)} <= {future}:
        return None
    return safely(lambda: of_futures(items), "futures")
