"""Packs tasks into few `SubmitTasks` messages, in order, each function once. A part of the core.

The tasks of one event go into `ClientState.open`, which is closed when it is large enough: the
first tasks should be running while the rest is being sent. Rows of different options share it.

A function's blob is sent along when the scheduler may not have it. The scheduler has it while this
client wants a key of that function, in the order of the stream, so one count per function is
enough: `submit` raises it, `drop` lowers it, and the release that belongs to a `drop` is sent after
the messages that were made before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from ...protocol.wire.messages import NO_HASH, SubmitTasks
from ...protocol.wire.options import TaskOptions
from ...protocol.wire.payload import Blob, blob_nbytes
from .tasks import NEW, SENT, FunctionRecord, FutureState, TaskColumns, TaskRecord
from .transitions import drop, move

if TYPE_CHECKING:
    from .state import ClientState

MAX_TASKS: Final = 8192
MAX_NBYTES: Final = 1 << 20
#: Records of options in one message.
MAX_OPTIONS: Final = 256


def submit(core: ClientState, state: FutureState, task: TaskRecord, options: TaskOptions) -> None:
    """Submit one task with these options, and count its state for its function."""
    add_row(core, task, state.key, options)
    if state.phase == NEW:
        state.phase = SENT
    elif state.phase == SENT:
        drop(state)  # a state that lost its data and its record is submitted again
    else:
        move(core, state, SENT)
    state.function = function = task.function
    function.n_wanted += 1


def add_row(core: ClientState, task: TaskRecord, key: str, options: TaskOptions) -> None:
    """Append one task to the open message, with these options."""
    message = core.open
    rank = task.rank
    if message is not None and (rank is None) is bool(message.ranks):
        close_submissions(core)  # either all rows of a message have ranks, or none
        message = None
    if message is None:
        core.open_option = options
        message = core.open = _new_message(options)
    elif options is not core.open_option or message.option_of:
        _add_option(core, message, options)
    function = task.function
    args = task.args if function.blob else b""  # the result of a task without one goes another way
    functions = core.open_functions
    if function.id in functions:
        place = functions[function.id]
    else:
        place = functions[function.id] = len(message.functions)
        core.open_nbytes += _add_function(message, function)
    keys = message.keys
    n = len(keys)
    keys.append(key)
    message.function_of.append(place)
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
    if rank is not None:
        message.ranks.append(rank)
    nbytes = core.open_nbytes + (len(args) if args.__class__ is bytes else blob_nbytes(args))
    core.open_nbytes = nbytes
    if n >= MAX_TASKS - 1 or nbytes >= MAX_NBYTES or len(core.open_options) >= MAX_OPTIONS:
        close_submissions(core)


def _add_option(core: ClientState, message: SubmitTasks, options: TaskOptions) -> None:
    """Give the next row of the open message its options."""
    places = core.open_options
    if not places:
        assert core.open_option is not None
        places[core.open_option.as_key()] = 0
    if options is not core.open_option:
        core.open_option = options
        key = options.as_key()
        if key not in places:
            places[key] = len(places)
            message.options.append(options.as_record())
        core.open_place = places[key]
    if core.open_place and not message.option_of:
        message.option_of.extend([0] * len(message.keys))
    if core.open_place or message.option_of:
        message.option_of.append(core.open_place)


def submit_columns(core: ClientState, tasks: TaskColumns, states: list[FutureState]) -> None:
    """Submit columns as one message; they are small enough, and each state is new or only wanted.

    The states move from new to sent, without the table's check.
    """
    close_submissions(core)
    message = _new_message(tasks.options)
    message.function_of = tasks.function_of or [0] * len(states)
    message.keys = tasks.keys
    message.args = cast("list[Blob | None]", tasks.args)  # a copy would cost; it never changes
    message.dependencies = tasks.dependencies
    message.spec_hashes = tasks.spec_hashes or []
    message.ranks = tasks.ranks
    functions = tasks.functions
    for function in functions:
        _add_function(message, function)
    if tasks.function_of:
        for state, place in zip(states, tasks.function_of, strict=True):
            state.phase = SENT
            state.function = function = functions[place]
            function.n_wanted += 1
    else:
        function = tasks.function
        function.n_wanted += len(states)
        for state in states:
            state.phase = SENT
            state.function = function
    core.to_scheduler.append(message)


def close_submissions(core: ClientState) -> None:
    """Send the open message, if there is one, so that the next message comes after it."""
    message = core.open
    if message is not None:
        core.open = core.open_option = None
        core.open_place = core.open_nbytes = 0
        core.open_functions.clear()
        if core.open_options:
            core.open_options.clear()
        core.to_scheduler.append(message)


def discard_submissions(core: ClientState) -> None:
    """Drop the open message."""
    if core.open is not None:
        close_submissions(core)
        core.to_scheduler.pop()


def _new_message(options: TaskOptions) -> SubmitTasks:
    return SubmitTasks(
        functions=[],
        function_names=[],
        function_blobs=[],
        function_of=[],
        keys=[],
        args=[],
        dependencies=[],
        spec_hashes=[],
        options=[options.as_record()],
    )


def _add_function(message: SubmitTasks, function: FunctionRecord) -> int:
    """Append a function, with its blob if the scheduler may lack it; return the blob's size."""
    message.functions.append(function.id)
    message.function_names.append(function.name)
    if function.n_wanted:
        message.function_blobs.append(None)
        return 0
    message.function_blobs.append(function.blob)
    return len(function.blob)
