"""The recipes that the client keeps to submit tasks again, within a limit. A part of the core.

Another scheduler at the same address has none of the tasks, and a worker may lose the only copy of
a result. So what was submitted is kept, as it was encoded, until no future needs it: `FutureState`
refers to its record, and the record to the states of its inputs (`lineage`), also when their
futures are gone. References are the only count of what is needed.

- A small result needs no record: the pickled result, which is here, is the recipe. It becomes the
  argument of a task that returns it (`Constants`), so the user's function does not run again.
- Records of pending tasks, and those smaller than `SMALL_NBYTES`, are not counted: they cost no
  more than the futures themselves.
- Beyond the limit the oldest counted records go into a file (`SpillRecipes`). If they cannot be
  written, they are dropped and counted: their results are lost with the last worker that has them.
"""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from ...protocol.wire.options import NO_OPTIONS
from ...protocol.wire.payload import Blob, blob_nbytes
from .events import RecipesSpilled, SpillRecipes, Warn
from .tasks import NONE, FunctionRecord, FutureState, TaskColumns, TaskRecord

if TYPE_CHECKING:
    from .feature import Handler
    from .state import ClientState

#: Memory for counted records, by default.
LIMIT_NBYTES: Final = 256 << 20
#: Records with fewer bytes of arguments are not counted.
SMALL_NBYTES: Final = 1 << 10
#: A result with more bytes is computed again rather than kept.
MAX_CONSTANT_NBYTES: Final = 128 << 10


#: In the records of constants, which are never submitted by a user.
_NO_STATE: Final = FutureState("")


class ConstantMaker(Protocol):
    """Makes tasks that return a given value."""

    @property
    def function(self) -> tuple[bytes, bytes]:
        """The id and the pickle of their function."""

    def arguments(self, blob: Blob) -> Blob:
        """Return the arguments for the value that `blob` is the pickle of."""


class Recipes:
    """The counted records of one client."""

    def __init__(self, limit_nbytes: int, constants: ConstantMaker | None) -> None:
        self.limit_nbytes = limit_nbytes
        #: Sum over `counted`, once `settle` has run.
        self.nbytes = 0
        #: {record: bytes in memory}, the oldest first.
        self.counted: dict[weakref.ref[TaskRecord | TaskColumns], int] = {}
        #: The records that are being written.
        self.spilling: list[TaskRecord | TaskColumns] = []
        #: Records that could not be kept.
        self.n_dropped = 0
        #: Records that are gone: any thread appends.
        self._gone: deque[weakref.ref[TaskRecord | TaskColumns]] = deque()
        self._constants = constants
        self._function: FunctionRecord | None = None

    def constant(self, blob: Blob, spec_hash: bytes | None) -> TaskRecord | None:
        """Return a record of a task whose result is that of `blob`; None if it is too large."""
        if self._constants is None or blob_nbytes(blob) > MAX_CONSTANT_NBYTES:
            return None
        if self._function is None:
            function_id, pickled = self._constants.function
            self._function = FunctionRecord(function_id, pickled, "constant")
        arguments = self._constants.arguments(blob)
        return TaskRecord(_NO_STATE, self._function, arguments, NONE, NO_OPTIONS, spec_hash)

    def is_constant(self, state: FutureState) -> bool:
        """Return whether the recipe of a state is its result, not the call of the user."""
        return state.spec is None or state.spec.function is self._function

    def count(self, record: TaskRecord | TaskColumns) -> None:
        """Count a record that is kept although its task is done."""
        record.is_counted = True
        nbytes = record.nbytes
        if nbytes >= SMALL_NBYTES:
            self.counted[weakref.ref(record, self._gone.append)] = nbytes
            self.nbytes += nbytes

    def settle(self) -> None:
        """Count no longer the records that are gone."""
        while self._gone:
            self.nbytes -= self.counted.pop(self._gone.popleft(), 0)


def has_recipe(core: ClientState, state: FutureState) -> bool:
    """Return whether a state can be submitted (again)."""
    spec = state.spec
    if spec is None:
        blob = _result_of(core, state)
        return blob is not None and blob_nbytes(blob) <= MAX_CONSTANT_NBYTES
    return spec.args is not None


def _result_of(core: ClientState, state: FutureState) -> Blob | None:
    """Return the pickled result; None for a unique one: its handle does not make it again."""
    return None if state in core.made else state.blob


def recipe_of(core: ClientState, state: FutureState) -> TaskRecord | None:
    """Return the record from which a state can be submitted; None if there is none."""
    spec = state.spec
    if spec is None:
        blob = _result_of(core, state)
        if blob is None:
            return None
        # Once released, another task may have the name.
        is_known = core.table.states.get(state.key) is state
        hashes = core.table.spec_hashes([state.key]) if is_known else []
        return core.recipes.constant(blob, hashes[0] if hashes else None)
    return None if spec.args is None else spec.row(state.key)


def keep_result(core: ClientState, state: FutureState) -> None:
    """Keep a pickled result that nobody reads any more only as a recipe, if it is one."""
    if state.spec is None:
        state.spec = record = recipe_of(core, state)
        if record is not None:
            core.recipes.count(record)
    state.blob = None


def spill(core: ClientState) -> None:
    """Have the oldest records written into a file if they are too many, and none are under way."""
    recipes = core.recipes
    if recipes.spilling:
        return
    recipes.settle()
    if recipes.nbytes <= recipes.limit_nbytes:
        return
    excess = recipes.nbytes - recipes.limit_nbytes * 3 // 4
    for reference, nbytes in recipes.counted.items():
        record = reference()
        if record is not None:
            recipes.spilling.append(record)
            excess -= nbytes
            if excess <= 0:
                break
    if recipes.spilling:
        core.after.append(SpillRecipes(recipes.spilling))


def on_spilled(core: ClientState, event: RecipesSpilled) -> None:
    """Replace the records in memory by those in the file; or drop them, and warn once."""
    recipes = core.recipes
    records, recipes.spilling = recipes.spilling, []
    for i, record in enumerate(records):
        recipes.nbytes -= recipes.counted.pop(weakref.ref(record), 0)
        if event.args is None:
            record.args = None  # type: ignore[assignment]  # see `recipe_of`
            record.lineage = NONE if isinstance(record, TaskRecord) else {}
        else:
            record.args = event.args[i]
    if event.args is not None or not records:
        return
    if not recipes.n_dropped:
        core.after.append(
            Warn(
                f"what is needed to compute results again takes more than "
                f"{recipes.limit_nbytes >> 20} MiB, and could not be written to a file "
                f"({event.reason}): if the scheduler or a worker is lost, some results may be lost "
                "with it; release futures that are not needed, give the client a larger "
                "recovery_memory=, or set TMPDIR to a folder with more room"
            )
        )
    recipes.n_dropped += len(records)


RECIPES: Final[dict[type, Handler]] = {RecipesSpilled: on_spilled}
