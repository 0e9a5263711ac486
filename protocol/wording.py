"""Parts of texts that are the same in all processes. Pure, for the cores as well."""

from __future__ import annotations


def counted(n: int, noun: str) -> str:
    """Return a number with its noun: `1 thread`, `2 threads`."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
