"""The table of jobs: which row shows which figure, and what the project asks of it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from ..framework.results import Cells, Found, median_of, quotient
from ..framework.table import Goal, Row, Section, Table
from .systems import N_WORKERS, SYSTEMS
from .workloads import SCARCE_S, WORKLOADS

#: Calls per second of two workers with one unit each, if nothing else took time.
SCARCE_BOUND = N_WORKERS / SCARCE_S


def _of_plain(workload: str) -> Found:
    return lambda cells: quotient(cells, (workload, "weft"), ("plain", "weft"))


def _of_bound(cells: Cells) -> float | None:
    rate = median_of(cells, "scarce", "weft")
    return None if rate is None else rate / SCARCE_BOUND


GOALS = (
    Goal("cores", "0.9 of plain", 0.9, _of_plain("cores"), at_least=True),
    Goal("memory", "0.9 of plain", 0.9, _of_plain("memory"), at_least=True),
    Goal("scarce", "0.5 of units / time", 0.5, _of_bound, at_least=True),
    Goal("detached", "0.5 of plain", 0.5, _of_plain("detached"), at_least=True),
    Goal("beside", "0.7 of plain", 0.7, _of_plain("beside"), at_least=True),
)

POLLS = "HyperQueue's client asks once per second whether a job has ended; the row has that."


def _closing(cells: Cells, spread: str, _options: argparse.Namespace) -> Iterator[str]:
    yield f"{spread}; (Nx): weft is N times as fast."
    if any(system == "hyperqueue" and cell.runs for (_, system), cell in cells.items()):
        yield POLLS


TABLE = Table(
    name="jobs",
    title="weft benchmarks: jobs",
    systems=SYSTEMS,
    workloads=WORKLOADS,
    groups={name: (name,) for name in WORKLOADS},
    sections=(
        Section(
            title="Jobs",
            systems=tuple(SYSTEMS),
            rows={
                name: Row(title=f"{{n}} {workload.title}, {workload.unit}", workload=name)
                for name, workload in WORKLOADS.items()
            },
        ),
    ),
    goals=GOALS,
    counterparts={name: "weft" for name in SYSTEMS if name != "weft"},
    cheap_s=2.0,
    closing=_closing,
)
