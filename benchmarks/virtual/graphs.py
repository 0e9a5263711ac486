"""Graphs of tasks that have no code: {key: the keys that it reads}, inputs before their readers."""

from __future__ import annotations

import heapq
import random
from typing import TypeAlias

__all__ = [
    "Graph",
    "chains",
    "fork_join",
    "independent",
    "layers",
    "n_steps",
    "shuffle",
    "stencil",
    "tree",
]

Graph: TypeAlias = dict[str, list[str]]


def independent(n: int) -> Graph:
    """Tasks that read nothing."""
    return {f"x-{i}": [] for i in range(n)}


def stencil(width: int = 16, steps: int = 60) -> Graph:
    """Each task reads its left neighbour, itself and its right neighbour of the row before."""
    graph: Graph = {}
    for step in range(steps):
        for x in range(width):
            row = [i for i in (x - 1, x, x + 1) if 0 <= i < width] if step else []
            graph[f"s-{step}-{x}"] = [f"s-{step - 1}-{i}" for i in row]
    return graph


def tree(leaves: int = 1024) -> Graph:
    """A reduction by pairs."""
    graph: Graph = {f"t-0-{i}": [] for i in range(leaves)}
    level = 0
    while leaves > 1:
        leaves //= 2
        for i in range(leaves):
            graph[f"t-{level + 1}-{i}"] = [f"t-{level}-{2 * i}", f"t-{level}-{2 * i + 1}"]
        level += 1
    return graph


def fork_join(width: int = 16, stages: int = 60) -> Graph:
    """Stages of tasks that one task joins; all tasks of the next stage read that one."""
    graph: Graph = {}
    for stage in range(stages):
        before = [f"j-{stage - 1}"] if stage else []
        fork = [f"f-{stage}-{i}" for i in range(width)]
        graph |= {key: [*before] for key in fork}
        graph[f"j-{stage}"] = fork
    return graph


def chains(n: int = 16, length: int = 60) -> Graph:
    """Chains that do not depend on each other, submitted step by step."""
    return {
        f"c-{step}-{i}": [f"c-{step - 1}-{i}"] if step else []
        for step in range(length)
        for i in range(n)
    }


def shuffle(n: int = 24) -> Graph:
    """Each of n tasks reads all of the n before."""
    first = {f"in-{i}": [] for i in range(n)}
    parts = {f"part-{i}-{j}": [f"in-{i}"] for i in range(n) for j in range(n)}
    return {**first, **parts, **{f"out-{j}": [f"part-{i}-{j}" for i in range(n)] for j in range(n)}}


def layers(n: int = 1000, reach: int = 50) -> Graph:
    """Random tasks with up to three inputs among the last `reach`."""
    rng = random.Random(7)
    keys: list[str] = []
    graph: Graph = {}
    for i in range(n):
        near = keys[-reach:]
        graph[f"r-{i}"] = rng.sample(near, min(len(near), rng.choice([0, 1, 2, 3])))
        keys.append(f"r-{i}")
    return graph


def n_steps(graph: Graph, n_slots: int) -> int:
    """Return the number of steps in which slots run equal tasks, if nothing else takes time.

    Each slot takes the task with the longest path of readers behind it (T. C. Hu, 1961).
    """
    readers: dict[str, list[str]] = {key: [] for key in graph}
    for key, inputs in graph.items():
        for i in inputs:
            readers[i].append(key)
    paths: dict[str, int] = {}
    for key in reversed(graph):
        paths[key] = 1 + max((paths[reader] for reader in readers[key]), default=0)
    n_missing = {key: len(inputs) for key, inputs in graph.items()}
    ready = [(-paths[key], key) for key in graph if not n_missing[key]]
    heapq.heapify(ready)
    steps = 0
    while ready:
        steps += 1
        for _, key in [heapq.heappop(ready) for _ in range(min(n_slots, len(ready)))]:
            for reader in readers[key]:
                n_missing[reader] -= 1
                if not n_missing[reader]:
                    heapq.heappush(ready, (-paths[reader], reader))
    return steps
