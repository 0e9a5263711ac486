"""Raises the failure of a task in the thread that requested the graph."""

from __future__ import annotations

from collections.abc import Hashable

from ...protocol.values.exceptions import add_note, set_field
from ...protocol.values.tracebacks import without_own_frames
from ..core.tasks import GraphTask, call


def told(exc: BaseException, key: Hashable) -> BaseException:
    """Return the exception of a task to raise, with the user's frames and the task's key."""
    add_note(exc, f"weft: task {key!r}")
    set_field(exc, "__traceback__", without_own_frames(exc.__traceback__))
    return exc


def call_again(task: GraphTask, error: BaseException) -> None:
    """Make a call that failed once more, here, where a debugger sees it.

    Raises:
        BaseException: the error that it raises now. If it raises none, `error` is raised.
    """
    try:
        call(task)
    except BaseException as exc:
        raise told(exc, task.key)  # noqa: B904 - it is the same exception
    add_note(error, "weft: called once more in the calling process, the task did not fail")
