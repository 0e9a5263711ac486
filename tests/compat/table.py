"""Run every call of dask.distributed with it and with weft; write what came of them.

    python -m tests.compat.table                        # both sides, each in a process of its own
    python -m tests.compat.table --write                # into docs/from_dask_calls.md
    python -m tests.compat.table --side weft --only Actors "gather(futures)"

The rows are in tests/compat/calls. dask's side needs bokeh for its plots.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import re
import subprocess
import sys
import time
from collections.abc import Collection
from contextlib import closing
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import dask

from tests.compat.calls import SECTIONS
from tests.compat.calls.row import DAEMONS, NOTHING, PREAMBLE, Call, Outcome, evaluated, outcome_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "from_dask_calls.md"
BEGIN, END = "<!-- made by tests.compat.table -->\n", "<!-- end -->\n"
SIDES = ["distributed", "weft"]
#: A row that takes longer ends the process, with all stacks.
ROW_TIMEOUT_S = 600

Outcomes = dict[str, Outcome]


def run_side(side: str, only: Collection[str] = ()) -> Outcomes:
    """Run rows with one library, in this process; return {name of the call: outcome}.

    Args:
        side: the name of the library.
        only: headings and calls; none = all.
    """
    dd = import_module(side)
    quiet = {"dashboard_address": ":0"} if side == "distributed" else {}
    # On a busy machine a worker may take longer to be started again than the default allows.
    dask.config.set({"distributed.deploy.lost-worker-timeout": "10 minutes"})
    # Functions are pickled by value, as those of a script.
    script = ModuleType("__main__")
    sys.modules["__main__"] = script
    names: dict[str, Any] = vars(script)
    names |= {"dd": dd, side: dd, "QUIET": quiet}
    evaluated(PREAMBLE + (DAEMONS if side == "weft" else ""), "<names>", names)
    outcomes: Outcomes = {}
    options = {"n_workers": 2, "threads_per_worker": 2, "resources": {"GPU": 1}, **quiet}
    for heading, rows in SECTIONS.items():
        chosen = [row for row in rows if not only or heading in only or row.name in only]
        if chosen:
            with dd.LocalCluster(**options) as cluster, closing(dd.Client(cluster)) as client:
                client.wait_for_workers(2)
                names |= {"cluster": cluster, "client": client}
                outcomes |= {call.name: timed_outcome(call, side, names) for call in chosen}
    return outcomes


def timed_outcome(call: Call, side: str, names: dict[str, Any]) -> Outcome:
    """Run a row, and tell how long it took."""
    faulthandler.dump_traceback_later(ROW_TIMEOUT_S, exit=True)
    start = time.monotonic()
    outcome = outcome_of(call, side, names)
    took_s = time.monotonic() - start
    faulthandler.cancel_dump_traceback_later()
    print(
        f"{took_s:6.2f} s  {call.name}: {outcome.kind} {outcome.text}", file=sys.stderr, flush=True
    )
    return outcome


def calls() -> list[Call]:
    """Return all rows."""
    return [call for rows in SECTIONS.values() for call in rows]


def outcomes_in_process(side: str, only: Collection[str] = ()) -> Outcomes:
    """Run rows with one library in a process of its own, as `run_side` does."""
    command = [sys.executable, "-m", "tests.compat.table", "--side", side, "--json"]
    done = subprocess.run(
        [*command, "--only", *only], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    last = done.stdout.splitlines()[-1]
    return {name: Outcome(*outcome) for name, outcome in json.loads(last).items()}


# --- The page ------------------------------------------------------------------------------------


def page_of(theirs: Outcomes, ours: Outcomes) -> str:
    """Return what stands between the marks."""
    head = f"| call | distributed {version('distributed')} | weft |\n|---|---|---|\n"
    sections = [
        f"\n## {heading}\n\n{head}" + "".join(row_of(call, theirs, ours) for call in rows)
        for heading, rows in SECTIONS.items()
    ]
    return summary_of(theirs, ours) + "".join(sections)


def summary_of(theirs: Outcomes, ours: Outcomes) -> str:
    """Return how many calls work."""
    own = sum(bool(call.own) and ours[call.name].kind == "works" for call in calls())
    n_of = {kind: sum(o.kind == kind for o in ours.values()) for kind in ("works", "fails")}
    refused = len(ours) - n_of["works"] - n_of["fails"]
    works = sum(outcome.kind == "works" for outcome in theirs.values())
    return (
        f"\n**Of {len(ours)} calls, {works} work with dask.distributed. With weft {n_of['works']} "
        f"work, {own} of them in other words; {refused} are refused by name with a reason, and "
        f"{n_of['fails']} fail.**\n"
    )


def row_of(call: Call, theirs: Outcomes, ours: Outcomes) -> str:
    """Return the row of a call."""
    them = theirs[call.name]
    cells = [
        code_in(call.name),
        them.kind if them.kind == "works" else f"fails: {them.text}",
        shown(call, ours[call.name]),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def cells_of(page: str) -> dict[str, tuple[str, str]]:
    """Return {call: what the page says about dask's side and about weft's}."""
    names = {code_in(call.name): call.name for call in calls()}
    rows = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in page.splitlines() if line[:2] == "| "]
    texts = [[cell.replace("\\|", "|") for cell in row] for row in rows]
    return {names[row[0]]: (row[1], row[2]) for row in texts if row[0] in names}


def code_in(name: str) -> str:
    """Return the name with the call in it as code."""
    call, colon, rest = name.partition(": ")
    is_code = "(" in call or re.fullmatch(r"[A-Za-z.]+", call)
    return f"`{call}`{colon}{rest}" if is_code and "`" not in name else name


def shown(call: Call, outcome: Outcome) -> str:
    """Return what the page says about weft's side."""
    if outcome.kind == "refused":
        return f"refused: {re.sub(' at 0x[0-9a-f]+', '', outcome.text)}"
    if outcome.kind == NOTHING:
        return f"not needed: {outcome.text}"
    if outcome.kind == "works" and call.own:
        return f"works: {call.says or f'`{call.own}`'}"
    return outcome.kind if outcome.kind == "works" else f"fails: {outcome.text}"


def main() -> None:
    """Run the rows, and show or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--side", choices=SIDES, help="one library, in this process")
    parser.add_argument("--only", nargs="*", default=[], help="headings and calls (default: all)")
    parser.add_argument("--json", action="store_true", help="print the outcomes of --side")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    if given.side:
        outcomes = run_side(given.side, given.only)
        if given.json:
            print(json.dumps(outcomes))
        return
    table = page_of(*(outcomes_in_process(side) for side in SIDES))
    print(table)
    if given.write:
        page = PAGE.read_text(encoding="utf-8")
        start, rest = page.split(BEGIN)
        PAGE.write_text(start + BEGIN + table + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
