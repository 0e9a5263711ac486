"""Numbers and times of the cluster for display. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...protocol.wording import counted, lasting, listed, sized

#: {state of tasks: how it is shown}
_STATES: Final = {
    "no_worker": "without a worker",
    "memory": "done (kept in memory)",
    "erred": "failed",
}


def short_time(seconds: float | None) -> str:
    """Format a length of time; an unknown one is "?", below a millisecond it is none."""
    if seconds is None:
        return "?"
    return lasting(seconds) if seconds >= 0.001 else "0 s"


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
    return f"{sized(resident)} of {sized(limit)}" if limit else sized(resident)


def used_memory_text(overview: dict[str, Any]) -> str:
    """Format the memory that the workers use, and the part of the results in it."""
    memory = overview["memory"]
    used = memory_text(memory["resident"], memory["limit"])
    return f"{used}, {sized(memory['managed'])} in results"


def states_text(tasks: dict[str, int]) -> str:
    """Format the counts of tasks by state."""
    found = [f"{short_number(n)} {_STATES.get(state, state)}" for state, n in tasks.items() if n]
    return ", ".join(found) or "none"


def workers_text(overview: dict[str, Any]) -> str:
    """Format the counts of workers by state."""
    counts = overview["n_workers"]
    text = f"{short_number(counts['running'])} running"
    text += "".join(f", {n} {state}" for state, n in counts.items() if n and state != "running")
    desired = overview["desired_workers"]
    if desired > counts["running"]:
        text += f" (enough work for {short_number(desired)} workers)"
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


def worker_state(worker: Mapping[str, Any]) -> str:
    """Return the state of a worker in one word."""
    if worker["is_away"]:
        return "away"
    if worker["is_leaving"]:
        return "leaving"
    if worker.get("is_paused"):
        return "paused"
    if worker.get("is_blocked"):
        return "blocked"
    return "busy" if worker["n_processing"] else "idle"


def worker_state_text(worker: Mapping[str, Any]) -> str:
    """Return the state of a worker, and what one that leaves still has to give away."""
    state = worker_state(worker)
    n_left = worker.get("leaving", {}).get("n_left", 0)  # an earlier scheduler does not tell
    return f"{state}, {short_number(n_left)} to move" if n_left and state == "leaving" else state


def memory_share(worker: Mapping[str, Any]) -> float:
    """Return the part of its memory limit that a worker uses; 0 if that is not known."""
    limit = worker["memory_limit"]
    return worker["metrics"].get("rss", 0) / limit if limit else 0.0


def cpu_text(worker: Mapping[str, Any]) -> str:
    """Format the processor time of a worker; "" if it is not known."""
    metrics = worker["metrics"]
    return f"{metrics['cpu']} %" if "cpu" in metrics else ""


def mean_time(function: Mapping[str, Any]) -> str:
    """Format the mean duration of the tasks of a function; "" if none has finished."""
    n = function["n_finished"]
    return short_time(function["compute_s"] / n) if n else ""


def describe_task(task: dict[str, Any]) -> str:
    """Format the description of a task for display."""
    rows = [("why", task["why"])]
    if task["state"] != "forgotten":
        holders = listed(task["holders"], task["n_holders"])
        rows += [
            ("function", task["function"]),
            ("worker", f"{task['worker']}  {task['worker_address']}" if task["worker"] else ""),
            ("result", "" if task["nbytes"] is None else sized(task["nbytes"])),
            ("holders", holders),
            ("inputs", listed(task["inputs"], task["n_inputs"])),
            ("read by", listed(task["dependents"], task["n_dependents"])),
            ("wanted by", ", ".join(task["wanted_by"])),
            ("may run on", task["restrictions"]),
            ("in span", ", ".join(task.get("span", ()))),
            ("may run for", f"{limit_s:g} s" if (limit_s := task.get("timeout_s")) else ""),
        ]
        rows += [
            ("attempt", f"on {worker}: {end}" if worker else end)
            for worker, end in task["attempts"]
        ]
    lines = [f"task {task['key']}: {task['state']}"]
    lines += [f"  {name:13}  {text}" for name, text in rows if text]
    lines += [f"  {age_s:9.3f} s ago  {what}" for age_s, what in task["story"]]
    return "\n".join(lines)


def describe_end(end: dict[str, Any]) -> str:
    """Format what became of a worker that was to leave."""
    name, n = end["name"], end["n_recomputed"]
    n_moved = end.get("n_moved", 0)  # an earlier scheduler moves none
    moved = again = ""
    if n_moved:
        moved = f"; {counted(n_moved, 'result')} {'has' if n_moved == 1 else 'have'} moved"
    if n:
        again = f"; {counted(n, 'result')} {'is' if n == 1 else 'are'} computed again"
    if end["end"] == "left":
        return f"{name} has left{moved}{again}"
    if end["end"] == "lost":
        return f"{name} has died before it could leave{again}"
    if end["end"] == "leaving":
        return f"{name} leaves when it runs nothing, and others have its results"
    return f"{name} was kept: {end['reason']}"
