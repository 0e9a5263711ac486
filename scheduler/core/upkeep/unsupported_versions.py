"""Peers of another release of weft, and the messages that they do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....protocol.wire import messages as m
from ....protocol.wire.message import MAX_CODE

if TYPE_CHECKING:
    from ..state import SchedulerState


def on_unsupported(state: SchedulerState, who: Any, message: m.Unsupported) -> None:
    """A peer of another release does not know a message: its part of a request is missing."""
    for unsupported in state.features.unsupported:
        unsupported(state, who, message.request)
    code = message.unknown_code
    if code <= MAX_CODE and code not in state.not_known:
        state.not_known[code] = None
        name = getattr(who, "name", "a supervisor or viewer")
        state.log(
            "warning",
            f"{name} does not know messages of code {code}: it runs another release of "
            "weft; install the same release on all machines",
        )
