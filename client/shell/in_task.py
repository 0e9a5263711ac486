"""Recognises calls from tasks: workers may be threads of this process (`processes=False`)."""

from __future__ import annotations

import sys
from typing import Final

_MODULE: Final = f"{__name__.partition('.')[0]}.worker.context"


def is_in_task() -> bool:
    """Return whether the calling thread is one that runs tasks of a worker."""
    context = sys.modules.get(_MODULE)
    return context is not None and context.is_in_task()


def waits_in_task() -> RuntimeError:
    """Return the error for a task that would keep a thread that another task may need, for ever."""
    return RuntimeError(
        "a task cannot wait for another task, because it would occupy the thread of its worker "
        "meanwhile; tasks cannot submit tasks yet. Submit from the program that made the client, "
        "with futures as arguments"
    )
