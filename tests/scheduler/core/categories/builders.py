"""Tasks of categories and workers for the tests of categories."""

from __future__ import annotations

from typing import Any

from weft.protocol.amounts import MEMORY, announced
from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m
from weft.protocol.wire.options import MAX_SEEN

from ...builders import Board, Out, graph

MB = 1 << 20


def fits(*lines: str, mode: str = MAX_SEEN, max_mb: int = 0, **options: Any) -> m.SubmitTasks:
    """Make a submission of tasks of a category."""
    category = {"name": "fits", "mode": mode, "max_nbytes": max_mb * MB}
    return graph(*lines, category=category, **options)


def worker(board: Board, name: str, nthreads: int = 4, mb: int = 1024) -> int:
    """Let a worker join that announces its memory."""
    facts = {"host": name, QUEUES_RESOURCES: True}
    return board.worker(name, nthreads, resources=announced({}, nthreads, mb * MB), facts=facts)


def measured(
    board: Board, peer: int, *keys: str, mb: int, kind: int = m.ALONE, cores: float = 0.0
) -> Out:
    """Let tasks end that have used so much, of cores on average."""
    attempts = [board.attempt(key) for key in keys]
    zeros = [0] * len(keys)
    report = m.AttemptsMeasured(
        attempts=attempts,
        wall_us=[1_000_000] * len(keys),
        cpu_us=[int(cores * 1_000_000)] * len(keys),
        peaks_nbytes=[mb * MB] * len(keys),
        read_nbytes=zeros,
        written_nbytes=zeros,
        kinds=[kind] * len(keys),
    )
    board.send(peer, report)
    return board.finish(peer, *keys, us=1_000_000)


def learn(board: Board, client: int, peer: int, mb: int, n: int = 5, **used: Any) -> None:
    """Let a category learn from some tasks, one after the other."""
    for i in range(n):
        key = f"first-{board.state.next_attempt}-{i}"
        board.send(client, fits(key))
        measured(board, peer, key, mb=mb, **used)
    board.drop_rest()


def exceed(board: Board, peer: int, key: str, mb: int) -> Out:
    """Let a worker report that a task uses so much."""
    attempts = [board.attempt(key)]
    return board.send(peer, m.AttemptsExceeded(attempts=attempts, used_nbytes=[mb * MB]))


def given(board: Board, key: str) -> float:
    """Return the memory that a task was given, MiB; 0 = none is reserved for it."""
    return asked(board, key).get(MEMORY, 0.0) / MB


def asked(board: Board, key: str) -> dict[str, float]:
    """Return what a task takes of its worker."""
    return dict(board.task(key).group.task_class.resources)
