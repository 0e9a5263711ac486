"""Tasks that no worker can run: the user is warned, and texts of timeouts name the reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import KeysUnrunnable
from ..events import Warn
from ..feature import ClientFeature

if TYPE_CHECKING:
    from ..state import ClientState

_MAX_WARNINGS: Final = 100
_MAX_UNRUNNABLE: Final = 1000


class UnrunnableTasks:
    """The tasks that no worker could run."""

    def __init__(self) -> None:
        #: {reason: None} of which the user was warned
        self.warnings: dict[str, None] = {}
        #: {key: reason} as the scheduler reported it last. Any thread reads it.
        self.reasons: dict[str, str] = {}


def unrunnable_of(core: ClientState) -> UnrunnableTasks:
    """Return the tasks that no worker could run."""
    return core.record(UnrunnableTasks)


def on_keys_unrunnable(core: ClientState, message: KeysUnrunnable) -> None:
    """Note the reason, and warn of each once."""
    known = unrunnable_of(core)
    if len(known.reasons) >= _MAX_UNRUNNABLE:
        known.reasons.clear()
    known.reasons.update(dict.fromkeys(message.keys, message.reason))
    if message.reason in known.warnings:
        return
    if len(known.warnings) >= _MAX_WARNINGS:
        known.warnings.clear()
    known.warnings[message.reason] = None
    n = len(message.keys)
    first = message.keys[0] if message.keys else "?"
    if n == 1:
        text = f"task {first!r} waits for a worker that can run it"
    else:  # only the first are named
        text = f"tasks ({first!r} and others) wait for a worker that can run them"
    core.after.append(Warn(f"{text}: {message.reason}"))


FEATURE: Final = ClientFeature(
    name="unrunnable",
    records=(UnrunnableTasks,),
    handlers={KeysUnrunnable: on_keys_unrunnable},
)
