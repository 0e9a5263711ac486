"""Arrays of jobs: users begin some, end them or some rows, and have rows run again.

In a part of the runs. What these runs need is drawn from a source of chance of their own. The rows
of an array have its value, so that a result on record can be compared. Each is looked at when it is
assigned: none has an end on record then that the start of the scheduler can know.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from weft.client.core.events import Cancel
from weft.protocol.array_rows import ArrayRows, key_of_row, row_of_key
from weft.protocol.wire.options import DONE, FAILED, TaskOptions
from weft.scheduler.core.arrays.records import CHUNK, DONE_WITH_NONE, STATES
from weft.scheduler.core.journal.entries import RowsChanged

from .graphs import LARGE, Spec, unpacked

if TYPE_CHECKING:
    from weft.client.core.tasks import FutureState
    from weft.scheduler.core.arrays.records import Array
    from weft.scheduler.core.records.tasks import SchedulerTask

    from .client_node import ClientNode
    from .graphs import Graph
    from .plan import Plan
    from .scheduler_node import SchedulerNode
    from .simulation import Simulation

P_ARRAYS = 0.075
#: Rows that are under way, where there are arrays: see `limits.py`.
WINDOW, LEAST_WINDOW = 4, 2


def arguments_of(task: SchedulerTask, array: Array, position: int) -> Any:
    """Return the arguments of a row, by which the simulator finds what it does."""
    return task.args


def _code_of(chunks: dict[int, bytes], position: int) -> int:
    """Return the byte of a row."""
    states, place = chunks.get(position // CHUNK, b""), position % CHUNK
    return states[place] if place < len(states) else 0


class SimulatedArrays:
    """The arrays of a run."""

    def __init__(self, seed: int, sim: Simulation) -> None:
        self._sim = sim
        self._rng = rng = Random(f"arrays of {seed}")
        plan = sim.plan
        #: Those that are still to be begun.
        self._specs: list[Spec] = []
        #: {key: the parts of its range}
        self._parts: dict[str, list[list[int]]] = {}
        #: {state of the future: the user} of those that were begun
        self._begun: dict[FutureState, ClientNode] = {}
        #: {key: {number of a chunk: the states on record}}
        self.chunks: dict[str, dict[int, bytes]] = {}
        #: {start of the scheduler: the chunks when it last was the one that writes, or read them}
        self._known: dict[SchedulerNode, dict[str, dict[int, bytes]]] = {}
        #: {key of an array, or of a row: None} of what a user has ever asked to run again
        self._again: dict[str, None] = {}
        if rng.random() < P_ARRAYS:
            self._specs = [self._make(plan, sim.graph) for _ in range(rng.choice([1, 1, 2]))]
        self.are_some = bool(self._specs)
        if self.are_some and not plan.executes_once:
            plan.restart_rate = rng.choice([plan.restart_rate, 3.0 / plan.time])

    def _make(self, plan: Plan, graph: Graph) -> Spec:
        rng, index = self._rng, len(graph.by_key)
        spec = Spec(
            index=index,
            key=f"array-{index}",
            function="f0",
            dependencies=[],
            duration=rng.choice([0.01, 0.1, 1.0]),
            nbytes=rng.choice([8, 1000, LARGE]),
            n_raises=rng.choice([0, 0, 2]),
            kills=False,
            spec_hash=None,
            args=f"args-{index}".encode(),
            retries=plan.retries,
        )
        first, step, n = rng.choice([0, 7]), rng.choice([1, 3]), rng.choice([1, 3, 10, 25])
        self._parts[spec.key] = [[first, first + step * n, step, rng.choice([0, 3])]]
        graph.add(spec, is_recurring=True)
        return spec

    # -- users ------------------------------------------------------------------------------------
    def act(self) -> None:
        """Let a user begin an array, end one or a row, or have rows run again."""
        rng = self._rng
        if self._specs and rng.random() < 0.7:
            self._begin(self._specs.pop())
        elif self._begun and rng.random() < 0.1:
            state = rng.choice([*self._begun])
            client = self._begun.pop(state)
            if client.is_alive:
                self._sim.world.probes["array: ended"] += 1
                client.post(Cancel([state], force=True, reason="user", running=rng.random() < 0.5))
        elif self._begun:
            self._ask(rng.choice([*self._begun]).key)

    def _begin(self, spec: Spec) -> None:
        sim = self._sim
        clients = [one for one in sim.clients if one.is_alive]
        if not clients or sim.scheduler.core.started is None:
            return
        sim.world.probes["array: begun"] += 1
        for of_keys in (sim.cancelled, sim.forced, sim.released):
            of_keys[spec.key] = None  # it may end badly, and its rows are let go of
        client = self._rng.choice(clients)
        [state] = client.post_tasks([spec])
        client.beside.append(state)
        self._begun[state] = client

    def _ask(self, key: str) -> None:
        """Let a user ask about rows of an array."""
        rng, node = self._rng, self._sim.scheduler
        rows = ArrayRows(self._parts[key])
        names = [rows.name(rng.randrange(rows.n)) for _ in range(rng.choice([1, 3]))]
        if node.is_alive and not node.is_frozen:
            name = rng.choice(["retry_rows", "retry_rows", "cancel_rows", "row_ended"])
            self._sim.world.probes[f"array: {name}"] += 1
            if name == "retry_rows":
                self._again.update(dict.fromkeys(key_of_row(key, one) for one in names))
            node.ask_rows(name, key, names)

    def note_again(self, key: str) -> None:
        """Note that a user has a job run again: of an array, all rows that have not succeeded."""
        self._again[key] = None

    def ranged(self, specs: list[Spec], options: TaskOptions) -> TaskOptions:
        """Return the options of some tasks of a user, with a range if it is an array."""
        parts = self._parts.get(specs[0].key)
        return options if parts is None else options.changed(array=parts)

    # -- what is on record ------------------------------------------------------------------------
    def apply(self, entry: RowsChanged) -> None:
        """Record the states of rows: one that has ended goes on only if a user asks for it."""
        key = entry.key
        if entry.is_new:
            self.chunks[key] = {}
        chunks = self.chunks.setdefault(key, {})
        rows = ArrayRows(self._parts[key])
        for position, new in entry.states.items():
            number, place = divmod(position, CHUNK)
            states = chunks.get(number, b"").ljust(place + 1, b"\0")
            old, row = states[place], key_of_row(key, rows.name(position))
            is_asked = key in self._again or row in self._again
            assert old in (0, new) or (old > DONE_WITH_NONE and is_asked), (
                f"row {row} was {STATES[old]}, is {STATES[new]}"
            )
            chunks[number] = states[:place] + bytes([new]) + states[place + 1 :]
        self._sim.world.probes["array: rows recorded"] += bool(entry.ends)
        for end in entry.ends:
            if end.result is not None:
                value = self._sim.graph.by_key[key].value
                assert unpacked(end.result) == value, f"a row of {key} has a wrong value"

    def note_known(self, node: SchedulerNode) -> None:
        """Note that a start of the scheduler knows all that is on record now."""
        self._known[node] = {key: dict(chunks) for key, chunks in self.chunks.items()}

    def check_assigned(self, node: SchedulerNode, key: str) -> None:
        """Check that a row that a scheduler assigns has no end on record.

        One that was suspended does not know what the next ones have recorded, and neither does a
        worker that has met none of these.
        """
        of_array, name = row_of_key(key)
        if of_array not in self._parts:
            return
        position = ArrayRows(self._parts[of_array]).position(name)
        assert position is not None, f"there is no row {key}"
        chunks = self.chunks if node is self._sim.scheduler else self._known[node]
        code = _code_of(chunks.get(of_array, {}), position)
        # One that is asked for runs again before that is on record, unless it has succeeded.
        is_asked = code > DONE_WITH_NONE and (key in self._again or of_array in self._again)
        is_anew = of_array in self._sim.journal.anew
        assert not code or is_asked or is_anew, (
            f"{key} is assigned, and is {STATES[code]} on record"
        )
        self._sim.world.probes["array: row assigned"] += 1

    def check_end(self, key: str, how: str) -> None:
        """Check that an array ends as its rows have on record."""
        if key not in self._parts or how not in (DONE, FAILED):
            return
        chunks = self.chunks.get(key, {})
        codes = [_code_of(chunks, p) for p in range(ArrayRows(self._parts[key]).n)]
        if how == DONE:
            assert {STATES[code] for code in codes} == {DONE}, f"{key} is done before its rows"
        self._sim.world.probes[f"array: {how}"] += 1
