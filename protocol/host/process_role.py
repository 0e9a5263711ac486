"""Records whether this process is a worker process, which runs tasks and has no client.

Used only for error texts. It is set once, before the first task; a cluster without processes does
not set it.
"""

from __future__ import annotations

_is_worker = False


def set_worker_process() -> None:
    """Record that this process runs tasks and nothing else."""
    global _is_worker  # noqa: PLW0603 - it is a fact about the whole process
    _is_worker = True


def is_worker_process() -> bool:
    """Return whether this process runs tasks and nothing else."""
    return _is_worker
