"""Places tasks and their dependencies in a plane: layers from left to right. Pure.

1. The *layer* of a task is the longest path to it from a task without inputs here. So each input is
   further left. Inputs are moved right as far as their nearest reader permits, which shortens
   edges.
2. If there are more tasks than can be read, those of one layer and function become one box.
3. An edge that passes layers has a point in each of them, so it can be led between boxes.
4. The order within a layer is that of the means of the neighbours' places, from left to right and
   back (barycentres), a few times. This needs no search, and few edges cross.
5. Boxes stand below each other, and each layer is centred.

It is the scheme of Sugiyama, Tagawa and Toda (1981), with the simplest of each part. The time is
bounded by the number of edges times the number of layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

#: Boxes that are drawn for a task each; of more tasks, those of one layer and function are one box.
MAX_SINGLE: Final = 60
#: Times that layers are ordered, to and fro.
_N_SWEEPS: Final = 4
#: Width and height of a box, and the distances between two.
BOX_WIDTH: Final = 168
BOX_HEIGHT: Final = 38
GAP_X: Final = 52
GAP_Y: Final = 12
#: Height of the place of an edge that passes a layer.
_PASS_HEIGHT: Final = 8
MARGIN: Final = 10


@dataclass(frozen=True, slots=True)
class NeighbourTask:
    """A task of a selection; of its neighbours, those that the scheduler has named."""

    key: str
    function: str
    state: str
    inputs: tuple[str, ...] = ()
    dependents: tuple[str, ...] = ()
    n_inputs: int = 0
    n_dependents: int = 0


@dataclass(slots=True)
class Neighbours:
    """The tasks of a selection: `{key: task}`."""

    tasks: dict[str, NeighbourTask] = field(default_factory=dict)

    def edges(self) -> dict[tuple[str, str], None]:
        """Return {(input, reader): None} of those between tasks that are here."""
        found: dict[tuple[str, str], None] = {}
        for task in self.tasks.values():
            found |= {(one, task.key): None for one in task.inputs if one in self.tasks}
            found |= {(task.key, one): None for one in task.dependents if one in self.tasks}
        return found

    @property
    def n_missing(self) -> int:
        """Dependencies of these tasks that lead to others, at least."""
        n = sum(task.n_inputs + task.n_dependents for task in self.tasks.values())
        return max(0, n - 2 * len(self.edges()))


@dataclass(slots=True)
class Box:
    """One task, or several of one function."""

    keys: list[str]
    function: str
    #: {state: tasks}
    states: dict[str, int]
    layer: int
    x: float = 0.0  #: of the left edge
    y: float = 0.0  #: of the top


@dataclass(slots=True)
class Edge:
    """A dependency: its points, from the right edge of the input to the left edge of the reader."""

    points: list[tuple[float, float]]
    n: int  #: dependencies that it stands for
    is_of_chosen: bool


@dataclass(slots=True)
class Layout:
    """Boxes and edges, and the size of the picture."""

    boxes: list[Box]
    edges: list[Edge]
    width: float
    height: float


def layers_of(
    keys: Mapping[str, object], edges: Mapping[tuple[str, str], object]
) -> dict[str, int]:
    """Return {key: layer}; each input is in an earlier layer than its reader.

    A cycle, which there is none of in a graph of tasks, is cut where it is met.
    """
    inputs: dict[str, list[str]] = {key: [] for key in keys}
    readers: dict[str, list[str]] = {key: [] for key in keys}
    for source, target in edges:
        inputs[target].append(source)
        readers[source].append(target)
    n_left = {key: len(some) for key, some in inputs.items()}
    order = [key for key, n in n_left.items() if not n]
    layers = dict.fromkeys(order, 0)
    for key in order:  # which grows
        for reader in readers[key]:
            layers[reader] = max(layers.get(reader, 0), layers[key] + 1)
            n_left[reader] -= 1
            if not n_left[reader]:
                order.append(reader)
    for key in reversed(order):
        if readers[key]:
            layers[key] = max(layers[key], min(layers[one] for one in readers[key]) - 1)
    return {key: layers.get(key, 0) for key in keys}


def layout(found: Neighbours, chosen: str, max_single: int = MAX_SINGLE) -> Layout:
    """Return where to draw the tasks of a selection.

    Args:
        found: the tasks.
        chosen: the key around which they are; it has a box of its own.
        max_single: with more tasks, those of one layer and function are one box.
    """
    edges = found.edges()
    boxes, box_of = _boxes(found, layers_of(found.tasks, edges), chosen, max_single)
    counts: dict[tuple[int, int], int] = {}
    for one, reader in edges:
        pair = box_of[one], box_of[reader]
        if boxes[pair[0]].layer < boxes[pair[1]].layer:
            counts[pair] = counts.get(pair, 0) + 1
    # Points of edges in the layers that they pass are places as well: -1, -2, ...
    columns: list[list[int]] = [[] for _ in range(1 + max((b.layer for b in boxes), default=0))]
    for i, box in enumerate(boxes):
        columns[box.layer].append(i)
    chains: dict[tuple[int, int], list[int]] = {}
    n_passes = 0
    for source, target in counts:
        chain = [source]
        for layer in range(boxes[source].layer + 1, boxes[target].layer):
            n_passes += 1
            columns[layer].append(-n_passes)
            chain.append(-n_passes)
        chains[source, target] = [*chain, target]
    _order(columns, chains)
    y_of = _place(columns, boxes)
    at_chosen = box_of.get(chosen, -1)
    drawn = []
    for pair, chain in chains.items():
        drawn.append(Edge(_points(chain, boxes, y_of), counts[pair], at_chosen in pair))
    right = max((box.x for box in boxes), default=0.0) + BOX_WIDTH + MARGIN
    bottom = max((box.y for box in boxes), default=0.0) + BOX_HEIGHT + MARGIN
    lowest = max((y for edge in drawn for _, y in edge.points), default=0.0) + MARGIN
    return Layout(boxes, drawn, right, max(bottom, lowest))


def _boxes(
    found: Neighbours, layers: dict[str, int], chosen: str, max_single: int
) -> tuple[list[Box], dict[str, int]]:
    """Return the boxes, and {key: number of its box}."""
    is_grouped = len(found.tasks) > max_single
    boxes: list[Box] = []
    box_of: dict[str, int] = {}
    groups: dict[tuple[int, str], int] = {}
    for key, task in found.tasks.items():
        group = layers[key], task.function
        place = groups.get(group) if is_grouped and key != chosen else None
        if place is None:
            place = len(boxes)
            boxes.append(Box([], task.function, {}, layers[key]))
            if key != chosen:
                groups[group] = place
        box = boxes[place]
        box.keys.append(key)
        box.states[task.state] = box.states.get(task.state, 0) + 1
        box_of[key] = place
    return boxes, box_of


def _order(columns: list[list[int]], chains: Mapping[tuple[int, int], list[int]]) -> None:
    """Order each layer by the means of its neighbours' places."""
    left: dict[int, list[int]] = {}
    right: dict[int, list[int]] = {}
    for chain in chains.values():
        for before, after in pairwise(chain):
            right.setdefault(before, []).append(after)
            left.setdefault(after, []).append(before)
    place = {one: i for column in columns for i, one in enumerate(column)}
    for sweep in range(_N_SWEEPS):
        neighbours, walk = (left, columns[1:]) if sweep % 2 == 0 else (right, columns[-2::-1])
        for column in walk:
            means = {}
            for one in column:
                near = neighbours.get(one)
                means[one] = sum(map(place.__getitem__, near)) / len(near) if near else place[one]
            column.sort(key=means.__getitem__)
            place.update((one, i) for i, one in enumerate(column))


def _place(columns: list[list[int]], boxes: list[Box]) -> dict[int, float]:
    """Set the places of boxes; return {point: y} of edges that pass layers."""
    heights = [
        sum((BOX_HEIGHT if one >= 0 else _PASS_HEIGHT) + GAP_Y for one in column) - GAP_Y
        for column in columns
    ]
    tallest = max(heights, default=0)
    y_of: dict[int, float] = {}
    for layer, (column, height) in enumerate(zip(columns, heights, strict=True)):
        y = MARGIN + (tallest - height) / 2
        for one in column:
            if one >= 0:
                boxes[one].x, boxes[one].y = MARGIN + layer * (BOX_WIDTH + GAP_X), y
                y += BOX_HEIGHT + GAP_Y
            else:
                y_of[one] = y + _PASS_HEIGHT / 2
                y += _PASS_HEIGHT + GAP_Y
    return y_of


def _points(
    chain: list[int], boxes: list[Box], y_of: dict[int, float]
) -> list[tuple[float, float]]:
    first, last = boxes[chain[0]], boxes[chain[-1]]
    points = [(first.x + BOX_WIDTH, first.y + BOX_HEIGHT / 2)]
    for layer, one in enumerate(chain[1:-1], first.layer + 1):
        left = MARGIN + layer * (BOX_WIDTH + GAP_X)
        points += [(left, y_of[one]), (left + BOX_WIDTH, y_of[one])]
    return [*points, (last.x, last.y + BOX_HEIGHT / 2)]
