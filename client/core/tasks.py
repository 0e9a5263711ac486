"""The client's records: the state behind futures, and the tasks as they were submitted.

Owns `FutureState`, one for each key that this client holds futures of, and the records from which
a task can be submitted, and submitted again. Shared by user threads and the core under one rule:
user threads make these objects and hand them over through the operations queue; from then on only
the loop thread writes to them (`FutureTable` owns the one exception, `n_references`), while user
threads may read `status`, `failure`, `blob` and `value` at any time without a lock.

Writers therefore keep an order: content first, `status` last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

from ...protocol.wire.failure import Failure
from ...protocol.wire.options import TaskOptions
from ...protocol.wire.payload import Blob, blob_nbytes

#: The status of a state, as users see it.
Status: TypeAlias = Literal["pending", "finished", "error", "cancelled", "lost"]
#: The scheduler's knowledge of a state.
Phase: TypeAlias = Literal["new", "unsent", "sent", "kept", "gone"]
State: TypeAlias = Status | Phase

PENDING: Final = "pending"
FINISHED: Final = "finished"
ERROR: Final = "error"
CANCELLED: Final = "cancelled"
LOST: Final = "lost"
FAILED: Final = frozenset({ERROR, CANCELLED, LOST})

NEW: Final = "new"  #: the core has not met it, or its call waits for a key of another client
UNSENT: Final = "unsent"  #: to be submitted when there is a connection
SENT: Final = "sent"  #: submitted or wanted; released with ReleaseKeys
KEPT: Final = "kept"  #: done, and unknown to a new scheduler: submitted when a task reads it
GONE: Final = "gone"  #: released, cancelled or never sent: no later message is about it

#: The `FutureState.value` of a result that is not unpickled yet, because None is a value.
NO_VALUE: Final = object()

#: The kind of the failure of a result that is here and whose unpickling raised.
UNREADABLE: Final = "unreadable"

#: The kind of the failure of a call that reads a key which another client did not confirm in time.
NOT_LENT: Final = "not-lent"

#: The reason why a watched state without futures has no result; the task may still run.
RELEASED: Final = "its last future was released"


class FunctionRecord:
    """A pickled function: one object per function id, as long as any task of it lives."""

    __slots__ = ("__weakref__", "blob", "id", "n_wanted", "name")

    def __init__(self, function_id: bytes, blob: bytes, name: str) -> None:
        self.id = function_id
        self.blob = blob
        self.name = name
        #: Number of states whose `function` is this. While > 0 the scheduler has the blob.
        self.n_wanted = 0


class FutureState:
    """The state that a client keeps per key. All futures of the key share it.

    `transitions.TRANSITIONS` lists the moves of `phase` and `status`, the only ones there are.
    """

    __slots__ = (
        "blob",
        "failure",
        "function",
        "key",
        "location",
        "n_references",
        "phase",
        "shared",
        "shown",
        "spec",
        "status",
        "value",
        "watchers",
    )

    key: str
    status: Status
    #: Futures attached, minus releases handled. Changed by `FutureTable` only.
    n_references: int
    #: The pickled result, if it is here and not unpickled yet. A small one stays afterwards, in the
    #: place of a recipe: see `recipes`.
    blob: Blob | None
    #: The result, or NO_VALUE. Set by the thread that unpickles it.
    value: Any
    #: Why there is no result; not None iff the status is error, cancelled or lost.
    failure: Failure | None
    #: Options that the text of the failure shows; only set if there are any.
    shown: dict[str, Any]
    #: (address, nbytes) of a large result that stays with a worker.
    location: tuple[str, int] | None
    #: Watchers to be notified when the status is final: none, one, or several.
    watchers: Watcher | list[Watcher] | None
    #: What is kept as long as this state is, because its result is computed from it.
    shared: tuple[Any, ...] | None
    #: The recipe: the record from which it is submitted again if the scheduler lost it. Not None
    #: while pending, if it was submitted by this client; see `recipes`.
    spec: TaskRecord | TaskColumns | None
    #: The function that this state is counted for (see FunctionRecord), or None.
    function: FunctionRecord | None
    phase: Phase

    def __init__(self, key: str) -> None:
        self.key = key
        self.status = PENDING
        self.n_references = 1
        self.value = NO_VALUE
        self.blob = self.failure = self.location = self.watchers = self.spec = self.function = None
        self.shared = None
        self.phase = NEW

    def __repr__(self) -> str:
        return f"<FutureState {self.key} {self.phase} {self.status} {self.n_references}>"

    def describe(self) -> list[str]:
        """Describe the state, one fact per line, for the text of internal errors."""
        values = {name: getattr(self, name, None) for name in self.__slots__}
        hidden = {"value": self.value is not NO_VALUE, "blob": self.blob is not None}
        return [f"{name}: {value!r}" for name, value in (values | hidden).items()]

    @property
    def has_data(self) -> bool:
        """Return whether the result is in this process."""
        # The thread that unpickles sets `value` before it clears `blob`.
        return self.blob is not None or self.value is not NO_VALUE


def is_unreadable(state: FutureState) -> bool:
    """Return whether a result exists that cannot be unpickled here; its task has not failed."""
    return state.failure is not None and state.failure[0] == UNREADABLE


#: No dependencies, for all records without any: one list for each would be most of their size.
NONE: Final[list[Any]] = []


class TaskRecord:
    """One submitted task.

    Its `state` is deleted when it leaves the table: a cycle would keep objects that may be large
    until the garbage collector runs.
    """

    __slots__ = (
        "__weakref__",
        "args",
        "dependencies",
        "function",
        "is_counted",
        "lineage",
        "options",
        "rank",
        "replaced",
        "spec_hash",
        "state",
    )

    def __init__(
        self,
        state: FutureState,
        function: FunctionRecord,
        args: Blob,
        dependencies: list[str],
        options: TaskOptions,
        spec_hash: bytes | None = None,
        replaced: FutureState | None = None,
        rank: int | None = None,
    ) -> None:
        self.state = state
        self.function = function
        self.args = args
        self.dependencies = dependencies or NONE
        self.options = options
        #: For keys that the user named.
        self.spec_hash = spec_hash
        #: The failed state of the same key that this one replaces.
        self.replaced = replaced
        #: Its place in the order of its graph; None = that of its arrival and of its inputs.
        self.rank = rank
        #: The states of the dependencies, which keeps their specs: filled in by the core.
        self.lineage: list[FutureState] = NONE
        #: Known to `recipes.Recipes`.
        self.is_counted = False

    def row(self, _key: str) -> TaskRecord:
        """Return the record of one of its keys."""
        return self

    def for_caller(self, caller: tuple[int, str]) -> TaskRecord:
        """Return a record of the same task, without its state, on behalf of an attempt."""
        record = TaskRecord.__new__(TaskRecord)
        record.function = self.function
        record.args = self.args
        record.dependencies = self.dependencies
        record.options = self.options.for_attempt(*caller)
        record.spec_hash = self.spec_hash
        record.replaced = None
        record.rank = self.rank
        record.lineage = self.lineage
        return record

    @property
    def nbytes(self) -> int:
        """The size of its arguments, in bytes."""
        return blob_nbytes(self.args)


class TaskColumns:
    """Many tasks, as columns: of one function, or those of a graph.

    Its `states` are replaced by their `keys` when the core has handled the submission, for the same
    reason.
    """

    __slots__ = (
        "__weakref__",
        "_rows",
        "args",
        "dependencies",
        "function",
        "function_of",
        "functions",
        "is_counted",
        "keys",
        "lineage",
        "options",
        "ranks",
        "replaced",
        "spec_hashes",
        "states",
    )

    def __init__(
        self,
        states: list[FutureState],
        function: FunctionRecord,
        args: Sequence[Blob],
        dependencies: list[list[str]],
        options: TaskOptions,
        spec_hashes: list[bytes] | None = None,
        replaced: list[FutureState] | None = None,
        functions: list[FunctionRecord] | None = None,
        function_of: list[int] = NONE,
        ranks: list[int] = NONE,
    ) -> None:
        self.states = states
        self.keys: list[str] = NONE
        self.function = function
        #: All functions, the place of each row's one among them, and the rows' places in the order
        #: of their graph. NONE: all rows are of `function`; no row has a place.
        self.functions = functions or [function]
        self.function_of = function_of
        self.ranks = ranks
        self.args = args
        #: One list per task, or [] when no task has any.
        self.dependencies = dependencies
        self.options = options
        #: One per task, or None when the keys are weft's own.
        self.spec_hashes = spec_hashes
        #: Failed states whose keys some of `states` take over.
        self.replaced = replaced or []
        #: {key: states of its dependencies}, for tasks that have any. Filled in by the core.
        self.lineage: dict[str, list[FutureState]] = {}
        self._rows: dict[str, int] | None = None
        #: Known to `recipes.Recipes`.
        self.is_counted = False

    def drop_states(self) -> None:
        """Keep the keys of the states in their place."""
        self.keys = [state.key for state in self.states]
        self.states = NONE

    def row(self, key: str) -> TaskRecord:
        """Return a record of one of its keys, without its state; the first call is O(tasks)."""
        if self._rows is None:
            # Twice in one map is one task: the first.
            keys = self.keys
            self._rows = {keys[i]: i for i in range(len(keys) - 1, -1, -1)}
        i = self._rows[key]
        record = TaskRecord.__new__(TaskRecord)
        record.function = self.functions[self.function_of[i]] if self.function_of else self.function
        record.args = self.args[i]
        record.dependencies = self.dependencies[i] if self.dependencies else NONE
        record.options = self.options
        record.spec_hash = self.spec_hashes[i] if self.spec_hashes is not None else None
        record.replaced = None
        record.rank = self.ranks[i] if self.ranks else None
        record.lineage = self.lineage.get(key, NONE)
        return record

    @property
    def nbytes(self) -> int:
        """The size of the arguments of all its tasks, in bytes."""
        return sum(map(blob_nbytes, self.args))


class Watcher:
    """Waits for states on behalf of a thread, a coroutine or a callback. One watches many states.

    The core fills `batch` while it handles an event and hands it over with one `Notify` action; a
    subclass defines in `on_ready` what to do with it.
    """

    __slots__ = ("batch", "wants_data")

    #: Notified of a state, too, when the call is known to have begun: see `Withdraw`.
    ends_at_start: ClassVar[bool] = False

    def __init__(self, wants_data: bool) -> None:
        #: Notified when the result is in this process, not already when it is known to exist.
        self.wants_data = wants_data
        #: Empty between events.
        self.batch: list[Any] = []

    def on_ready(self, items: list[Any]) -> None:
        """Handle states that are ready (or another answer), on the loop thread."""
        raise NotImplementedError
