"""The workers of a cluster summed up by host, for pages and terminals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

#: What is summed over the workers of a host.
_SUMMED: Final = ("nthreads", "n_processing", "memory_limit", "nbytes")


def by_host(workers: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return a row for each host, in the order of their names, with the sums over its workers.

    `n_busy` threads have a task; `n_queued` tasks wait at workers for a thread.
    """
    hosts: dict[str, dict[str, Any]] = {}
    for worker in workers:
        name = str(worker["host"])
        empty = {"name": name, **dict.fromkeys(("n_workers", "n_busy", "n_queued", *_SUMMED), 0)}
        host = hosts.setdefault(name, {**empty, "metrics": {"rss": 0, "managed": 0, "cpu": 0}})
        n_busy = min(worker["n_processing"], worker["nthreads"])
        host["n_workers"] += 1
        host["n_busy"] += n_busy
        host["n_queued"] += worker["n_processing"] - n_busy
        for summed in _SUMMED:
            host[summed] += worker[summed]
        for metric in host["metrics"]:
            host["metrics"][metric] += worker["metrics"].get(metric, 0)
    return sorted(hosts.values(), key=lambda host: natural(host["name"]))


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key by which w-2 comes before w-10."""
    parts: list[tuple[int, int, str]] = []
    number = ""
    for character in f"{name}\0":
        if character.isdecimal() and character.isascii():
            number += character
            continue
        if number:
            parts.append((0, int(number[:18]), ""))
            number = ""
        parts.append((1, 0, character))
    return parts
