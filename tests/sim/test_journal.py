"""The simulated journal: a record outlives its scheduler, and a dead one writes nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.protocol.wire.messages import NO_HASH
from weft.scheduler.core.journal.entries import JobAdded, JournalRead, WriteJournal

from .journal import SimulatedJournal
from .world import World

NO_JOBS = SimpleNamespace(are_some=False)
NO_ARRAYS: Any = SimpleNamespace(are_some=False, chunks={}, note_known=lambda node: None)


class Node:
    """A start of a scheduler."""

    def __init__(self) -> None:
        self.is_alive = True
        self.core: Any = object()
        self.reports: list[Any] = []

    def when_awake(self, *_: object) -> bool:
        return self.is_alive

    def report(self, _core: object, report: Any) -> None:
        self.reports.append(report)


def simulation(world: World, scheduler: Node) -> Any:
    facts = {"recurring": NO_JOBS, "arrays": NO_ARRAYS, "is_healed": True}
    return SimpleNamespace(world=world, scheduler=scheduler, **facts)


def added(key: str) -> JobAdded:
    return JobAdded(key, b"f", "f", b"f", b"args", [], {}, NO_HASH, "alice")


def keys_read(journal: SimulatedJournal, node: Any) -> list[str]:
    (read,) = journal.read(node).journal
    assert isinstance(read, JournalRead)
    return [job.key for job in read.jobs]


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_scheduler_writes_nothing_after_its_journal_is_read(seed):
    world, first = World(seed), Node()
    sim = simulation(world, first)
    journal = SimulatedJournal(seed, sim)
    for number in range(4):
        journal.write(first, WriteJournal(number, [added(f"job-{number}")]))
    first.is_alive = False
    sim.scheduler = second = Node()
    read = keys_read(journal, second)
    assert read == [f"job-{number}" for number in range(len(read))]
    while world.n_busy:
        world.step()
    assert [*journal.jobs] == read


def test_a_scheduler_that_begins_again_reads_what_it_was_writing():
    world, node = World(1), Node()
    journal = SimulatedJournal(1, simulation(world, node))
    journal.write(node, WriteJournal(1, [added("job")]))
    assert keys_read(journal, node) == ["job"]
    while world.n_busy:
        world.step()
    assert not node.reports


@pytest.mark.parametrize("seed", range(20))
def test_writes_are_reported_in_their_order(seed):
    world, node = World(seed), Node()
    journal = SimulatedJournal(seed, simulation(world, node))
    for number in range(50):
        journal.write(node, WriteJournal(number, []))
        world.at(1e-3, node.when_awake)
        world.step()
    while world.n_busy:
        world.step()
    assert [report.number for report in node.reports] == [*range(50)]
