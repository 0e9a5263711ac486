"""Parts of texts that are the same in all processes. Pure, for the cores as well."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: `1 thread`, `2 threads`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def placed_again(n_tasks: int, n_results: int) -> str:
    """Return what a worker that is gone leaves: `1 task is placed again, 3 results were there`."""
    return (
        f"{counted(n_tasks, 'task')} {'is' if n_tasks == 1 else 'are'} placed again, "
        f"{counted(n_results, 'result')} {'was' if n_results == 1 else 'were'} there"
    )


def lasting(seconds: float) -> str:
    """Return a length of time for display, in one or two units: `20 ms`, `4 min`, `2 h 5 min`."""
    if seconds < 1e-6:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1e6:.0f} µs" if seconds < 0.9995e-3 else f"{seconds * 1e3:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"
