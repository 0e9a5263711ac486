"""Compare two states of weft by the Python bytecodes that a task costs its client and scheduler.

    git worktree add ../before COMMIT && make -C ../before .venv/.ready
    python -m benchmarks.bytecodes ../before

Where other programs run beside it, CPU times of equal states differ by a third from run to run.
These counts differ by one or two in a hundred, so they show what a change costs even there. They
say nothing of time in C code, of caches and of waiting: `benchmarks.compare` measures these.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from .framework import machine
from .framework.checkouts import add_other, interpreter
from .framework.driving import ROOT
from .framework.signals import ending_on_sigterm

#: {case: tasks of a run}
CASES = {
    "map": 10_000,
    "submits": 3_000,
    "round-trip": 1_000,
    "chain": 1_000,
    "tree": 8_192,
    "neighbours": 8_000,
    "as-completed": 5_000,
}
ROLES = ("client", "scheduler")
#: Seconds that all cases may take in one checkout.
_LIMIT_S = 600.0

#: {case: {role: {function: [bytecodes, calls]}}}
Counted = dict[str, dict[str, dict[str, list[int]]]]


def start(checkout: Path, cases: list[str]) -> subprocess.Popen[str]:
    """Start to count in a checkout, with the interpreter of its environment."""
    script = ROOT / "benchmarks" / "bytecode_counts.py"
    command = [
        str(interpreter(checkout)),
        str(script),
        "run",
        *(f"{case}:{CASES[case]}" for case in cases),
    ]
    # The folder of a script is on its path, and weft is imported from that of the checkout.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(checkout)}
    return subprocess.Popen(
        command, cwd=checkout, stdout=subprocess.PIPE, text=True, env=environment
    )


def count(checkouts: list[Path], cases: list[str]) -> list[Counted]:
    """Count in all checkouts at once: what else runs does not change the counts."""
    processes: list[subprocess.Popen[str]] = []
    with ending_on_sigterm():
        try:
            processes += [start(checkout, cases) for checkout in checkouts]
            outputs = [process.communicate(timeout=_LIMIT_S)[0] for process in processes]
        except subprocess.TimeoutExpired:
            sys.exit(f"counting has not ended within {_LIMIT_S:g} s; choose fewer cases by --only")
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    for checkout, process in zip(checkouts, processes, strict=True):
        if process.returncode:
            sys.exit(f"counting failed in {checkout}")
    return [json.loads(output) for output in outputs]


def total(counted: dict[str, list[int]]) -> int:
    """Return the bytecodes of all functions."""
    return sum(n for n, _ in counted.values())


def render(other: Counted, this: Counted) -> str:
    """Return a table of bytecodes per task."""
    lines = [
        "| bytecodes per task | "
        + " | ".join(f"{r}, other | this | this/other" for r in ROLES)
        + " |",
        "|:--|" + "--:|--:|--:|" * len(ROLES),
    ]
    for case in this:
        cells: list[str] = []
        for role in ROLES:
            a, b = total(other[case][role]), total(this[case][role])
            cells += [f"{a / CASES[case]:.0f}", f"{b / CASES[case]:.0f}", f"{b / a:.3f}"]
        lines.append(f"| {case} | {' | '.join(cells)} |")
    return "\n".join(lines)


def render_functions(other: Counted, this: Counted, n_shown: int) -> str:
    """Return, for each case and role, the functions whose bytecodes differ most."""
    lines = []
    for case in this:
        for role in ROLES:
            a, b = other[case][role], this[case][role]
            differences = {
                name: (b.get(name, [0])[0] - a.get(name, [0])[0]) / CASES[case] for name in {*a, *b}
            }
            lines.append(f"\n{case}, {role}, more bytecodes per task than the other state:")
            most = sorted(differences, key=lambda name: (-abs(differences[name]), name))
            lines += [f"{differences[name]:+9.1f}  {name}" for name in most[:n_shown]]
    return "\n".join(lines)


def main() -> None:
    """Count in both checkouts and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.bytecodes",
        description="Compare the bytecodes per task of this checkout with those of another one.",
    )
    add_other(parser)
    parser.add_argument("--only", nargs="+", choices=[*CASES], default=[*CASES], help="cases (all)")
    parser.add_argument("--functions", type=int, default=0, help="functions shown for each (0)")
    options = parser.parse_args()
    other = options.other
    states: dict[str, Any] = {"other": machine.commit(other)}
    print(machine.headline("weft, two states", machine.describe(ROOT), states), flush=True)
    found = count([other, ROOT], options.only)
    print("\n" + render(*found))
    if options.functions:
        print(render_functions(*found, options.functions))


if __name__ == "__main__":
    main()
