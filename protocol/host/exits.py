"""Describes how a process ended."""

from __future__ import annotations

import signal


def describe_exit(code: int | None) -> str:
    """Describe an exit code as `subprocess` has it: a negative one is a signal."""
    if code is None or code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
