"""Traces of OpenTelemetry: the context that goes along with calls, and the spans of tasks.

A context is a list of texts, the names and the values of the fields in turn that the propagators of
this process write (`OTEL_PROPAGATORS`; by default `traceparent`, `tracestate` and `baggage`).
Nothing of OpenTelemetry is imported before `start` is called, or a task with a context runs here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..wire.options import MAX_TRACE_CHARS

_log = logging.getLogger("weft.tracing")

_NAME: Final = "weft"

#: Returns the present context, [] if there is none; None = calls are not traced.
inject: Callable[[], list[str]] | None = None
#: A traced task that still runs does not switch it on again.
_is_stopped = False
_noted: Final[list[ImportError]] = []


def start() -> None:
    """Let calls of this process have the context in which they are submitted.

    Raises:
        ImportError: OpenTelemetry is not installed.
    """
    from opentelemetry import propagate

    def present() -> list[str]:
        fields: dict[str, str] = {}
        propagate.inject(fields)
        texts: list[str] = []
        n_left = MAX_TRACE_CHARS
        for name, value in fields.items():
            n_left -= len(name) + len(value)
            if n_left < 0:  # of baggage, which follows what identifies the span
                break
            texts += (name, value)
        return texts

    global inject, _is_stopped
    inject, _is_stopped = present, False


def stop() -> None:
    """Let calls have none."""
    global inject, _is_stopped
    inject, _is_stopped = None, True


def run_in_span(
    call: Callable[..., Any],
    name: str,
    trace: Sequence[str],
    attributes: dict[str, str | int],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Run the call of a task in a span whose parent is the context of its submission.

    What the task submits is traced as well. Without OpenTelemetry it runs without a span, and a
    warning says so once.
    """
    try:
        from opentelemetry import propagate
        from opentelemetry.trace import SpanKind, get_tracer
    except ImportError as error:
        _warn(error)
        return call(*args, **kwargs)
    if inject is None and not _is_stopped:
        start()
    context = propagate.extract(dict(zip(trace[::2], trace[1::2], strict=True)))
    with get_tracer(_NAME).start_as_current_span(
        name, context, kind=SpanKind.CONSUMER, attributes=attributes
    ):
        return call(*args, **kwargs)


def _warn(error: ImportError) -> None:
    if not _noted:
        _noted.append(error)
        _log.warning(
            "tasks that are traced have no spans here (%s): pip install 'weft[otel]'",
            error,
            extra={"code": "tracing-missing"},
        )
