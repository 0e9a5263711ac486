"""Random graphs of symbolic tasks, and the serial interpreter that computes how each must end.

A task's value is a hash of its function, its arguments and the values of its dependencies: so a
wrong, stale or mixed-up input anywhere changes the value of all its dependents.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import Any

from weft.protocol.wire.messages import ACTOR_FUNCTION, PUT_FUNCTION
from weft.protocol.wire.payload import Blob, Payload, blob_nbytes

from .plan import Plan

ALWAYS = 1 << 30
LARGE = 200_000


@dataclass(eq=False)
class Spec:
    """One task as a user wrote it."""

    index: int
    key: str
    function: str
    dependencies: list[Spec]
    duration: float
    nbytes: int
    n_raises: int  #: its first executions that raise
    kills: bool
    spec_hash: bytes | None
    args: Blob
    priority: int = 0
    retries: int = 0
    pauses: list[float] = field(default_factory=list)
    workers: list[str] = field(default_factory=list)
    allow_other_workers: bool = False
    resources: dict[str, float] = field(default_factory=dict)
    #: Its client keeps its value only until that is at a worker.
    scattered: bool = False
    #: The serial interpreter's answer.
    value: bytes = b""
    can_finish: bool = True
    #: Keys of this and of tasks that it depends on that may raise.
    culprits: dict[str, None] = field(default_factory=dict)
    #: Keys of this and of tasks that it depends on that are actors.
    actors: dict[str, None] = field(default_factory=dict)
    #: This, or a task that it depends on, has no recipe.
    reads_scattered: bool = False
    #: {key: None} of this and all that it depends on, directly or not.
    ancestors: dict[str, None] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Spec {self.key}>"


def function_id(name: str) -> bytes:
    """Return the id under which a function is sent."""
    if name == PUT:
        return PUT_FUNCTION
    if name == ACTOR:
        return ACTOR_FUNCTION
    return blake2b(name.encode(), digest_size=16).digest()


#: The function of a task that has none: its client puts its value.
PUT = "put"
#: The function of a task that makes an actor; its value stands for the handle.
ACTOR = "actor"
#: The function of a task that returns its argument: a result that a client submits again.
CONSTANT = "constant"
_CONSTANT_ARGS = b"constant:"


class Constants:
    """Makes tasks that return a given value, as `protocol/values/constants.py` does."""

    @property
    def function(self) -> tuple[bytes, bytes]:
        """The id and the pickle of their function."""
        return function_id(CONSTANT), CONSTANT.encode()

    def arguments(self, blob: Blob) -> Blob:
        """Return the arguments for the value in `blob`."""
        return _CONSTANT_ARGS + unpacked(blob)


def value_of(function: str, args: Blob, inputs: list[bytes]) -> bytes:
    """Compute the result of a task."""
    if function == CONSTANT:
        return _pickle_of(args).removeprefix(_CONSTANT_ARGS)
    digest = blake2b(function.encode(), digest_size=12)
    digest.update(_pickle_of(args))
    for value in inputs:
        digest.update(value)
    return digest.digest()


def _pickle_of(blob: Blob) -> bytes:
    return bytes(blob.data) if isinstance(blob, Payload) else blob


def packed(value: bytes, nbytes: int) -> Blob:
    """Make the blob that stands for the pickle of a result."""
    return Payload(value, [bytearray(16)]) if nbytes >= LARGE else value


def unpacked(blob: Any) -> bytes:
    """Return the value in a blob."""
    return bytes(blob.data) if isinstance(blob, Payload) else bytes(blob)


class Graph:
    """All tasks of a run."""

    def __init__(self, plan: Plan, rng: Random) -> None:
        self.specs: list[Spec] = []
        self.by_args: dict[bytes, Spec] = {}
        for index in range(plan.n_tasks):
            self._add(plan, rng, index, _dependencies(plan.shape, index, plan.n_tasks, rng))

    def spec_of(self, args: Any) -> Spec:
        """Find the task that has these arguments; of a constant, the task that has the value."""
        tag = _pickle_of(args)
        spec = self.by_args.get(tag)
        if spec is None:
            value = tag.removeprefix(_CONSTANT_ARGS)
            spec = next(spec for spec in self.specs if spec.value == value)
            spec = replace(spec, function=CONSTANT, dependencies=[], n_raises=0, kills=False)
            self.by_args[tag] = spec
        return spec

    def _add(self, plan: Plan, rng: Random, index: int, dependencies: list[int]) -> None:
        function = f"f{rng.randrange(plan.n_functions)}"
        tag = f"args-{index}".encode()
        args: Blob = tag
        if rng.random() < plan.p_buffers:
            args = Payload(tag, [bytearray(rng.choice([0, 10, 5000]))])
        named = rng.random() < plan.p_named
        n_raises = 0
        if rng.random() < plan.p_raise:
            n_raises = ALWAYS
        elif rng.random() < plan.p_flaky:
            n_raises = rng.randint(1, 3)
        spec = Spec(
            index=index,
            key=f"n{index}" if named else f"{function}-{index}",
            function=function,
            dependencies=[self.specs[i] for i in dependencies],
            duration=rng.expovariate(1.0)
            * plan.duration
            * (20.0 if rng.random() < plan.p_long else 1.0),
            nbytes=LARGE if rng.random() < plan.p_large else rng.choice([8, 30, 1000]),
            n_raises=n_raises,
            kills=rng.random() < plan.p_poison,
            spec_hash=blake2b(tag, digest_size=16).digest() if named else None,
            args=args,
            retries=plan.retries,
            pauses=plan.pauses,
        )
        if rng.random() < plan.p_priority:
            spec.priority = rng.choice([-512, -1, 1, 2, 511])
        if rng.random() < plan.p_restricted:
            spec.workers = [rng.choice(["w0", "w1", "host0", "nobody"])]
            spec.allow_other_workers = rng.random() < 0.4
        if rng.random() < plan.p_resources:
            spec.resources = rng.choice([{"gpu": 1.0}, {"gpu": 2.0}, {"mem": 0.1}, {"mem": 0.3}])
        if not dependencies and rng.random() < plan.p_put:
            spec.function, spec.n_raises, spec.kills = PUT, 0, False
            spec.workers, spec.resources, spec.spec_hash = [], {}, None
            spec.scattered = rng.random() < plan.p_scattered
        elif rng.random() < plan.p_actor:
            spec.function, spec.nbytes = ACTOR, LARGE  # a handle stays with its worker
        self._answer(spec)
        self.specs.append(spec)
        self.by_args[tag] = spec

    @staticmethod
    def _answer(spec: Spec) -> None:
        for dependency in spec.dependencies:
            spec.culprits.update(dependency.culprits)
            spec.actors.update(dependency.actors)
            spec.reads_scattered = spec.reads_scattered or dependency.reads_scattered
            spec.ancestors.update(dependency.ancestors)
            spec.can_finish = spec.can_finish and dependency.can_finish
        spec.ancestors[spec.key] = None
        if spec.function == ACTOR:
            spec.actors[spec.key] = None
        spec.reads_scattered = spec.reads_scattered or spec.scattered
        if spec.n_raises > spec.retries:
            # The task cannot decide which of its executions are reported, and so counted.
            spec.culprits[spec.key] = None
        spec.can_finish = spec.can_finish and spec.n_raises < ALWAYS
        spec.value = value_of(spec.function, spec.args, [d.value for d in spec.dependencies])


def _dependencies(shape: str, index: int, n: int, rng: Random) -> list[int]:
    """Choose the dependencies of task `index`, by the shape of the graph."""
    if index == 0:
        return []
    if shape == "wide":
        return [rng.randrange(index)] if rng.random() < 0.05 else []
    if shape == "chains":
        n_chains = max(1, n // 12)
        return [index - n_chains] if index >= n_chains else []
    if shape == "layers":
        width = max(2, int(n**0.5))
        if index < width:
            return []
        above = index - width - index % width
        return sorted({above + (index + i) % width for i in (-1, 0, 1)})
    if shape == "tree":
        n_leaves = (n + 1) // 2
        if index < n_leaves:
            return []
        first = 2 * (index - n_leaves)
        return [i for i in (first, first + 1) if i < index]
    if shape == "fan":
        return [0] if index % 7 else list(range(max(0, index - 6), index))
    return rng.sample(range(index), k=min(index, rng.choice([0, 1, 1, 2, 3])))


def nbytes_of(blob: Blob) -> int:
    """Return the bytes of a blob."""
    return blob_nbytes(blob)
