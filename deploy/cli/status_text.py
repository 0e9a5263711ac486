"""The overview of a cluster as plain lines, for `weft status` and for terminals without `rich`."""

from __future__ import annotations

from typing import Any, Final

from ...protocol.host.exits import EXIT_NO_SCHEDULER
from ...protocol.tables import as_lines
from ...protocol.wording import counted
from ..overview.columns import COUNTS, MEAN_TIME
from ..overview.snapshot import Snapshot
from ..overview.wording import (
    health_level,
    late_text,
    short_number,
    short_time,
    states_text,
    used_memory_text,
    workers_text,
)

EXIT_OK: Final = 0
EXIT_DEGRADED: Final = 1
_N_FUNCTIONS: Final = 10
_N_FAILURES: Final = 5


def exit_code(snapshot: Snapshot) -> int:
    """Return the exit code of `weft status`."""
    if snapshot.down or not snapshot.overview:
        return EXIT_NO_SCHEDULER
    return EXIT_OK if health_level(snapshot.overview) == "ok" else EXIT_DEGRADED


def describe_status(snapshot: Snapshot) -> str:
    """Format a snapshot for display."""
    if snapshot.down or not snapshot.overview:
        if not snapshot.address:
            return f"down: {snapshot.down}"
        return f"down: the scheduler at {snapshot.address} cannot be reached: {snapshot.down}"
    o = snapshot.overview
    named = f"cluster {o['name']}" if o["name"] else "scheduler"
    release = f"weft {o['version']}, " if o["version"] else ""
    lines = [
        f"{named} at {snapshot.address}, process {o['pid']} on {o['host']}, {release}"
        f"Python {o['python']}, up {short_time(o['uptime_s'])}"
    ]
    lines += [f"  {line['level']:9}  {line['text']}" for line in o["health"]]
    scheduler = late_text(o)
    if snapshot.cpu_share is not None:
        scheduler = f"{snapshot.cpu_share:.0%} of a core, {scheduler}"
    rows = [
        ("workers", workers_text(o)),
        ("threads", f"{short_number(o['threads_busy'])} of {short_number(o['threads'])} busy"),
        ("memory", used_memory_text(o)),
        ("tasks", states_text(o["tasks"])),
        ("progress", snapshot.progress),
        ("since start", _totals(o["totals"])),
        ("clients", short_number(o["n_clients"])),
        ("scheduler", scheduler),
    ]
    lines += [f"  {name:11}  {text}" for name, text in rows if text]
    functions = o["functions"]
    if functions:
        lines += ["", *as_lines((*COUNTS, MEAN_TIME), functions[:_N_FUNCTIONS])]
        more = len(functions) - _N_FUNCTIONS
        if more > 0:
            lines.append(f"and {counted(more, 'more function')}; 'weft top' has all of them")
    failures = o["failures"][:_N_FAILURES]
    if failures:
        lines += ["", "last failures"]
        lines += [failure_text(failure) for failure in failures]
    return "\n".join(lines)


def _totals(totals: dict[str, int]) -> str:
    shown = ("completed", "failed", "cancelled", "retried", "recomputed")
    parts = [f"{short_number(totals[name])} {name}" for name in shown if totals.get(name)]
    if totals.get("workers_lost"):
        parts.append(f"{short_number(totals['workers_lost'])} workers lost")
    return ", ".join(parts)


def failure_text(failure: dict[str, Any]) -> str:
    """Format a failure in one line."""
    where = f" on {failure['worker']}" if failure["worker"] else ""
    text = failure["text"].partition("\n")[0]
    return f"  {short_time(failure['age_s']):>9} ago  {failure['key']}{where}: {text}"
