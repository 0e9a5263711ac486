"""Numbers and times of the cluster for display. Pure."""

from __future__ import annotations

from typing import Any, Final

from ..settings import format_bytes

#: (seconds, unit)
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def short_time(seconds: float | None) -> str:
    """Format a time by its largest unit: "90 s" is "1 min 30 s", an unknown one "?"."""
    if seconds is None:
        return "?"
    if seconds < 0.001:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for i, (length, unit) in enumerate(_UNITS):
        if seconds >= length:
            text = f"{seconds // length:.0f} {unit}"
            if unit != "s":
                length_below, unit_below = _UNITS[i + 1]
                below = seconds % length // length_below
                text += f" {below:.0f} {unit_below}" if below else ""
            return text
    raise AssertionError(seconds)


def short_number(n: float) -> str:
    """Format a count: 12 345 with spaces, from a million on with three digits."""
    if abs(n) < 1e6:
        return f"{n:,.0f}".replace(",", " ") if abs(n) >= 10 or n == int(n) else f"{n:.1f}"
    for unit in ("M", "G"):
        n /= 1e6 if unit == "M" else 1e3
        if abs(n) < 1e3:
            break
    return f"{n:.3g} {unit}"


def share_text(part: float, whole: float) -> str:
    """Format a part of a whole in percent; "" if the whole is not known."""
    return f"{part / whole:.0%}" if whole else ""


def memory_text(resident: int, limit: int) -> str:
    """Format the memory that is used, and its limit if there is one."""
    used = format_bytes(resident) if resident else "0 B"
    return f"{used} of {format_bytes(limit)}" if limit else used


def states_text(tasks: dict[str, int]) -> str:
    """Format the counts of tasks by state."""
    found = [f"{short_number(n)} {state.replace('_', ' ')}" for state, n in tasks.items() if n]
    return ", ".join(found) or "none"


def workers_text(overview: dict[str, Any]) -> str:
    """Format the counts of workers by state."""
    counts = overview["n_workers"]
    text = f"{short_number(counts['running'])} running"
    text += "".join(f", {n} {state}" for state, n in counts.items() if n and state != "running")
    desired = overview["desired_workers"]
    if desired > counts["running"]:
        text += f" (the waiting work is enough for {short_number(desired)})"
    return text


def late_text(overview: dict[str, Any]) -> str:
    """Format how late the scheduler's loop was lately."""
    lag_s = overview["loop_lag_s"]
    return f"up to {short_time(lag_s)} late" if lag_s >= 0.001 else "not late"


def n_unfinished(tasks: dict[str, int]) -> int:
    """Return how many tasks are still to be run."""
    return sum(tasks.get(state, 0) for state in ("waiting", "queued", "no_worker", "processing"))


def health_level(overview: dict[str, Any]) -> str:
    """Return the worst level among the lines of health: "ok", "warning" or "error"."""
    levels = {line["level"] for line in overview["health"]}
    return next((level for level in ("error", "warning") if level in levels), "ok")
