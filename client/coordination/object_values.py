"""Values of queues and variables as pickles, with the futures in them beside these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...protocol.values.serialize import (
    dumps_with_dependencies,
    futures_met,
    loads_with_dependencies,
)
from ..calls.foreign_futures import check_cluster
from ..core.tasks import KEPT
from ..shell.current import future_of

if TYPE_CHECKING:
    from ...protocol.wire.messages import Operated
    from ...protocol.wire.payload import Blob
    from ..shell.engine import Engine


def packed(engine: Engine, value: Any) -> tuple[Blob, list[str]]:
    """Return the pickle of a value, and the keys of the futures in it.

    Args:
        engine: of the client that sends it.
        value: of a user.

    Raises:
        SerializationError: it cannot be pickled, or a future in it was released.
        ForeignFuture: a future in it belongs to another cluster.
    """
    with futures_met() as met:
        blob, keys = dumps_with_dependencies(value, "the value")
    for future in met:
        if future._engine is not engine:
            check_cluster(engine, future, "in a value")
            future.before_leaving()  # the scheduler may not have its task yet
        elif future._state.phase == KEPT:  # only this client has the result
            future.before_leaving()
    return blob, keys


def unpacked(engine: Engine, answer: Operated) -> list[Any]:
    """Return the values of an answer; futures in them belong to this client."""
    values: list[Any] = []
    for i, blob in enumerate(answer.values):
        keys = answer.keys[i] if i < len(answer.keys) else []
        assert blob is not None, "each value has a pickle"
        values.append(loads_with_dependencies(blob, [future_of(engine, key) for key in keys]))
    return values


def first(engine: Engine, answer: Operated) -> Any:
    """Return the only value of an answer."""
    return unpacked(engine, answer)[0]
