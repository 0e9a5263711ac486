"""Run every call of another library with it and with weft; write what came of them.

    python -m tests.compat.table distributed            # both sides, each in a process of its own
    python -m tests.compat.table ray --write            # into docs/from_ray_calls.md
    python -m tests.compat.table ray --side weft --only Actors "ray.put(x)"

The rows are in tests/compat/calls and tests/compat/ray_calls. dask's side needs bokeh for its
plots, Ray's side the extra `ray[default]` for its dashboard.
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
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.compat.calls import DISTRIBUTED
from tests.compat.calls.row import NOTHING, Call, Library, Outcome, evaluated, outcome_of
from tests.compat.ray_calls import RAY

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- made by tests.compat.table -->\n", "<!-- end -->\n"
LIBRARIES = {library.name: library for library in (DISTRIBUTED, RAY)}
#: A row that takes longer ends the process, with all stacks.
ROW_TIMEOUT_S = 600

Outcomes = dict[str, Outcome]


def run_side(library: Library, side: str, only: Collection[str] = ()) -> Outcomes:
    """Run rows on one side, in this process; return {name of the call: outcome}.

    Args:
        library: whose rows.
        side: its name, or "weft".
        only: headings and calls; none = all.
    """
    # Functions are pickled by value, as those of a script.
    script = ModuleType("__main__")
    sys.modules["__main__"] = script
    names: dict[str, Any] = vars(script)
    evaluated(library.preamble_of(side), "<names>", names)
    outcomes: Outcomes = {}
    for heading, rows in library.sections.items():
        chosen = [row for row in rows if not only or heading in only or row.name in only]
        missing = [] if side == "weft" else without(library.needs.get(heading, ()))
        if missing:
            outcome = Outcome("not run", f"needs {', '.join(missing)}")
            outcomes |= {call.name: outcome for call in chosen}
        elif chosen:
            with library.opened(side, heading, names) as more:
                names |= more
                outcomes |= {call.name: timed_outcome(call, side, names) for call in chosen}
    return outcomes


def without(modules: Collection[str]) -> list[str]:
    """Return which modules are not installed."""
    return [name for name in modules if find_spec(name) is None]


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


def outcomes_in_process(library: Library, side: str, only: Collection[str] = ()) -> Outcomes:
    """Run rows on one side in a process of its own, as `run_side` does."""
    command = [sys.executable, "-m", "tests.compat.table", library.name, "--side", side, "--json"]
    done = subprocess.run(
        [*command, "--only", *only], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    last = done.stdout.splitlines()[-1]
    return {name: Outcome(*outcome) for name, outcome in json.loads(last).items()}


# --- The page ------------------------------------------------------------------------------------


def path_of(library: Library) -> Path:
    """Return the page of a library."""
    return ROOT / "docs" / library.page


def page_of(library: Library, theirs: Outcomes, ours: Outcomes) -> str:
    """Return what stands between the marks."""
    head = f"| call | {library.name} {version(library.name)} | weft |\n|---|---|---|\n"
    sections = [
        f"\n## {heading}\n\n{head}" + "".join(row_of(call, theirs, ours) for call in rows)
        for heading, rows in library.sections.items()
    ]
    return summary_of(library, theirs, ours) + "".join(sections)


def summary_of(library: Library, theirs: Outcomes, ours: Outcomes) -> str:
    """Return how many calls work."""
    own = sum(bool(call.own) and ours[call.name].kind == "works" for call in library.calls)
    n_of = {kind: sum(o.kind == kind for o in ours.values()) for kind in ("works", "fails")}
    refused = len(ours) - n_of["works"] - n_of["fails"]
    works = sum(outcome.kind == "works" for outcome in theirs.values())
    left = sum(outcome.kind == "not run" for outcome in theirs.values())
    not_run = f", {left} were not run with it" if left else ""
    return (
        f"\n**Of {len(ours)} calls, {works} work with {library.name}{not_run}. With weft "
        f"{n_of['works']} work, {own} of them in other words; {refused} are refused by name with a "
        f"reason, and {n_of['fails']} fail.**\n"
    )


def row_of(call: Call, theirs: Outcomes, ours: Outcomes) -> str:
    """Return the row of a call."""
    them = theirs[call.name]
    cells = [
        code_in(call.name),
        them.kind if them.kind == "works" else f"{them.kind}: {them.text}",
        shown(call, ours[call.name]),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def cells_of(library: Library, page: str) -> dict[str, tuple[str, str]]:
    """Return {call: what the page says about the library's side and about weft's}."""
    names = {code_in(call.name): call.name for call in library.calls}
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
    parser.add_argument("library", choices=LIBRARIES, help="whose calls")
    parser.add_argument("--side", help="this library or weft alone, in this process")
    parser.add_argument("--only", nargs="*", default=[], help="headings and calls (default: all)")
    parser.add_argument("--json", action="store_true", help="print the outcomes of --side")
    parser.add_argument("--write", action="store_true", help="write the page of the library")
    given = parser.parse_args()
    library = LIBRARIES[given.library]
    if given.side:
        outcomes = run_side(library, given.side, given.only)
        if given.json:
            print(json.dumps(outcomes))
        return
    table = page_of(
        library, *(outcomes_in_process(library, side) for side in (library.name, "weft"))
    )
    print(table)
    if given.write:
        path = path_of(library)
        page = path.read_text(encoding="utf-8")
        start, rest = page.split(BEGIN)
        path.write_text(start + BEGIN + table + END + rest.split(END)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
