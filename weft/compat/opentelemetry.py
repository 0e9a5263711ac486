"""Traces of OpenTelemetry that go on in tasks: `install()`, then submit calls within spans.

A call that is submitted within a span takes its context along. The worker that runs it makes a span
with that parent, in which the spans of the task's own code are, and those of calls that it submits.
Needs OpenTelemetry: `pip install weft[otel]`, on the workers as well.
"""

from __future__ import annotations

from ..protocol.values.tracing import start as install
from ..protocol.values.tracing import stop as uninstall

__all__ = ["install", "uninstall"]
