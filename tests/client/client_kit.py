"""Functions that clients of a scripted scheduler submit."""

from __future__ import annotations

from weft.protocol.wire.messages import (
    SubmitTasks,
)


def inc(x):
    return x + 1


def fail(text):
    raise ValueError(text)


def submitted(scheduler):
    return [key for message in scheduler.heard(SubmitTasks) for key in message.keys]


class Cycle:
    """Is collected by the collector only, and does something then."""

    def __init__(self, do):
        self.me = self
        self.do = do

    def __del__(self):
        self.do()
