"""Takes the values that clients put here: large arguments, which no function makes.

They come to the data port, or from the scheduler if the client cannot reach that. A value goes into
the store as it came, packed, and the core is notified. Whether it is wanted is the core's decision:
an attempt that the scheduler has not assigned here takes no value for long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ...protocol.host.host_files import FileGone, host_id
from ...protocol.net.connection import Connection
from ...protocol.values.host_blobs import read_reference
from ...protocol.wire.messages import Put, PutDone, PutFiles
from ...protocol.wire.payload import Blob, blob_nbytes
from ..core.features.puts import EarlyValues, ValueExpired, ValuePut, ValueRefused

if TYPE_CHECKING:
    from ..slots.executor import TaskExecutor

__all__ = ["answer", "answer_files", "take_values"]

#: A value whose assignment has not come for this long is forgotten, and sent again if need be.
_PATIENCE_S: Final = 30.0


def take_values(executor: TaskExecutor, message: Put) -> None:
    """Store the values of a message."""
    store, early = executor.store, executor.state.record(EarlyValues)
    limit = store.memory_limit
    for key, attempt, value in zip(message.keys, message.attempts, message.values, strict=True):
        if value is None or attempt in store:
            continue  # nothing was sent, or it was sent twice
        nbytes = blob_nbytes(value)
        if 0 < limit < nbytes:
            text = (
                f"the argument takes {nbytes} bytes, and a worker may use {limit} in all; pass it "
                "in parts, or raise the memory limit of the workers"
            )
            executor.handle(ValueRefused(key, attempt, ["not-sent", key, text]))
            continue
        store.put_packed(attempt, value)
        if store.nbytes > store.watched:
            store.note_full()
        executor.handle(ValuePut(key, attempt, nbytes))
        if attempt in early:
            loop = asyncio.get_running_loop()
            loop.call_later(_PATIENCE_S, executor.handle, ValueExpired(attempt))


def answer(executor: TaskExecutor, connection: Connection, message: Put) -> None:
    """Store the values of a message that came to the data port."""
    take_values(executor, message)
    connection.send([PutDone(request=message.request)])


def answer_files(executor: TaskExecutor, connection: Connection, message: PutFiles) -> None:
    """Store values that lie in files of a client on this host; if it cannot, say so."""
    is_taken = bool(host_id()) and message.host == host_id()
    if is_taken:
        try:
            values: list[Blob | None] = [
                None if file is None else read_reference(file, is_kept=True)
                for file in message.files
            ]
        except (FileGone, OSError):
            is_taken = False
        else:
            put = Put(request=0, keys=message.keys, attempts=message.attempts, values=values)
            take_values(executor, put)
    connection.send([PutDone(request=message.request, is_taken=is_taken)])
