"""The core of blocks with simulated workers: one seed, one run."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from weft.graphs.blocks.core.state import BLOCK_S, BlockRun
from weft.graphs.blocks.core.tasks import DONE, READY, SENT, WAITING, Block, BlockTask
from weft.graphs.blocks.encoding import Encoded
from weft.graphs.core.reading import read_graph


def call_of(key, *args):
    """The function of every task of these graphs: returns an expression of its arguments."""
    return (key, *args)


def encoded_graph(dsk, keys):
    return Encoded(read_graph(dsk, keys, task_class=BlockTask))


def run_of(dsk, keys, n_slots=2, chunksize=None, durations_s=None):
    encoded = encoded_graph(dsk, keys)
    return BlockRun(encoded.tasks, encoded.ready, encoded.n_groups, n_slots, chunksize, durations_s)


class Cluster:
    """Runs blocks in any order, some at once; checks that each task runs once, with its inputs."""

    def __init__(self, rng, dsk, keys, n_slots, chunksize):
        self.rng = rng
        self.run = run_of(dsk, keys, n_slots, chunksize)
        self.dsk = dsk
        #: {block: [values, numbers that are to run, reported numbers]}
        self.running = {}
        self.n_runs = dict.fromkeys((task.number for task in self.run.tasks), 0)
        self.outputs = {}
        self.wanted = {task.number for task in self.run.tasks if task.is_output}
        self.exported = {}
        self.is_pinning = rng.random() < 0.3

    def go(self):
        run = self.run
        while run.n_unfinished:
            assert not run.torn or self.is_pinning
            if run.torn:
                return
            while (block := run.next_block()) is not None:
                for task in block.imports:
                    assert task.number in self.exported, "it was needed outside, and not sent"
                values = {task.number: self.exported[task.number] for task in block.imports}
                todo = [(t.number, t.payload, [*t.drops]) for t in block.tasks.values()]
                self.running[block] = [values, todo, [], len(todo)]
            validate(run)
            self.step()
        assert all(self.n_runs[task.number] == 1 for task in run.tasks if task.key is not None)
        assert {*self.outputs} == self.wanted
        assert not run.blocks
        assert not self.exported, "all were released"

    def step(self):
        block = self.rng.choice([*self.running])
        values, todo, unreported, n_kept = self.running[block]
        if todo and self.rng.random() < 0.2:  # gives back
            n = self.rng.randint(1, len(todo))
            del todo[len(todo) - n :]
            self.running[block][3] = n_kept - n
        for _ in range(self.rng.randint(0, len(todo))):
            number, payload, drops = todo.pop(0)
            _, args, *refs = payload if isinstance(payload, tuple) else pickle.loads(payload)
            args = [*args]
            for i, ref in refs[0] if refs else ():
                args[i] = values[ref]
            values[number] = call_of(*args)
            self.n_runs[number] += 1
            unreported.append(number)
            for drop in drops:
                del values[drop]
        is_over = not todo
        if not is_over and self.rng.random() < 0.5:
            return
        # A large value is named in the last report only.
        told = [n for n in unreported if is_over or self.rng.random() < 0.8]
        left = {number: values[number] for number in told if number in values}
        self.running[block][2] = [n for n in unreported if n not in told]
        self.exported |= left
        self.outputs |= {number: value for number, value in left.items() if number in self.wanted}
        places = {}
        if is_over and self.is_pinning and block.place is None:
            places = dict.fromkeys([n for n in left if n not in self.wanted], "w1")
        elif is_over and self.is_pinning:
            places = dict.fromkeys(left, block.place)
        self.run.on_report(
            block, told, left, n_kept=self.running[block][3], places=places, is_over=is_over
        )
        if is_over:
            del self.running[block]
        for task in self.run.released:
            self.exported.pop(task.number, None)
        self.run.released.clear()


def validate(run):
    ready = [task.number for task in run.ready]
    for stack in run.ready_at.values():
        ready += [task.number for task in stack]
    ready += [task.number for task in run.torn]
    assert len(ready) == len({*ready})
    for task in run.tasks:
        assert (task.state == READY) == (task.number in ready)
        if task.state == DONE:
            continue
        assert task.n_unassigned == sum(one.state < SENT for one in task.dependencies)
        assert task.n_open_uses == sum(one.state < SENT for one in task.dependents)
        if task.state == SENT:
            assert task.block.tasks[task.number] is task
        if task.state == WAITING and not task.n_unassigned:
            owners = {one.block for one in task.dependencies if one.state == SENT}
            assert owners
            assert all(task in owner.waiting for owner in owners)
    assert run.n_unfinished == sum(task.state != DONE for task in run.tasks)
    assert all(block.tasks and not block.is_over for block in run.blocks)


def random_graph(rng):
    n = rng.randint(1, 60)
    dsk = {}
    for i in range(n):
        n_inputs = min(i, rng.choice([0, 1, 1, 2, 3]))
        inputs = [("k", rng.randint(max(0, i - 12), i - 1)) for _ in range(n_inputs)]
        dsk["k", i] = (call_of, i, *inputs)
    wanted = [("k", i) for i in rng.sample(range(n), rng.randint(1, min(n, 5)))]
    return dsk, wanted


@pytest.mark.parametrize("seeds", [range(i, i + 50) for i in range(0, 300, 50)])
def test_each_task_runs_once_and_with_its_inputs(seeds):
    for seed in seeds:
        rng = Random(seed)
        dsk, wanted = random_graph(rng)
        chunksize = rng.choice([None, None, 1, 5, -1])
        Cluster(rng, dsk, wanted, rng.randint(1, 4), chunksize).go()


def test_chains_stay_whole():
    dsk = {("c", i, 0): (call_of, i) for i in range(100)}
    dsk |= {("c", i, j): (call_of, i, ("c", i, j - 1)) for i in range(100) for j in range(1, 5)}
    run = run_of(dsk, [("c", i, 4) for i in range(100)])
    while run.ready and (block := run.next_block()) is not None:
        keys = [task.key for task in block.tasks.values()]
        assert len(keys) % 5 == 0
        assert [key[1] for key in keys] == [key[1] for key in keys for _ in range(1)]
        assert block.imports == {}


def test_blocks_last_as_long_as_intended():
    dsk = {("x", i): (call_of, i) for i in range(1000)}
    for each_s in (0.001, 0.010, 1.0):
        run = run_of(dsk, [*dsk], durations_s={0: each_s})
        block = run.next_block()
        assert isinstance(block, Block)
        assert 0.5 < block.n_tasks * each_s / max(BLOCK_S, each_s) <= 1.4


def test_at_most_two_blocks_for_each_slot():
    dsk = {("x", i): (call_of, i) for i in range(1000)}
    run = run_of(dsk, [*dsk], n_slots=3)
    n_blocks = 0
    while run.next_block() is not None:
        n_blocks += 1
    assert n_blocks == 6
