"""The state of one graph that a cluster runs in blocks; decides which tasks are a block.

It owns the ready stacks, the durations of tasks and the counts of uses. It does no I/O:
`next_block` makes a block, which the driver submits as one task of the cluster, and reports come in
by `on_report`.

**Blocks.** While one is built, its tasks count as finished: dependents for which it will have all
inputs go next. So chains and subtrees are whole blocks, depth first. What a task reads from its own
block never leaves that. All else has finished before the block is submitted.

**Estimates may be wrong.** A worker that comes late with a block gives back what it has not begun,
while the task that it runs goes on. So a long task never holds back those behind it for long.

Known methods are used: guided self-scheduling for the length of blocks, and depth first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from .tasks import DONE, READY, SENT, WAITING, Block, BlockTask

#: Intended duration of a block, long compared with the cost of a task of the cluster, 1 ms; the
#: last ones are shorter, but not shorter than the second figure.
BLOCK_S = 0.025
LEAST_S = 0.002
#: Without idle slots, no block of less work than this is made: more may become ready.
AHEAD_S = 0.003
#: Blocks of one slot: the one that runs, and the next.
MAX_BLOCKS = 2
#: Cost of a task beside its call.
OVERHEAD_S = 2e-6
#: Estimated duration of a task before any was measured.
FIRST_GUESS_S = 0.001
#: Tasks shorter than this are so cheap that their number must not make blocks short.
TINY_S = 1e-4
#: Sum of payloads beyond which no further task is put into a block.
BLOCK_NBYTES = 4 << 20


class BlockRun:
    """One graph.

    Args:
        tasks: numbered by their index, literals included; see `encoding`.
        ready: those without dependencies other than literals, as a stack.
        n_groups: groups are numbered from 0; tasks of one group are taken to last equally long.
        n_slots: number of blocks that the cluster can run at once, at least 1.
        chunksize: tasks in a block; None = by duration, -1 = all ready ones, spread evenly.
        durations_s: {group: seconds} that are known from earlier runs.
    """

    def __init__(
        self,
        tasks: Sequence[BlockTask],
        ready: list[BlockTask],
        n_groups: int,
        n_slots: int,
        chunksize: int | None = None,
        durations_s: Mapping[int, float] | None = None,
    ) -> None:
        self.tasks = tasks
        #: READY tasks that any worker may run, as a stack: the end runs first.
        self.ready = ready
        #: {worker: READY tasks that only it can run}
        self.ready_at: dict[str, list[BlockTask]] = {}
        #: READY tasks that no worker can run: their inputs cannot leave different workers.
        self.torn: list[BlockTask] = []
        #: Blocks that are not over.
        self.blocks: list[Block] = []
        self.n_slots = n_slots
        self.chunksize = chunksize
        self.n_unfinished = self._n_unsent = sum(task.state != DONE for task in tasks)
        #: Tasks whose value no task needs any more. The driver empties it.
        self.released: list[BlockTask] = []
        #: {group: seconds per task}, None = unknown.
        self.durations_s: list[float | None] = [None] * n_groups
        for group, seconds in (durations_s or {}).items():
            self.durations_s[group] = seconds

    # --- Making blocks ----------------------------------------------------------------------------

    def next_block(self) -> Block | None:
        """Make a block, whose tasks are SENT from then on; None = none is wanted now."""
        for place, stack in self.ready_at.items():
            if stack and sum(block.place == place for block in self.blocks) < MAX_BLOCKS:
                return self._build(stack, place)
        n_blocks = len(self.blocks)
        if not self.ready or n_blocks >= MAX_BLOCKS * self.n_slots:
            return None
        if n_blocks >= self.n_slots and len(self.ready) * self._guess(self.ready[-1]) < AHEAD_S:
            return None
        return self._build(self.ready, None)

    def _guess(self, task: BlockTask) -> float:
        known = self.durations_s[task.group]
        return OVERHEAD_S + (FIRST_GUESS_S if known is None else known)

    def _limits(self, stack: list[BlockTask]) -> tuple[int, float, float]:
        """Return the limits of a block: number of ready tasks, number of tasks, and seconds."""
        n_ready, chunksize = len(stack), self.chunksize
        if chunksize is None:
            each_s = self._guess(stack[-1])
            left_s = each_s * self._n_unsent / (3 * self.n_slots)
            n_free = max(MAX_BLOCKS * self.n_slots - len(self.blocks), 1)
            share = -(-n_ready // n_free)
            if each_s < TINY_S:
                share = max(share, int(LEAST_S / each_s))
            return share, inf, min(BLOCK_S, max(LEAST_S, left_s))
        if chunksize < 0:
            chunksize = max(-(-n_ready // self.n_slots), 1)
        return chunksize, chunksize, inf

    def _build(self, stack: list[BlockTask], place: str | None) -> Block:
        n_roots, n_left, budget_s = self._limits(stack)
        block = Block(place)
        sent, imports = block.tasks, block.imports
        durations_s = self.durations_s
        following: list[BlockTask] = []
        load_s = half_s = 0.0
        nbytes_left = BLOCK_NBYTES
        while n_left > 0 and load_s + half_s < budget_s and nbytes_left > 0:
            if following:
                task = following.pop()
            elif stack and n_roots:
                task = stack.pop()
                n_roots -= 1
            else:
                break
            task.state = SENT
            task.block = block
            sent[task.number] = task
            n_left -= 1
            nbytes_left -= len(task.payload)
            known_s = durations_s[task.group]
            each_s = OVERHEAD_S + (FIRST_GUESS_S if known_s is None else known_s)
            load_s += each_s
            half_s = each_s / 2
            drops: list[int] = []
            dependencies: list[Any] = task.dependencies
            for dependency in dependencies:
                n_open_uses = dependency.n_open_uses = dependency.n_open_uses - 1
                if dependency.state == DONE:
                    imports[dependency] = imports.get(dependency, 0) + 1
                elif not n_open_uses and not dependency.is_output:
                    drops.append(dependency.number)
            task.drops = drops
            dependents: list[Any] = task.dependents
            for dependent in dependents:
                n_unassigned = dependent.n_unassigned = dependent.n_unassigned - 1
                if not n_unassigned:
                    self._follow(dependent, block, following)
        block.waiting += following
        block.n_tasks = len(sent)
        block.load_s = load_s
        self._n_unsent -= len(sent)
        self.blocks.append(block)
        return block

    def _follow(self, task: BlockTask, block: Block, following: list[BlockTask]) -> None:
        """Let a task, whose inputs were all sent, follow in this block or wait for others."""
        dependencies: list[Any] = task.dependencies
        may_follow = True
        for dependency in dependencies:
            if dependency.state == DONE:
                may_follow &= dependency.place is None or dependency.place == block.place
            else:
                may_follow &= dependency.block is block
        if may_follow:
            following.append(task)
            return
        for dependency in dependencies:
            if dependency.state != DONE:
                dependency.block.waiting.append(task)

    # --- Reports ----------------------------------------------------------------------------------

    def on_report(
        self,
        block: Block,
        finished: Iterable[int],
        exported: Mapping[int, Any],
        *,
        n_kept: int | None = None,
        places: Mapping[int, str] | None = None,
        durations: Mapping[int, tuple[int, float]] | None = None,
        is_over: bool = True,
    ) -> None:
        """Handle a report of the worker that runs a block.

        Args:
            block: it.
            finished: numbers of tasks that have finished since the last report.
            exported: {number: value} of those whose value is needed outside of the block.
            n_kept: the worker has given back all tasks but the first `n_kept` of the block.
            places: {number: worker} of values that only that worker can read.
            durations: {group: (tasks, seconds)}.
            is_over: it is the last report.
        """
        if durations:
            self._learn(durations)
        if n_kept is not None and n_kept < block.n_tasks:
            self._take_back(block, block.n_tasks - n_kept)
        for number in finished:
            task = block.tasks.pop(number)
            task.state = DONE
            task.block = None
            task.payload = b""
            task.n_waiting = 0
            if number in exported:
                task.exported = exported[number]
            task.place = places.get(number) if places else None
            n_uses = task.n_open_uses
            if not is_over:
                # Tasks of its block that are still to run may be given back, and then need it.
                n_here = sum(one.block is block for one in task.dependents)  # type: ignore[attr-defined]
                if n_here:
                    block.imports[task] = n_here
                    n_uses += n_here
            task.n_uses = n_uses
            if task.is_output:
                task.is_output = 0
            if not task.n_uses:
                self.released.append(task)
                task.dependents = []
            self.n_unfinished -= 1
        if is_over:
            assert not block.tasks, "the last report names what was not given back"
            block.is_over = True
            self.blocks.remove(block)
            for dependency, n_uses in block.imports.items():
                dependency.n_uses -= n_uses
                if not dependency.n_uses:
                    self.released.append(dependency)
                    dependency.dependents = []
            block.imports = {}
        waiting, block.waiting = block.waiting, []
        for task in waiting:
            if task.state == WAITING and not task.n_unassigned:
                self._place(task, block)

    def _take_back(self, block: Block, n_tasks: int) -> None:
        """Take back the last tasks of a block."""
        tasks = list(block.tasks.values())[len(block.tasks) - n_tasks :]
        block.n_tasks -= n_tasks
        self._n_unsent += n_tasks
        for task in tasks:
            del block.tasks[task.number]
            task.state = WAITING
            task.block = None
            task.drops = []
            for dependent in task.dependents:
                dependent.n_unassigned += 1  # type: ignore[attr-defined]
            dependencies: list[Any] = task.dependencies
            for dependency in dependencies:
                dependency.n_open_uses += 1
                if dependency in block.imports:
                    block.imports[dependency] -= 1
        # The last of them first, so that the stack has them in their order.
        block.waiting += reversed(tasks)

    def _place(self, task: BlockTask, block: Block) -> None:
        """Put a task on its ready stack, or let it wait for a block that has an input."""
        dependencies: list[Any] = task.dependencies
        places: dict[str, None] = {}
        waits = waits_here = False
        for dependency in dependencies:
            if dependency.state != DONE:
                waits = True
                waits_here |= dependency.block is block
            elif dependency.place is not None:
                places[dependency.place] = None
        if waits:
            if waits_here:  # others have it among their waiting tasks
                block.waiting.append(task)
            return
        task.state = READY
        if not places:
            self.ready.append(task)
        elif len(places) == 1:
            (place,) = places
            self.ready_at.setdefault(place, []).append(task)
        else:
            self.torn.append(task)

    def _learn(self, durations: Mapping[int, tuple[int, float]]) -> None:
        known = self.durations_s
        for group, (n_tasks, seconds) in durations.items():
            mean_s = seconds / n_tasks
            before_s = known[group]
            known[group] = mean_s if before_s is None else (before_s + mean_s) / 2
