"""`print` and `warn` for tasks: what they show appears at all clients of the cluster."""

from __future__ import annotations

import builtins
import io
import sys
import warnings
from typing import Any

from ..protocol.wire.messages import STDERR, STDOUT, WARNED
from .shell.in_task import context_here


def print(
    *args: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None, flush: bool = False
) -> None:
    """Print as Python's `print`; in a task, show the text at all clients, with the worker's name.

    Each client shows it, whether or not it forwards what its tasks print, except one with
    `forward_output=False`. Outside of tasks, and for other files than `sys.stdout` and
    `sys.stderr`, it is Python's `print`.
    """
    context = context_here()
    if context is not None and (file is None or file is sys.stdout or file is sys.stderr):
        text = io.StringIO()
        builtins.print(*args, sep=sep, end=end, file=text)
        level = STDERR if file is not None and file is sys.stderr else STDOUT
        if context.show(level, "", text.getvalue()):
            return
    builtins.print(*args, sep=sep, end=end, file=file, flush=flush)


def warn(
    message: str | Warning,
    category: type[Warning] | None = UserWarning,
    stacklevel: int = 1,
    source: Any = None,
) -> None:
    """Warn as `warnings.warn`; in a task, at all clients, by the filters of each.

    A category that is no built-in one is a UserWarning there, with its name before the text.

    Args:
        message: text, or a warning, which has its category.
        category: of the warning.
        stacklevel: see `warnings.warn`; of no use in a task.
        source: see `warnings.warn`; of no use in a task.

    Raises:
        TypeError: `category` is no class of warnings.
    """
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    if not (isinstance(kind, type) and issubclass(kind, Warning)):
        raise TypeError(f"category= is a class of warnings, not {kind!r}")
    context = context_here()
    if context is None or not context.show(WARNED, kind.__name__, f"{message}\n"):
        warnings.warn(message, category, stacklevel + 1, source)
