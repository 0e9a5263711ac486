"""What the latest attempts of tasks have used, as far as workers measure it.

A worker reports attempts of categories, those that ran in processes of their own, and others that
took some time. So tiny tasks cost nothing here. The table is bounded: the latest tasks are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

from ....protocol.wire.messages import OWN_PROCESS
from ..feature import Feature

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Tasks of which it is known what their last attempt has used.
MAX_TASKS: Final = 10_000


class MeasuredUse(NamedTuple):
    """What one attempt has used; without `cpu_us` the bytes are not known either."""

    attempt: int
    wall_us: int
    cpu_us: int
    peak_nbytes: int
    read_nbytes: int
    written_nbytes: int
    kind: int

    def row(self) -> list[int | bool | None]:
        """Return what clients are sent: None for what is not known."""
        io = (self.read_nbytes, self.written_nbytes) if self.cpu_us else (None, None)
        is_shared = self.kind != OWN_PROCESS
        return [self.wall_us, self.cpu_us or None, self.peak_nbytes or None, *io, is_shared]


class LatestUse(OrderedDict[str, MeasuredUse]):
    """{key: what its last measured attempt has used}, the latest ones."""

    def note(self, key: str, use: MeasuredUse) -> None:
        """Remember an attempt that ends now."""
        self[key] = use
        self.move_to_end(key)
        if len(self) > MAX_TASKS:
            self.popitem(last=False)


def latest_use(state: SchedulerState) -> LatestUse:
    """Return what is known."""
    return state.record(LatestUse)


FEATURE: Final = Feature(
    name="measured",
    records=(LatestUse,),
    invariants={
        "what was measured is bounded": lambda state: (
            ["too many"] if len(latest_use(state)) > MAX_TASKS else []
        ),
    },
)
