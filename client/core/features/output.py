"""What tasks print and log, on its way to the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import LogRecords, TaskOutput
from ..feature import ClientFeature
from ..tasks import Watcher
from ..watching import touch

if TYPE_CHECKING:
    from ..state import ClientState


class ShownOutput:
    """The one that takes it."""

    def __init__(self) -> None:
        #: None = the user does not want it
        self.watcher: Watcher | None = None


def output_of(core: ClientState) -> ShownOutput:
    """Return the one that takes what tasks print."""
    return core.record(ShownOutput)


def on_output(core: ClientState, message: TaskOutput | LogRecords) -> None:
    """Show it, before results that come later are seen."""
    watcher = output_of(core).watcher
    if watcher is not None:
        touch(core, watcher, message)


FEATURE: Final = ClientFeature(
    name="output",
    records=(ShownOutput,),
    handlers={TaskOutput: on_output, LogRecords: on_output},
)
