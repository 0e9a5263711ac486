"""A result that a client holds, as a task: it returns its argument.

A scheduler that was started again does not know the small results which its clients hold. A client
submits one of them under its key when another task reads it, so that the user's function does not
run again.
"""

from __future__ import annotations

import pickle
from typing import Any

from ..wire.payload import Blob, Payload
from .pickling import PROTOCOL
from .serialize import dumps, dumps_function, loads
from .shared import PackedArgument, own_memory, unpack


def constant(packed: Any) -> Any:
    """Return the value that was packed by `Constants.arguments`."""
    return unpack(packed) if isinstance(packed, PackedArgument) else loads(packed)


class Constants:
    """Makes tasks that return a given value."""

    def __init__(self) -> None:
        self._function: tuple[bytes, bytes] | None = None

    @property
    def function(self) -> tuple[bytes, bytes]:
        """The id and the pickle of the function of all these tasks."""
        if self._function is None:
            self._function = dumps_function(constant)
        return self._function

    def arguments(self, blob: Blob) -> Blob:
        """Return the arguments for the value that `blob` is the pickle of."""
        if isinstance(blob, Payload):
            data, *buffers = [bytes(part) for part in (blob.data, *blob.buffers)]
            argument = PackedArgument(data, buffers, [False] * len(buffers))
            return own_memory(dumps((argument,)))
        return pickle.dumps((blob,), PROTOCOL)
