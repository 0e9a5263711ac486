"""Readers of parts in the simulator: which holders they ask."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.protocol.wire.part_index import PartIndex
from weft.worker.core.events import ChunkDone

from .graphs import READ, Spec
from .parts import _Reading
from .test_session import run_until, started


def test_a_reader_that_runs_again_asks_another_holder_than_the_one_that_was_gone():
    """An index names the holders of when it was made, and is not made again while one is left."""
    sim, reader = started()
    holder = sim.add_worker("holder", sim.new_address(), {}, "host0", None)
    run_until(sim, lambda: holder.session.is_open)
    holder.store[7] = b"value"
    index = PartIndex(["a"], [7], [[0, 1]], ["tcp://gone", holder.address])
    source: Any = SimpleNamespace(dependencies=[SimpleNamespace(key="a")])
    spec = Spec(1, "read", READ, [source], 1000.0, 8, 0, False, None, b"part-0-of-index")
    task: Any = SimpleNamespace(attempt=8, key="read")
    ended: list[str] = []
    reader._end_task = lambda *args: ended.append("out of reach")  # type: ignore[method-assign]
    reader._finish = lambda *args: ended.append("read")  # type: ignore[method-assign]
    for n in (1, 2):
        _Reading(reader, 0, task, spec, index).ask(ChunkDone(0, [], [], [], []), 0.0)
        run_until(sim, lambda n=n: len(ended) == n)
    assert ended == ["out of reach", "read"]
