"""Random graphs of symbolic tasks, and the serial interpreter that computes how each must end.

A task's value is a hash of its function, its arguments and the values of its dependencies: so a
wrong, stale or mixed-up input anywhere changes the value of all its dependents.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from random import Random
from typing import Any

from weft.protocol.amounts import asked_by_cores
from weft.protocol.wire.messages import ACTOR_FUNCTION, INDEX_FUNCTION, PUT_FUNCTION
from weft.protocol.wire.payload import Blob, Payload, blob_nbytes

from .plan import Plan

ALWAYS = 1 << 30
#: Tasks that tasks submit, at most, about; and how deep.
MAX_CALLED = 60
MAX_DEPTH = 12
#: Executions that one task may be expected to lead to. They multiply with each level, by the tasks
#: that it submits, and by those that ask for another worker, or raise, and submit all of it again.
#: The levels are done one after the other, and there may be several times as many as expected: all
#: must end within the time that a run has to come to rest.
MAX_RUNS = 250
#: Locks that tasks take; the last one is a limit.
TASK_LOCKS = ("t1", "t2", "limit")
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
    #: How long an execution may take; 0 = for ever.
    timeout_us: int = 0
    #: Its client keeps its value only until that is at a worker.
    scattered: bool = False
    #: What it submits while it runs, in batches; it reads their values.
    calls: list[list[Spec]] = field(default_factory=list)
    #: Whether it waits for the values of each batch before the next one, or of all at the end.
    waits_early: bool = False
    #: What it submits as well, and cancels or releases without reading it.
    given_up: list[Spec] = field(default_factory=list)
    #: The executions that one of it leads to, its own included, as expected.
    n_runs: float = 1.0
    #: A lock that it holds while it does all this; "" = none.
    lock: str = ""
    #: The name of its gang, its rank there and the size; [] = it is in none.
    gang: list[str] = field(default_factory=list)
    #: Its category, as the option has it; {} = none.
    category: dict[str, Any] = field(default_factory=dict)
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

    @property
    def called(self) -> list[Spec]:
        """All that it submits."""
        return [spec for batch in self.calls for spec in batch]


def function_id(name: str) -> bytes:
    """Return the id under which a function is sent."""
    if name == PUT:
        return PUT_FUNCTION
    if name == ACTOR:
        return ACTOR_FUNCTION
    if name == INDEX:
        return INDEX_FUNCTION
    return blake2b(name.encode(), digest_size=16).digest()


#: The function of a task that has none: its client puts its value.
PUT = "put"
#: The function of a task that makes an actor; its value stands for the handle.
ACTOR = "actor"
#: Not run either: says where the values are of which tasks with `READ` read parts (`parts.py`).
INDEX = "index"
INDEX_NBYTES = 100
READ = "read"
#: The function of a task that returns its argument: a result that a client submits again.
#: What tasks ask for, beside all cores of a worker.
AMOUNTS = [
    {"gpu": 1.0},
    {"gpu": 2.0},
    {"mem": 0.1},
    {"mem": 0.3},
    asked_by_cores(0.5),
    asked_by_cores(0),
]
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


class SpecsByKey(dict[str, Spec]):
    """{key: the task}; the key of a run leads to its recurring job, that of a row to its array."""

    def __missing__(self, key: str) -> Spec:
        for sign in "@/":
            job, found, _ = key.rpartition(sign)
            if found:
                return self[job]
        raise KeyError(key)


class Graph:
    """All tasks of a run: those of users, and those that tasks submit."""

    def __init__(self, plan: Plan, rng: Random) -> None:
        #: Those of users.
        self.specs: list[Spec] = []
        self.by_args: dict[bytes, Spec] = {}
        self.by_key = SpecsByKey()
        #: Those that tasks submit; several may submit the same one.
        self._called: list[Spec] = []
        for index in range(plan.n_tasks):
            dependencies = _dependencies(plan.shape, index, plan.n_tasks, rng)
            self.specs.append(self._make(plan, rng, [self.specs[i] for i in dependencies], 0))

    def spec_of(self, args: Any) -> Spec:
        """Find the task that has these arguments; of a constant, the task that has the value."""
        tag = _pickle_of(args)
        spec = self.by_args.get(tag)
        if spec is None:
            value = tag.removeprefix(_CONSTANT_ARGS)
            spec = next(spec for spec in self.by_key.values() if spec.value == value)
            spec = replace(
                spec,
                function=CONSTANT,
                dependencies=[],
                calls=[],
                n_raises=0,
                kills=False,
                resources={},
            )
            self.by_args[tag] = spec
        return spec

    def add(self, spec: Spec, *, is_recurring: bool = False) -> None:
        """Add a task of users that was made elsewhere; those that are recurring never end well."""
        if not is_recurring:
            self.specs.append(spec)
        self.by_key[spec.key] = spec
        if spec.args:
            self.by_args[_pickle_of(spec.args)] = spec
        self._answer(spec)

    def add_member(self, spec: Spec) -> None:
        """Add a task of a gang, which users do not submit otherwise."""
        self.by_key[spec.key] = spec
        self.by_args[_pickle_of(spec.args)] = spec
        self._answer(spec)

    def _make(self, plan: Plan, rng: Random, dependencies: list[Spec], depth: int) -> Spec:
        """Make a task of a user, or at some depth one that a task submits."""
        index = len(self.by_key)
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
        duration = rng.expovariate(1.0) * plan.duration
        if rng.random() < plan.p_long:
            duration *= 20.0
        spec = Spec(
            index=index,
            key=f"n{index}" if named else f"{function}-{index}",
            function=function,
            dependencies=dependencies,
            duration=duration * 0.05 if depth else duration,
            nbytes=LARGE if rng.random() < plan.p_large else rng.choice([8, 30, 1000]),
            n_raises=n_raises,
            kills=rng.random() < plan.p_poison,
            spec_hash=blake2b(tag, digest_size=16).digest() if named else None,
            args=args,
            # All levels are done one after the other; if each were run again, that many times more.
            retries=plan.retries if depth < 2 else 0,
            pauses=plan.pauses,
        )
        spec.n_runs = (1 + min(n_raises, spec.retries)) / (1 - plan.p_reschedule)
        if rng.random() < plan.p_priority:
            spec.priority = rng.choice([-9999, -1, 1, 2, 9999])
        if rng.random() < plan.p_restricted:
            spec.workers = [rng.choice(["w0", "w1", "host0", "nobody"])]
            spec.allow_other_workers = rng.random() < 0.4
        if rng.random() < plan.p_resources:
            spec.resources = rng.choice([*AMOUNTS, asked_by_cores(plan.nthreads)])
        self.by_key[spec.key] = spec
        self.by_args[tag] = spec
        if rng.random() < plan.p_timeout:
            spec.timeout_us = 1 + int(spec.duration * 1e6 * rng.choice([0.1, 0.5, 2.0]))
        if not depth and not dependencies and rng.random() < plan.p_put:
            spec.function, spec.n_raises, spec.kills = PUT, 0, False
            spec.workers, spec.resources, spec.spec_hash, spec.timeout_us = [], {}, None, 0
            spec.scattered = rng.random() < plan.p_scattered
        elif not depth and rng.random() < plan.p_actor:
            spec.function, spec.nbytes = ACTOR, LARGE  # a handle stays with its worker
        elif plan.p_calls and not spec.kills:
            self._add_calls(plan, rng, spec, depth + 1)
        self._answer(spec)
        return spec

    def _add_calls(self, plan: Plan, rng: Random, spec: Spec, depth: int) -> None:
        """Let a task submit others at some depth, or not."""
        if depth > MAX_DEPTH or rng.random() >= (plan.p_calls if depth == 1 else plan.p_deep):
            return
        spec.resources = {}  # it has them while it waits, and what it submits may need them
        spec.waits_early = rng.random() < 0.5
        n_executions = spec.n_runs
        if rng.random() < plan.p_task_locks:
            spec.lock = rng.choice(TASK_LOCKS)
        for _ in range(rng.choice([1, 1, 2])):
            batch: list[Spec] = []
            for _ in range(rng.choice([1, 1, 2, 5])):
                if len(self.by_key) > plan.n_tasks + MAX_CALLED:
                    break
                shared = [one for one in self._called if one not in batch]
                if shared and rng.random() < plan.p_shared_calls:
                    batch.append(rng.choice(shared))
                else:
                    inputs = rng.sample(batch, k=min(len(batch), rng.choice([0, 0, 1, 2])))
                    batch.append(self._make(plan, rng, inputs, depth))
            # One that reads others would have to be submitted with these.
            new = [one for one in batch if not one.dependencies and one not in self._called]
            self._called += new
            n_runs = n_executions * sum(one.n_runs for one in batch)
            if batch and spec.n_runs + n_runs <= MAX_RUNS:
                spec.calls.append(batch)
                spec.n_runs += n_runs
        if rng.random() < 0.2:
            spec.given_up = [self._make(plan, rng, [], MAX_DEPTH)]

    @staticmethod
    def _answer(spec: Spec) -> None:
        for called in spec.called:
            spec.can_finish = spec.can_finish and called.can_finish
            if called.culprits:
                spec.culprits[spec.key] = None  # it raises what it reads
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
        # An execution that takes too long takes a retry as well.
        if spec.n_raises > (0 if spec.timeout_us else spec.retries):
            # The task cannot decide which of its executions are reported, and so counted.
            spec.culprits[spec.key] = None
        spec.can_finish = spec.can_finish and spec.n_raises < ALWAYS
        inputs = [*spec.dependencies, *spec.called]
        spec.value = value_of(spec.function, spec.args, [one.value for one in inputs])


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
