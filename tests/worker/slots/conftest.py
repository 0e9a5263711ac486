"""An executor, and a gate that holds up its tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.worker.slots.slots_kit import Bench, Gate
from weft.worker.core.validate import validate
from weft.worker.slots.started import StartedRecord


@pytest.fixture
def make_bench() -> Iterator[Callable[..., Bench]]:
    benches: list[Bench] = []

    def make(nthreads: int = 1, started: StartedRecord | None = None) -> Bench:
        benches.append(Bench(nthreads, started))
        return benches[-1]

    yield make
    for bench in benches:
        bench.executor.stop()
        assert bench.executor.join(10)
        for timer in bench.timers:
            timer.cancel()
            timer.join(10)
        validate(bench.state)
        assert bench.crashes == []


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()


@pytest.fixture
def gate() -> Iterator[Gate]:
    Gate.gates["g"] = gate = Gate()
    yield gate
    gate.open.set()
    del Gate.gates["g"]
