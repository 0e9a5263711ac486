"""Turns calls into futures, for `submit` and `map`, once their options are checked.

Everything here runs in the user's thread: encode, make the futures, append one record to the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ClientClosed
from ...protocol.host.collector import paused_collector
from ...protocol.wire.options import TaskOptions
from ...protocol.wire.payload import blob_nbytes
from ..core.submitting import MAX_TASKS
from ..core.tasks import FunctionRecord, FutureState, TaskColumns, TaskRecord
from ..future import Future
from ..insight.asking import error_of_end
from .annotations import AnnotatedOptions
from .call_options import check_keywords
from .encoding import (
    Encoder,
    MapChunk,
    bind_constants,
    check_batch_size,
    check_key,
    check_keys,
    pure_key,
    spec_hash,
)
from .foreign_futures import Borrowing, encode, encode_each

if TYPE_CHECKING:
    from ...protocol.wire.keys import Key
    from ..shell.engine import Engine


def submit_call(
    engine: Engine,
    encoder: Encoder,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key: Key | None,
    options: TaskOptions | AnnotatedOptions,
    pure: bool,
    *,
    inline: bool = False,
) -> Future:
    """Submit one call and return its future; see `Client.submit`.

    `inline`: its large arguments are part of it, not data of this client.
    """
    if kwargs:
        check_keywords(func, kwargs)
    function = encoder.function(func)
    borrowing = None
    if engine.is_alone():
        blob, dependencies, shared = encoder.call(function, args, kwargs, inline)
    else:
        (blob, dependencies, shared), borrowing = encode(
            engine, encoder.call, function, args, kwargs, inline
        )
    if not engine.core.is_linked:
        admit(engine, blob_nbytes(blob))
    if key is not None:
        name = check_key(key)
    elif pure:
        name = pure_key(function.name, function.id, blob, dependencies)
    else:
        name = encoder.number_key(function.name)
    if isinstance(options, AnnotatedOptions):
        options = options.of(name)
    digest: bytes | None = None
    failed: FutureState | None = None
    if key is not None:
        named = dependencies
        if options.cron:
            from ...protocol.recurrence import schedule_of

            named = [*dependencies, schedule_of(options.cron)]
        elif options.array:
            named = [*dependencies, f"array of {options.array}"]
        digest = spec_hash(function.id, blob, named)
        (state,), replaced = engine.attach([name], [digest])
        failed = replaced[0] if replaced else None
    elif pure:
        state, failed = engine.table.attach_one(name)
    else:
        state = FutureState(name)
        engine.table.add_one(state)
    future = Future(engine, state)
    if shared is not None:
        shared.submit(engine, lambda _: options.priority, [state], [dependencies])
    record = TaskRecord(state, function, blob, dependencies, options, digest, failed)
    engine.post_submission(record) if borrowing is None else borrowing.post(record)
    if engine.is_closed:
        raise ClientClosed(engine.closed_text)
    return future


def admit(engine: Engine, nbytes: int) -> None:
    """Let a call wait in the client for a scheduler, unless none will come any more."""
    if engine.core.end is not None and not engine.is_closed:
        raise error_of_end(engine)
    engine.gap.admit(engine, nbytes)


def submit_rows(
    engine: Engine,
    encoder: Encoder,
    func: Callable[..., Any],
    rows: Iterator[tuple[Any, ...]],
    kwargs: dict[str, Any],
    key: str | Iterable[Key] | None,
    options: TaskOptions | AnnotatedOptions,
    pure: bool,
    batch_size: int | None,
    *,
    inline: bool = False,
) -> list[Future]:
    """Submit one call for each row of arguments and return the futures; see `Client.map`.

    `inline`: see `submit_call`.
    """
    keys = None if key is None else check_keys(key)
    if isinstance(keys, list):
        calls = list(rows)
        if len(calls) != len(keys):
            raise ValueError(
                f"{len(keys)} keys were given for {len(calls)} calls; give one per call"
            )
        rows = iter(calls)
    if kwargs:
        check_keywords(func, kwargs)
    func, constants = bind_constants(func, kwargs)
    function = encoder.function(func)
    is_unique = not pure and not isinstance(keys, list)
    if isinstance(options, AnnotatedOptions) and options.common is not None:
        options = options.common
    futures: list[Future] = []
    max_tasks = MAX_TASKS if batch_size is None else check_batch_size(batch_size)
    chunks = encoder.rows(function, rows, constants, keys, pure, max_tasks, inline=inline)
    try:
        for chunk, borrowing in encode_each(engine, chunks):  # `rows` may make a client of its own
            _submit_chunk(engine, function, chunk, borrowing, options, is_unique, futures)
    except BaseException:
        # Nobody gets these futures, and the traceback, which a program may keep, holds the list.
        futures.clear()
        raise
    engine.check_open()
    return futures


def _submit_chunk(
    engine: Engine,
    function: FunctionRecord,
    chunk: MapChunk,
    borrowing: Borrowing | None,
    options: TaskOptions | AnnotatedOptions,
    is_unique: bool,
    futures: list[Future],
) -> None:
    """Submit some rows of `submit_rows`, and append their futures."""
    of_rows = None if isinstance(options, TaskOptions) else list(map(options.of, chunk.keys))
    replaced: list[FutureState] | None = None
    if not engine.core.is_linked:
        admit(engine, sum(map(blob_nbytes, chunk.args)))
    with paused_collector():
        if is_unique:
            states = [FutureState(key) for key in chunk.keys]
            engine.table.add(states)
        else:
            states, replaced = engine.attach(chunk.keys, chunk.spec_hashes)
        futures += [Future(engine, state) for state in states]
    first = options if of_rows is None else max(of_rows, key=attrgetter("priority"))
    assert isinstance(first, TaskOptions)
    if chunk.shared is not None:
        chunk.shared.submit(engine, lambda _: first.priority, states, chunk.dependencies)
    hashes = chunk.spec_hashes
    columns = TaskColumns(states, function, chunk.args, chunk.dependencies, first, hashes, replaced)
    parts = [columns] if of_rows is None else _parted(columns, of_rows)
    for part in parts:
        engine.post(part) if borrowing is None else borrowing.post(part)


def _parted(columns: TaskColumns, of_rows: list[TaskOptions]) -> list[TaskColumns]:
    """Return the same tasks as one `TaskColumns` for each set of options."""
    rows_by_options: dict[str, list[int]] = {}
    for row, options in enumerate(of_rows):
        rows_by_options.setdefault(options.as_key(), []).append(row)
    parts = []
    for rows in rows_by_options.values():
        states = [columns.states[row] for row in rows]
        keys = {state.key for state in states}
        hashes, dependencies = columns.spec_hashes, columns.dependencies
        part = TaskColumns(
            states,
            columns.function,
            [columns.args[row] for row in rows],
            [dependencies[row] for row in rows] if dependencies else [],
            of_rows[rows[0]],
            None if hashes is None else [hashes[row] for row in rows],
            [state for state in columns.replaced if state.key in keys],
        )
        parts.append(part)
    return parts
