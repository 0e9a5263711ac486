"""Timelines: what a cluster did, as a trace, as plots, and as a log; see docs/task_stream.md."""

from __future__ import annotations

from .client.display.activity import svg
from .client.display.chrome_trace import chrome_trace
from .client.display.transactions import transactions
from .client.insight.recorder import record_timeline as record
from .client.insight.recording import Recording
from .client.insight.recording_files import load, save

__all__ = ["Recording", "chrome_trace", "load", "record", "save", "svg", "transactions"]

# In messages and in `help`, it is what users call it.
record.__module__, record.__name__, record.__qualname__ = __name__, "record", "record"
