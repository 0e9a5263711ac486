"""Gangs and workers for the tests of gangs."""

from __future__ import annotations

from typing import Any

from weft.protocol.amounts import announced
from weft.protocol.reported import QUEUES_RESOURCES
from weft.protocol.wire import messages as m

from ...builders import Board, Out, graph


def gang(name: str, size: int, *, inputs: str = "", **options: Any) -> list[m.SubmitTasks]:
    """Make the submissions of a gang: its tasks have the keys name-0, name-1 and so on."""
    options.setdefault("resources", {"cores": 1})
    left = " ".join(f":{key}" for key in inputs.split())
    return [
        graph(
            f"{left} -> {name}-{rank}" if left else f"{name}-{rank}",
            function="member",
            gang=[name, str(rank), str(size)],
            **options,
        )
        for rank in range(size)
    ]


def worker(board: Board, name: str, nthreads: int = 1, **options: Any) -> int:
    """Let a worker join that announces its cores, and what else is given."""
    amounts = announced(options.pop("resources", {}), nthreads, 0)
    facts = {"host": name, QUEUES_RESOURCES: True}
    return board.worker(name, nthreads, resources=amounts, facts=facts, **options)


def seats_of(out: Out, peer: int | None) -> list[list[str]]:
    """Return what a worker was told of the places of gangs."""
    assert peer is not None
    (message,) = out.of(peer, m.AssignTasks)
    return [list(row) for row in message.gangs]
