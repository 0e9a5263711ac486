"""Large arguments: sent once, whatever the number of calls, and copied for each of them.

An argument of more than `SHARED_NBYTES` that has no futures in it is taken out of its call. It
becomes the value of a hidden task `data-<type>-<hash of the content>`, on which the call depends,
see `protocol.values.shared`. It is placed, fetched by peers, recomputed after a loss and released
like any dependency. This module decides when such a task exists:

- It is submitted before the first call that needs it, free to run anywhere, with the priority of
  the call; for a call of a higher priority there is another one, if the first is not done.
- Its future is held while one of its calls is pending (a watcher of these holds it), and after that
  as long as any of their futures lives (their states hold it), so that the next call finds it.
- Arguments of calls that are done stay in the memory of workers, up to `IDLE_NBYTES` in all; beyond
  that all but the last one are released, the one used longest ago first, and sent again if need be.
  So a `map` over many different large arguments uses hardly more memory than without this module.
- The client keeps the value as long as it may be needed again: see `core.features.puts`.

The same content has the same key, in all clients; calls that differ in nothing else are the same
call. An object that is an argument again is hashed again, since it may have changed: a hash reads
memory as fast as it comes, and a comparison would read twice as much. The value is copied before
`submit` returns, unless it cannot change, and goes to a worker without passing the scheduler, see
`core.features.puts`. An object that two arguments of a call share would become two objects in a
task that gets one of them this way. If they share much, the call is sent as it is.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from ...protocol.host.buffers import copy_of
from ...protocol.values.digests import digest_of
from ...protocol.values.host_blobs import share
from ...protocol.values.serialize import dumps, dumps_arguments, dumps_with_dependencies
from ...protocol.values.shared import PackedArgument, SharedReference, own_memory
from ...protocol.wire.address import is_on_this_host
from ...protocol.wire.framing import FrameLimits
from ...protocol.wire.messages import PUT_FUNCTION
from ...protocol.wire.options import TaskOptions
from ...protocol.wire.payload import Blob, Buffer, blob_nbytes, parts_of
from ..core.events import Watch
from ..core.tasks import FAILED, FunctionRecord, FutureState, TaskRecord, Watcher
from ..future import Future

if TYPE_CHECKING:
    from ..shell.engine import Engine

#: Arguments up to this size travel with their call. A hidden task costs about half a millisecond.
SHARED_NBYTES: Final = 1 << 20
#: Memory that arguments without a pending call may use, on each worker that had such a call.
IDLE_NBYTES: Final = 128 << 20
#: More than this cannot be sent at all, and the error is that of the call.
MAX_NBYTES: Final = FrameLimits().total - (1 << 20)
#: Arguments that are larger by this, each by itself, than together, have too much in common.
_MAX_COMMON_NBYTES: Final = SHARED_NBYTES // 4
_MAX_TYPE_CHARS: Final = 40


class Content:
    """A large argument, pickled and named. Views the memory of the argument."""

    __slots__ = ("_blob", "key", "nbytes")

    def __init__(self, value: object, blob: Blob) -> None:
        """Name an argument with this pickle."""
        self._blob = blob
        self.nbytes = blob_nbytes(blob)
        name = type(value).__name__
        name = name[:_MAX_TYPE_CHARS] if name.isascii() else "object"
        self.key = f"data-{name}-{digest_of(parts_of(blob))}"

    def packed(self, *, is_near: bool = False) -> Blob:
        """Return the value of the hidden task, which will not change.

        It is in a file if `is_near`: there are probably workers on this host.
        """
        data, *buffers = parts_of(self._blob)
        is_frozen = [memoryview(buffer).readonly for buffer in buffers]
        shared = share(dumps(PackedArgument(data, buffers, is_frozen))) if is_near else None
        if shared is not None:
            return shared
        argument = PackedArgument(data, list(map(unchanging, buffers)), is_frozen)
        return own_memory(dumps(argument))


def is_near(engine: Engine) -> bool:
    """Return whether the scheduler is reached in a way that only this host has."""
    return engine.link is not None and is_on_this_host(engine.link.address)


def unchanging(buffer: Buffer) -> Buffer:
    """Return a copy of a buffer, or the whole bytes object that it views.

    Other read-only views do not prove that the memory stays as it is: an array may be made writable
    again, and a view of a bytearray changes with it.
    """
    owner: Any = buffer.obj if isinstance(buffer, memoryview) else buffer
    while type(owner).__module__ == "numpy" and type(owner).__name__ == "ndarray":
        owner = owner.base
    nbytes = memoryview(buffer).nbytes
    return owner if type(owner) is bytes and len(owner) == nbytes else copy_of(buffer)


class SharedArgument:
    """A submitted hidden task. The calls that need it keep this object alive."""

    __slots__ = ("__weakref__", "future", "n_pending", "nbytes", "priority", "record")

    def __init__(self, future: Future, record: TaskRecord, nbytes: int, priority: int) -> None:
        self.future = future
        #: It has the value, which the scheduler may ask for as long as a call may run again.
        self.record = record
        self.nbytes = nbytes
        self.priority = priority
        #: Calls that were watched and not reported yet.
        self.n_pending = 0


class SharedArguments:
    """The hidden tasks of one client. Any thread may call any method."""

    def __init__(self) -> None:
        """Make the registry."""
        #: Stands for the function of all data that has none: see `core.features.puts`.
        self.function = FunctionRecord(PUT_FUNCTION, b"", "shared_argument")
        # A finalizer, or the handler of a signal, may submit within a call of ours.
        self._lock = threading.RLock()
        #: {key: argument} in the order of their last use. Each was posted to the engine's queue,
        #: and is held by a watcher or by states: this dictionary keeps nothing alive.
        self._arguments: weakref.WeakValueDictionary[str, SharedArgument] = (
            weakref.WeakValueDictionary()
        )

    def knows(self, content: Content) -> bool:
        """Return whether this content need not be sent again."""
        return content.key in self._arguments

    def submit(
        self, engine: Engine, content: Content, priority: int, n_calls: int
    ) -> SharedArgument:
        """Return the hidden task, submitted if it was not, for `n_calls` more calls.

        Calls that are posted after this may depend on it.
        """
        with self._lock:
            key = content.key
            argument = self._usable(key)
            if argument is not None and argument.priority < priority and not argument.future.done():
                # The first one may have to wait for tasks that this call is to overtake.
                key = f"{key}-priority-{priority}"
                argument = self._usable(key)
            if argument is None:
                argument = self._submit(engine, content, key, priority)
            argument.n_pending += n_calls
            self._arguments.pop(key, None)
            self._arguments[key] = argument
            self._let_go()
        return argument

    def _usable(self, key: str) -> SharedArgument | None:
        argument = self._arguments.get(key)
        return None if argument is None or argument.future.status in FAILED else argument

    def _submit(self, engine: Engine, content: Content, key: str, priority: int) -> SharedArgument:
        packed = content.packed(is_near=is_near(engine))
        (state,), replaced = engine.table.attach([key])
        future = Future(engine, state)
        failed = replaced[0] if replaced else None
        options = TaskOptions(priority=priority)
        record = TaskRecord(state, self.function, packed, [], options, None, failed)
        engine.post(record)
        return SharedArgument(future, record, content.nbytes, priority)

    def done(self, argument: SharedArgument, states: list[FutureState]) -> None:
        """Handle calls that are done or unwanted: the argument is kept as long as they are."""
        with self._lock:
            argument.n_pending -= len(states)
            for state in states:
                if state.n_references > 0:
                    state.shared = (*(state.shared or ()), argument)
            self._let_go()

    def _let_go(self) -> None:
        """Release arguments that no pending call needs, until the rest is within the limit.

        The one that was used last stays, whatever its size: the next call of a loop may need it.
        """
        # A copy, made in one step: a finalizer may submit within this.
        known = [ref() for ref in self._arguments.valuerefs()]
        idle = [one for one in known if one is not None and not one.n_pending]
        nbytes = sum(argument.nbytes for argument in idle)
        for argument in idle:
            if nbytes <= IDLE_NBYTES or argument is known[-1]:
                break
            nbytes -= argument.nbytes
            self._arguments.pop(argument.future._state.key, None)
            argument.future.release()


class _Calls(Watcher):
    """Holds an argument for calls: the states of pending calls hold this watcher."""

    __slots__ = ("_argument", "_registry")

    def __init__(self, registry: SharedArguments, argument: SharedArgument) -> None:
        super().__init__(wants_data=False)
        self._registry = registry
        self._argument = argument

    def on_ready(self, items: list[Any]) -> None:
        """See `Watcher`."""
        self._registry.done(self._argument, items)


class Uses:
    """The large arguments of a submission, with the calls that use them."""

    def __init__(self, registry: SharedArguments) -> None:
        self._registry = registry
        #: {key: content and the rows of the calls}
        self._rows: dict[str, tuple[Content, list[int]]] = {}

    def has(self, content: Content) -> bool:
        """Return whether a call uses this content."""
        return content.key in self._rows

    def add(self, row: int, contents: list[Content]) -> None:
        """Note that the call in `row` uses these."""
        for content in contents:
            self._rows.setdefault(content.key, (content, []))[1].append(row)

    def submit(
        self,
        engine: Engine,
        priority_of: Callable[[int], int],
        states: list[FutureState],
        dependencies: list[list[str]],
    ) -> None:
        """Submit the arguments that are needed, before the calls.

        A call whose result is in this process already is not run, and needs none.

        Args:
            engine: the client's.
            priority_of: gives that of the call in a row; an argument has the highest of its calls.
            states: of the calls, by row.
            dependencies: of the calls, by row; the keys of arguments are corrected in them.
        """
        for content, rows in self._rows.values():
            pending = [states[row] for row in rows if states[row].status == "pending"]
            if not pending:
                continue
            priority = max(map(priority_of, rows))
            argument = self._registry.submit(engine, content, priority, len(pending))
            key = argument.future._state.key
            if key != content.key:
                for keys in (dependencies[row] for row in rows):
                    keys[keys.index(content.key)] = key
            engine.post(Watch(_Calls(self._registry, argument), pending))


class Sharing:
    """Takes the large arguments out of the calls of one submission.

    An object that is an argument of several calls is pickled once.
    """

    def __init__(self, registry: SharedArguments) -> None:
        """Begin with no call; the registry is that of the client."""
        self.uses = Uses(registry)
        #: Bytes of the contents that are to be sent.
        self.nbytes = 0
        self._registry = registry
        #: {id of a large argument: the object, which keeps the id in use, and its content}
        self._seen: dict[int, tuple[object, Content]] = {}
        #: Ids of large arguments of one call that have little in common.
        self._apart: set[frozenset[int]] = set()

    def knows(self, args: list[Any]) -> bool:
        """Return whether a large argument of an earlier call is among these."""
        return bool(self._seen) and not self._seen.keys().isdisjoint(map(id, args))

    def call(
        self,
        row: int,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        nbytes: int | None,
    ) -> tuple[Blob, list[str]] | None:
        """Encode a call again, with references in place of its large arguments.

        Args:
            row: its place in the submission.
            name: of its function.
            args: its positional arguments.
            kwargs: its keyword arguments.
            nbytes: the size of all of them, as they were encoded. None: they were not, because some
                of them are known.

        Returns:
            The result of `dumps_arguments`; None if no argument can be taken out, or if `nbytes` is
            needed to see whether one can.
        """
        names = [*(f"args[{i}]" for i in range(len(args))), *kwargs]
        values = [*args, *kwargs.values()]
        looked_at = [
            self._look_at(value, f"argument {each} of {name}")
            for each, value in zip(names, values, strict=True)
        ]
        contents = {c.key: c for _, c in looked_at if c is not None}
        apart = {id(value): n for value, (n, _) in zip(values, looked_at, strict=True)}
        large = frozenset(apart.keys() & self._seen.keys())
        if nbytes is None:
            # Others cannot have more in common with the large ones than there is of them.
            if large not in self._apart:
                return None
            nbytes = sum(apart[each] for each in large)
        if not contents or sum(apart.values()) > nbytes + _MAX_COMMON_NBYTES:
            return None
        self._apart.add(large)
        # One reference per object: if the call has an object twice, the task gets one copy of it.
        references = {
            id(value): SharedReference(content.key)
            for value, (_, content) in zip(values, looked_at, strict=True)
            if content is not None
        }
        values = [references.get(id(value), value) for value in values]
        n = len(args)
        blob, dependencies = dumps_arguments(
            name, tuple(values[:n]), dict(zip(kwargs, values[n:], strict=True))
        )
        new = [c for c in contents.values() if not (self._registry.knows(c) or self.uses.has(c))]
        self.nbytes += sum(content.nbytes for content in new)
        self.uses.add(row, list(contents.values()))
        return blob, dependencies

    def _look_at(self, value: object, what: str) -> tuple[int, Content | None]:
        seen = self._seen.get(id(value))
        if seen is not None:
            return seen[1].nbytes, seen[1]
        blob, dependencies = dumps_with_dependencies(value, what)
        nbytes = blob_nbytes(blob)
        if dependencies or not SHARED_NBYTES < nbytes <= MAX_NBYTES:
            return nbytes, None
        content = Content(value, blob)
        self._seen[id(value)] = (value, content)
        return nbytes, content
