"""Compare two states of weft on this machine: CPU time and wall time per task, in turns.

    git worktree add ../before COMMIT && make -C ../before .venv/.ready
    python -m benchmarks.compare ../before --pairs 10

Runs `benchmarks.where` in the other checkout and in this one, in turns, each with the interpreter
of its own `.venv`, so that a drift of the machine's speed affects both. Prints, for each workload,
the medians of both states and the ratio this/other pair by pair: below 1 this state is faster.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from .framework import machine
from .framework.checkouts import add_other, interpreter
from .framework.driving import ROOT
from .framework.signals import ending_on_sigterm

#: Seconds that one run of `benchmarks.where` may take.
_LIMIT_S = 300.0
#: {workload: (CPU of all processes, CPU of the scheduler, wall)}, microseconds per task.
Figures = dict[str, tuple[float, float, float]]
MEASURES = ("CPU", "scheduler's CPU", "wall")


def measure(checkout: Path, repeat: int) -> Figures:
    """Run `benchmarks.where` in a checkout."""
    command = [str(interpreter(checkout)), "-m", "benchmarks.where", "--repeat", str(repeat)]
    with (
        ending_on_sigterm(),
        subprocess.Popen(
            command, cwd=checkout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        try:
            output, errors = process.communicate(timeout=_LIMIT_S)
        finally:
            process.terminate()  # its cluster ends with it
    if process.returncode:
        sys.exit(f"benchmarks.where failed in {checkout}:\n{errors[-2000:]}")
    return parse(output)


def parse(output: str) -> Figures:
    """Read the table of `benchmarks.where`."""
    figures: Figures = {}
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and not cells[0].startswith((":--", "CPU")):
            _, scheduler, _, total, wall = map(float, cells[1:])
            figures[cells[0]] = (total, scheduler, wall)
    return figures


def render(pairs: list[tuple[Figures, Figures]]) -> str:
    """Return one table per measure; a pair is (the other state, this one)."""
    lines = []
    for i, measure_name in enumerate(MEASURES):
        lines += [
            f"| {measure_name}, us per task | other | this | this/other, median (range) |",
            "|:--|--:|--:|--:|",
        ]
        for workload in pairs[0][0]:
            others = [other[workload][i] for other, _ in pairs]
            these = [this[workload][i] for _, this in pairs]
            ratios = [a / b for a, b in zip(these, others, strict=True) if b]
            ratio = (
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                if ratios
                else "-"
            )
            lines.append(
                f"| {workload} | {statistics.median(others):.1f} | {statistics.median(these):.1f} "
                f"| {ratio} |"
            )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Measure in turns and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compare",
        description="Compare this checkout with another one, in turns.",
    )
    add_other(parser)
    parser.add_argument("--pairs", type=int, default=10, help="runs of each state (10)")
    parser.add_argument("--repeat", type=int, default=4, help="runs of a workload in each (4)")
    options = parser.parse_args()
    other = options.other
    print(
        machine.headline(
            "weft, two states", machine.describe(ROOT), {"other": machine.commit(other)}
        )
    )
    pairs = []
    for n in range(options.pairs):
        pairs.append((measure(other, options.repeat), measure(ROOT, options.repeat)))
        print(f"pair {n + 1} of {options.pairs}", file=sys.stderr, flush=True)
    print("\n" + render(pairs))


if __name__ == "__main__":
    main()
