"""Questions of viewers, such as the HTTP process, and the answers."""

from __future__ import annotations

from ..message import Info, Message, Number, message
from ..roles import VIEWERS


@message(96, by=VIEWERS)
class GetMetrics(Message):
    """Ask for the scheduler's counters."""

    request: Number


@message(97, to=VIEWERS)
class Metrics(Message):
    """Answer `GetMetrics`: name -> number, or name -> {label: number}."""

    request: Number
    values: Info
