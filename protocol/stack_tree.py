"""Sampled stacks, added up as a tree: which calls of which functions took the time. Pure.

A worker adds what it samples, and whoever asks several workers adds up their trees. Below the root
are the functions of tasks, below each of them the calls that were seen in it. A node has the number
of samples in which it was the innermost call. So the sum over all nodes is the number of samples,
and a tree that only grows can be subtracted from what it has become later.

The number of nodes and the depth are bounded. A stack for which there is no room counts at the
innermost call of it that has a node.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

#: Nodes of one worker's tree, and of one that several are added up in; calls of one stack.
MAX_NODES: Final = 4_000
MAX_SUMMED_NODES: Final = 20_000
MAX_DEPTH: Final = 120
#: Characters of a name or path, and of one part of a text: messages refuse longer ones.
_MAX_CHARS: Final = 300
_PART_CHARS: Final = 60_000


class StackFrame(NamedTuple):
    """A function that was called, or, with no file, one whose tasks ran."""

    name: str
    file: str = ""
    line: int = 0  #: the first of the function

    def __str__(self) -> str:
        if not self.file:
            return self.name
        return f"{self.name} ({self.file.rpartition('/')[2]}:{self.line})"


class FrameTotals(NamedTuple):
    """Samples in which a function was the innermost call, and in which it was called at all."""

    frame: StackFrame
    n_self: int
    n_total: int


class StackTree:
    """The tree. Node 0 is the root; each other one comes after its parent.

    Attributes:
        parents: of each node its parent; of the root 0.
        frames: of each node what was called; of the root `StackFrame("")`.
        counts: of each node the samples in which it was the innermost call.
        n_cut: samples of which some inner calls had no room.
    """

    __slots__ = ("_max_depth", "_max_nodes", "_places", "counts", "frames", "n_cut", "parents")

    def __init__(self, max_nodes: int = MAX_NODES, max_depth: int = MAX_DEPTH) -> None:
        self._max_nodes = max_nodes
        self._max_depth = max_depth
        self.parents: list[int] = [0]
        self.frames: list[StackFrame] = [StackFrame("")]
        self.counts: list[int] = [0]
        self.n_cut = 0
        #: {(parent, frame): node}, the inverse of `parents` and `frames`
        self._places: dict[tuple[int, StackFrame], int] = {}

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def n_samples(self) -> int:
        """All samples."""
        return sum(self.counts)

    def add(self, stack: Iterable[StackFrame], n: int = 1) -> None:
        """Count a stack, outermost call first, `n` times."""
        node = 0
        for depth, frame in enumerate(stack):
            found = self._child(node, frame) if depth < self._max_depth else None
            if found is None:
                self.n_cut += n
                break
            node = found
        self.counts[node] += n

    def _child(self, node: int, frame: StackFrame) -> int | None:
        place = node, frame
        found = self._places.get(place)
        if found is None and len(self.counts) < self._max_nodes:
            found = self._places[place] = len(self.counts)
            self.parents.append(node)
            self.frames.append(frame)
            self.counts.append(0)
        return found

    def merge(self, other: StackTree) -> None:
        """Add another tree."""
        places = [0]
        self.counts[0] += other.counts[0]
        for i in range(1, len(other)):
            parent = places[other.parents[i]]
            found = self._child(parent, other.frames[i])
            if found is None:
                self.n_cut += other.counts[i]
            places.append(parent if found is None else found)
            self.counts[places[i]] += other.counts[i]
        self.n_cut += other.n_cut

    def since(self, earlier: StackTree) -> StackTree:
        """Return what has been counted after this tree was as `earlier` is."""
        found = StackTree(max(len(self), 1), self._max_depth)
        found.merge(self)
        places: list[int | None] = [0]
        for i in range(1, len(earlier)):
            above = places[earlier.parents[i]]
            place = None if above is None else self._places.get((above, earlier.frames[i]))
            places.append(place)
        for place, n in zip(places, earlier.counts, strict=True):
            if place is not None:
                found.counts[place] = max(0, found.counts[place] - n)
        found.n_cut = max(0, self.n_cut - earlier.n_cut)
        return found

    def without(self, counts: Sequence[int]) -> StackTree:
        """Return the tree with less: these are counts of its first nodes."""
        found = StackTree(max(len(self), 1), self._max_depth)
        found.merge(self)
        found.n_cut = 0
        for node, n in enumerate(counts[: len(found)]):
            found.counts[node] = max(0, found.counts[node] - n)
        return found

    def functions(self) -> dict[str, int]:
        """Return {function whose tasks ran: samples}, those with most samples first."""
        found: dict[str, int] = {}
        roots = [0] * len(self)
        for i in range(1, len(self)):
            roots[i] = roots[self.parents[i]] or i
            if self.counts[i]:
                name = self.frames[roots[i]].name
                found[name] = found.get(name, 0) + self.counts[i]
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def only(self, function: str) -> StackTree:
        """Return the part of the tree below one function whose tasks ran."""
        found = StackTree(self._max_nodes, self._max_depth)
        places: dict[int, int] = {}
        for i in range(1, len(self)):
            parent = self.parents[i]
            if parent == 0:
                is_in = self.frames[i].name == function
            else:
                is_in = parent in places
            if is_in and (child := found._child(places.get(parent, 0), self.frames[i])) is not None:
                places[i] = child
                found.counts[child] += self.counts[i]
        return found

    def totals(self) -> list[FrameTotals]:
        """Return the sums of each function that was called, those with most own samples first.

        A function that has called itself counts once for each sample.
        """
        below = self.subtree_counts()
        sums: dict[StackFrame, list[int]] = {}
        for i, inside in self._walk():
            frame = self.frames[i]
            mine = sums.setdefault(frame, [0, 0])
            mine[0] += self.counts[i]
            if not inside:
                mine[1] += below[i]
        rows = [FrameTotals(frame, *found) for frame, found in sums.items() if found[1]]
        return sorted(rows, key=lambda row: (-row.n_self, -row.n_total, row.frame))

    def subtree_counts(self) -> list[int]:
        """Return the samples of each node with all below it."""
        found = self.counts.copy()
        for i in range(len(self) - 1, 0, -1):
            found[self.parents[i]] += found[i]
        return found

    def _walk(self) -> Iterator[tuple[int, bool]]:
        """Yield each node but the root, and whether it is inside a call of the same function."""
        for i in range(1, len(self)):
            frame, outer = self.frames[i], self.parents[i]
            while outer and self.frames[outer] != frame:
                outer = self.parents[outer]
            yield i, outer != 0

    def stacks(self) -> Iterator[tuple[list[StackFrame], int]]:
        """Yield each stack that was counted, outermost call first, with its number."""
        for i, n in enumerate(self.counts):
            if n:
                stack = []
                node = i
                while node:
                    stack.append(self.frames[node])
                    node = self.parents[node]
                yield stack[::-1], n

    # -- as plain data -----------------------------------------------------------------------------
    def to_plain(self) -> dict[str, Any]:
        """Return the tree as lists of texts and numbers, each text once."""
        names: dict[str, int] = {}
        frames: dict[StackFrame, int] = {}
        frame_of = [frames.setdefault(frame, len(frames)) for frame in self.frames]
        rows = [
            [
                names.setdefault(frame.name[:_MAX_CHARS], len(names)),
                names.setdefault(frame.file[-_MAX_CHARS:], len(names)),
                frame.line,
            ]
            for frame in frames
        ]
        return {
            "names": list(names),
            "frames": rows,
            "parents": self.parents,
            "frame_of": frame_of,
            "counts": self.counts,
            "n_cut": self.n_cut,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> StackTree:
        """Return the tree of `to_plain`.

        Raises:
            ValueError, KeyError, TypeError, IndexError: it is none.
        """
        names = plain["names"]
        frames = [
            StackFrame(str(names[_place(name)]), str(names[_place(file)]), _place(line))
            for name, file, line in plain["frames"]
        ]
        tree = cls(MAX_SUMMED_NODES)
        tree.n_cut = _place(plain["n_cut"])
        columns = plain["parents"], plain["frame_of"], plain["counts"]
        places: list[int] = []
        for parent, frame, count in zip(*columns, strict=True):
            if not places:
                places.append(0)
            else:
                above = places[_place(parent)]
                found = tree._child(above, frames[_place(frame)])
                places.append(above if found is None else found)
            tree.counts[places[-1]] += _place(count)
        return tree


def _place(number: Any) -> int:
    """Return a whole number that is not negative.

    Raises:
        ValueError: it is something else.
    """
    if type(number) is not int or number < 0:
        raise ValueError(f"{number!r} is no count")
    return number


def parts_of(plain: Mapping[str, Any]) -> list[str]:
    """Return plain data as parts of a text, each of which fits into a message."""
    text = json.dumps(plain, separators=(",", ":"))
    return [text[i : i + _PART_CHARS] for i in range(0, len(text), _PART_CHARS)]


def joined(parts: Iterable[str]) -> dict[str, Any]:
    """Return the plain data of `parts_of`.

    Raises:
        ValueError, TypeError: it is something else.
    """
    found = json.loads("".join(parts))
    if not isinstance(found, dict):
        raise TypeError(f"a profile is {type(found).__name__}")
    return found


class WorkerSamples(NamedTuple):
    """What a worker has sampled: `session` tells one sampling from the next."""

    session: str
    tree: StackTree
    interval_s: float  #: between two samples, on average

    def to_info(self) -> dict[str, Any]:
        """Return it as the answer to a question."""
        about = {"session": self.session, "interval_s": self.interval_s}
        return {"parts": parts_of({**about, **self.tree.to_plain()})}

    @classmethod
    def from_info(cls, info: Mapping[str, Any]) -> WorkerSamples:
        """Return that of `to_info`.

        Raises:
            ValueError, KeyError, TypeError, IndexError: it is none.
        """
        plain = joined(info["parts"])
        interval_s = float(plain["interval_s"])
        if not 0 < interval_s < 3600:
            raise ValueError(f"an interval of {interval_s} s")
        tree = StackTree.from_plain(plain)
        return cls(str(plain["session"]), tree, interval_s)


#: {worker: its session, and the counts of its tree}
SampleMark: TypeAlias = dict[str, tuple[str, "array[int]"]]


class SampledCluster:
    """What several workers have sampled since each of them was asked first."""

    def __init__(self) -> None:
        #: {worker: what it had when it was asked first, and has now}
        self._seen: dict[str, tuple[WorkerSamples | None, WorkerSamples]] = {}
        #: {worker: {session that is over: what was counted in it}}
        self._past: dict[str, StackTree] = {}

    def note(self, worker: str, samples: WorkerSamples) -> None:
        """Note the answer of a worker."""
        before = self._seen.get(worker)
        if before is None:
            self._seen[worker] = samples, samples
        elif before[1].session == samples.session:
            self._seen[worker] = before[0], samples
        else:  # it had stopped, or is another process
            self._past.setdefault(worker, StackTree(MAX_SUMMED_NODES)).merge(self._of(worker))
            self._seen[worker] = None, samples

    def _of(self, worker: str) -> StackTree:
        first, last = self._seen[worker]
        return last.tree if first is None else last.tree.since(first.tree)

    @property
    def workers(self) -> list[str]:
        """The workers that have answered."""
        return [*self._seen]

    @property
    def interval_s(self) -> float:
        """Between two samples of a thread: the mean of the workers."""
        all_of = [last.interval_s for _, last in self._seen.values()]
        return sum(all_of) / len(all_of) if all_of else 0.01

    def mark(self) -> SampleMark:
        """Return how much has been sampled until now, in few bytes."""
        return {
            worker: (last.session, array("Q", last.tree.counts))
            for worker, (_, last) in self._seen.items()
        }

    def total(
        self, workers: Iterable[str] | None = None, since: SampleMark | None = None
    ) -> StackTree:
        """Return the sum over workers; None = all that have answered.

        Of what was sampled after a mark was made, if one is given.
        """
        found = StackTree(MAX_SUMMED_NODES)
        for worker in self._seen if workers is None else workers:
            if since and worker in since and worker in self._seen:
                session, counts = since[worker]
                tree = self._seen[worker][1].tree
                # In a session a tree only grows.
                is_same = session == self._seen[worker][1].session
                found.merge(tree.without(counts) if is_same else tree)
                continue
            if worker in self._past:
                found.merge(self._past[worker])
            if worker in self._seen:
                found.merge(self._of(worker))
        return found
