"""The feature: running attempts are ended."""

from __future__ import annotations

from typing import Final

from ....protocol.wire import messages as m
from ....protocol.wire.levels import Level
from ..feature import Feature, LateQuestion
from . import interrupting, time_limits

FEATURE: Final = Feature(
    name="interruption",
    handlers={
        m.AttemptsOverdue: time_limits.on_overdue,
        m.WorkerHeldUp: time_limits.on_held_up,
    },
    orders={"restart": LateQuestion(interrupting.on_restart, Level.CLIENT)},
)
