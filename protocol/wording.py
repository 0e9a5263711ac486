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
