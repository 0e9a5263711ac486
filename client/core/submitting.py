"""Tasks into `SubmitTasks` messages: few, with each function once, in order. A part of the core.

`Submitter` collects the tasks of one event and closes a message when the options change or it is
large enough: the first tasks should be running while the rest is being sent.

A function's blob goes along when the scheduler may not have it. It has it while a key of that
function is wanted by this client, in the order of the stream, so a count for each function is
enough: `add` raises it, `drop` lowers it, and the caller sends the releases that `drop` stands for
after the messages that were made before.
"""

from __future__ import annotations

from typing import Final, cast

from ...protocol.wire.message import Message
from ...protocol.wire.messages import NO_HASH, SubmitTasks
from ...protocol.wire.payload import Blob, blob_nbytes
from .tasks import SENT, FunctionRecord, FutureState, Options, TaskColumns, TaskRecord

MAX_TASKS: Final = 8192
MAX_NBYTES: Final = 1 << 20


class Submitter:
    """Fills `out` with SubmitTasks. Holds at most one unfinished message; `close` ends it."""

    def __init__(self) -> None:
        self.out: list[Message] = []
        self._open: SubmitTasks | None = None
        self._options: Options | None = None
        #: {function: its place in the open message}.
        self._places: dict[bytes, int] = {}
        self._nbytes = 0

    def add(self, task: TaskRecord) -> None:
        """Append one task, and count its state as sent."""
        message = self._open
        options = task.options
        if message is None or (options is not self._options and options != self._options):
            message = self._begin(options)
        function = task.function
        place = self._places.get(function.id)
        if place is None:
            place = self._places[function.id] = len(message.functions)
            self._add_function(message, function)
        state = task.state
        state.phase = SENT
        drop(state)  # one that lost its data and its record is submitted once more
        state.function = function
        function.n_wanted += 1
        keys = message.keys
        n = len(keys)
        keys.append(state.key)
        message.function_of.append(place)
        args = task.args
        message.args.append(args)
        dependencies = task.dependencies
        if dependencies or message.dependencies:
            if not message.dependencies and n:
                message.dependencies.extend([] for _ in range(n))
            message.dependencies.append(dependencies)
        spec_hash = task.spec_hash
        if spec_hash or message.spec_hashes:
            if not message.spec_hashes and n:
                message.spec_hashes.extend([NO_HASH] * n)
            message.spec_hashes.append(spec_hash or NO_HASH)
        self._nbytes += len(args) if args.__class__ is bytes else blob_nbytes(args)
        if n >= MAX_TASKS - 1 or self._nbytes >= MAX_NBYTES:
            self.close()

    def add_columns(self, tasks: TaskColumns) -> None:
        """Append columns as one message. The caller cut them to size, and none was sent before."""
        self.close()
        states = tasks.states
        function = tasks.function
        options = tasks.options
        message = SubmitTasks(
            functions=[],
            function_names=[],
            function_blobs=[],
            function_of=[0] * len(states),
            keys=[state.key for state in states],
            args=cast("list[Blob | None]", tasks.args),  # a copy would cost; nobody changes it
            dependencies=tasks.dependencies,
            spec_hashes=tasks.spec_hashes or [],
            priority=options.priority,
            retries=options.retries,
            workers=options.workers,
            allow_other_workers=options.allow_other_workers,
            resources=options.resources,
        )
        self._add_function(message, function)
        function.n_wanted += len(states)
        for state in states:
            state.phase = SENT
            state.function = function
        self.out.append(message)

    def close(self) -> None:
        """End the open message, if there is one."""
        if self._open is not None:
            self.out.append(self._open)
            self._open = None
            self._options = None
            self._places = {}
            self._nbytes = 0

    def _begin(self, options: Options) -> SubmitTasks:
        self.close()
        self._options = options
        self._open = SubmitTasks(
            functions=[],
            function_names=[],
            function_blobs=[],
            function_of=[],
            keys=[],
            args=[],
            dependencies=[],
            spec_hashes=[],
            priority=options.priority,
            retries=options.retries,
            workers=options.workers,
            allow_other_workers=options.allow_other_workers,
            resources=options.resources,
        )
        return self._open

    def _add_function(self, message: SubmitTasks, function: FunctionRecord) -> None:
        message.functions.append(function.id)
        message.function_names.append(function.name)
        if function.n_wanted:
            message.function_blobs.append(None)
        else:
            message.function_blobs.append(function.blob)
            self._nbytes += len(function.blob)


def drop(state: FutureState) -> None:
    """The scheduler need not keep the function on account of this state any more."""
    function = state.function
    if function is not None:
        function.n_wanted -= 1
        state.function = None
