"""Whether this process is a worker's: there tasks run, and there is no client.

Only for what errors say. It is set once, before the first task; a cluster without processes does
not set it.
"""

from __future__ import annotations

_is_worker = False


def set_worker_process() -> None:
    """Note that tasks run here, and nothing else."""
    global _is_worker  # noqa: PLW0603 - one fact about the process is what is meant
    _is_worker = True


def is_worker_process() -> bool:
    """Whether tasks run here, and nothing else."""
    return _is_worker
