"""`weft.span`: tags of the tasks that a part of a program submits."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

from ...protocol.wire.columns import MAX_SPAN_TAGS, MAX_TAG_CHARS

#: The tags of the spans that this thread or asynchronous task is in, outermost first.
_SPAN: Final[ContextVar[tuple[str, ...]]] = ContextVar("weft_span", default=())

current_span = _SPAN.get


@contextlib.contextmanager
def span(*tags: str) -> Iterator[tuple[str, ...]]:
    """Tag the tasks that are submitted within: in the task stream, the report and `weft info KEY`.

    Spans are nested: the tags of an inner one follow those of the outer ones. Tasks that a task
    submits have the tags of that task, and those of spans around the call in it. A span belongs to
    the thread, or the asynchronous task, that is in it. It can be used as a decorator.

    Args:
        tags: one or several texts of at most 100 characters; all together at most 16.

    Returns:
        A context manager; its value are the tags of all spans, outermost first.

    Raises:
        TypeError, ValueError: a tag is no text, is empty or too long, or there are too many.
    """
    checked = _SPAN.get() + check_tags(tags)
    if len(checked) > MAX_SPAN_TAGS:
        raise ValueError(
            f"spans have at most {MAX_SPAN_TAGS} tags, the outer ones included, not {len(checked)}"
        )
    token = _SPAN.set(checked)
    try:
        yield checked
    finally:
        _SPAN.reset(token)


def check_tags(tags: tuple[object, ...]) -> tuple[str, ...]:
    """Return tags that were checked.

    Raises:
        TypeError, ValueError: see `span`.
    """
    if not tags:
        raise TypeError('a span has one tag or several: weft.span("load")')
    checked = []
    for tag in tags:
        if not isinstance(tag, str):
            raise TypeError(f"the tags of a span are texts, not {tag!r}")
        if not 0 < len(tag) <= MAX_TAG_CHARS:
            raise ValueError(f"a tag has 1 to {MAX_TAG_CHARS} characters, not {len(tag)}")
        checked.append(str(tag))
    return tuple(checked)
