"""The invariants of a `ProcessRun` between events, which the comments of its fields state."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .state import ProcessRun, WorkerSlot
from .tasks import DONE, FETCHING, READY, SENT, VIRTUAL, WAITING, ProcessTask


def validate(run: ProcessRun) -> None:
    """Raise AssertionError if an invariant does not hold; O(everything)."""
    unfinished = [task for task in run.tasks if task.state != DONE]
    assert run.n_unfinished == len(unfinished)
    stacked = Counter(task.number for task in run.ready)
    for slot in run.workers:
        _validate_slot(run, slot)
        stacked.update(task.number for task in slot.ready)
    waited_for: Counter[int] = Counter()
    for task in run.tasks:
        _validate_task(run, task)
        assert stacked[task.number] == (task.state == READY), task
    for waiting in run._fetching.values():
        waited_for.update(task.number for task in waiting)
    assert dict(waited_for) == run._n_missing
    assert {task.number for task in unfinished if task.state == FETCHING} == {*waited_for}


def _validate_slot(run: ProcessRun, slot: WorkerSlot) -> None:
    assert run.workers[slot.index] is slot
    assert slot.bit == 1 << slot.index
    assert all(task.state == SENT and task.home == slot.index for task in slot.sent)
    assert len(slot.sent) == sum(
        task.state == SENT and task.home == slot.index for task in run.tasks
    )
    assert slot.n_chunks >= 0
    assert slot.load_s >= 0
    assert slot.load_s == 0 or slot.sent
    assert slot.n_fetching == sum(
        task.state == FETCHING and task.home == slot.index for task in run.tasks
    )
    # In order: the inputs of a task come before it.
    before: set[ProcessTask] = set()
    for task in slot.sent:
        for dependency in _dependencies(task):
            assert dependency.at & slot.bit, (task, dependency)
            assert dependency.state == DONE or dependency in before, (task, dependency)
        before.add(task)


def _validate_task(run: ProcessRun, task: ProcessTask) -> None:
    dependencies = _dependencies(task)
    dependents = _dependents(task)
    assert run.tasks[task.number] is task
    if task.state == DONE:
        assert not dependents
        assert not task.payload
        assert task.n_uses >= task.is_output
        return
    assert all(task in _dependencies(dependent) for dependent in dependents)
    assert task.n_uses == len(dependents) + task.is_output
    assert task.n_waiting == sum(dependency.state != DONE for dependency in dependencies)
    assert task.n_unassigned == sum(dependency.state < SENT for dependency in dependencies)
    assert task.n_open_uses == sum(dependent.state < SENT for dependent in dependents)
    if task.state == WAITING:
        assert task.n_waiting
    elif task.state == VIRTUAL:
        assert task.n_waiting
        assert not task.n_unassigned
        assert task in run.workers[task.home].virtual
    elif task.state in (READY, FETCHING):
        assert not task.n_waiting
    if task.state < SENT:
        assert not task.at
        assert not task.drops
    for dependency in dependencies:
        # No value that a task needs was released.
        assert dependency.n_uses
        if dependency.state == DONE:
            assert dependency.at or dependency.exported is not None
            # Exported values may be in any worker; others only where they were made.
            assert dependency.exported is not None or not dependency.at & (dependency.at - 1)
    if task.dropper is not None:
        assert task.number in task.dropper.drops
        assert task.dropper.state >= SENT


def _dependencies(task: ProcessTask) -> list[ProcessTask]:
    found: list[Any] = task.dependencies
    return found


def _dependents(task: ProcessTask) -> list[ProcessTask]:
    found: list[Any] = task.dependents
    return found
