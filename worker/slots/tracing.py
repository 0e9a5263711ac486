"""The calls of traced tasks, each in a span (`protocol/values/tracing.py`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...protocol.values.serialize import function_name
from ...protocol.values.tracing import run_in_span
from ..core.features.traces import TracedFunction
from .coroutines import called


def in_span(call: Callable[..., Any], traced: TracedFunction, worker: str) -> Callable[..., Any]:
    """Return what a slot calls for a traced task in the place of `call`."""
    name = function_name(called(call))
    key, attempt = traced.task
    attributes: dict[str, str | int] = {
        "weft.key": key,
        "weft.function": name,
        "weft.worker": worker,
        "weft.attempt": attempt,
    }
    return functools.partial(run_in_span, call, name, traced.trace, attributes)
