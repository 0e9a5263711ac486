"""From a call to futures: what `submit` and `map` do once their options are checked.

Everything here runs in the user's thread: encode, make the futures, append one record to the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..protocol.errors import ClientClosed
from .collector import paused_collector
from .encoding import Encoder, bind_constants, check_batch_size, check_key, pure_key, spec_hash
from .future import Future
from .lending import encode, encode_each
from .tasks import FutureState, Options, TaskColumns, TaskRecord

if TYPE_CHECKING:
    from .engine import Engine


def submit_call(
    engine: Engine,
    encoder: Encoder,
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key: str | None,
    options: Options,
    pure: bool,
) -> Future:
    """Submit one call and return its future; see `Client.submit`."""
    function = encoder.function(func)
    (blob, dependencies, shared), loan = encode(engine, encoder.call, function, args, kwargs)
    digest: bytes | None = None
    replaced: list[FutureState] | None = None
    if key is not None:
        check_key(key)
        digest = spec_hash(function.id, blob, dependencies)
        (state,), replaced = engine.attach([key], [digest])
    elif pure:
        name = pure_key(function.name, function.id, blob, dependencies)
        (state,), replaced = engine.table.attach([name])
    else:
        state = FutureState(encoder.number_key(function.name))
        engine.table.add([state])
    future = Future(engine, state)
    if shared is not None:
        shared.submit(engine, options.priority, [state], [dependencies])
    failed = replaced[0] if replaced else None
    record = TaskRecord(state, function, blob, dependencies, options, digest, failed)
    engine.post(record) if loan is None else loan.post(record)
    if engine.is_closed:
        raise ClientClosed()
    return future


def submit_rows(
    engine: Engine,
    encoder: Encoder,
    func: Callable[..., Any],
    iterables: tuple[Iterable[Any], ...],
    kwargs: dict[str, Any],
    key: str | Iterable[str] | None,
    options: Options,
    pure: bool,
    batch_size: int | None,
) -> list[Future]:
    """Submit one call for each row of the iterables and return the futures; see `Client.map`."""
    rows: Iterator[tuple[Any, ...]] = zip(*iterables, strict=False)
    keys: list[str] | str | None
    if key is None or isinstance(key, str):
        keys = key if key is None else check_key(key)
    else:
        keys = [check_key(name) for name in key]
        calls = list(rows)
        if len(calls) != len(keys):
            raise ValueError(f"{len(keys)} keys were given for {len(calls)} calls")
        rows = iter(calls)
    func, constants = bind_constants(func, kwargs)
    function = encoder.function(func)
    table = engine.table
    is_unique = not pure and not isinstance(keys, list)
    futures: list[Future] = []
    more = {} if batch_size is None else {"max_tasks": check_batch_size(batch_size)}
    chunks = encoder.rows(function, rows, constants, keys, pure, **more)
    for chunk, loan in encode_each(engine, chunks):  # `rows` may make a client of its own
        replaced: list[FutureState] | None = None
        with paused_collector():
            if is_unique:
                states = [FutureState(key) for key in chunk.keys]
                table.add(states)
            else:
                states, replaced = engine.attach(chunk.keys, chunk.spec_hashes)
            futures += [Future(engine, state) for state in states]
        if chunk.shared is not None:
            chunk.shared.submit(engine, options.priority, states, chunk.dependencies)
        hashes = chunk.spec_hashes
        columns = TaskColumns(
            states, function, chunk.args, chunk.dependencies, options, hashes, replaced
        )
        engine.post(columns) if loan is None else loan.post(columns)
    engine.check_open()
    return futures
