"""Peers of another version of weft, and the messages that they do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire import messages as m
from ....protocol.wire.message import MAX_CODE
from ..feature import Feature

if TYPE_CHECKING:
    from ..state import SchedulerState


class UnknownCodes(dict[int, None]):
    """Codes of messages that a peer did not know, each of which was logged."""


def _on_unsupported(state: SchedulerState, who: Any, message: m.Unsupported) -> None:
    """A peer of another version does not know a message: its part of a request is missing."""
    for unsupported in state.features.unsupported:
        unsupported(state, who, message.request)
    code = message.unknown_code
    known = state.record(UnknownCodes)
    if code <= MAX_CODE and code not in known:
        known[code] = None
        name = getattr(who, "name", "a supervisor or viewer")
        state.log(
            "warning",
            f"{name} does not know messages of code {code}: it runs another version of "
            "weft; install the same version on all machines",
            "version-mismatch",
        )


FEATURE: Final = Feature(
    name="unsupported versions",
    records=(UnknownCodes,),
    handlers={m.Unsupported: _on_unsupported},
)
