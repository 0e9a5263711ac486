"""Cuts the frames of weft out of tracebacks that a user gets, where they explain nothing.

The frames of an interrupted wait, or of a setting that is refused, are those of weft and of the
standard library: dozens of lines in a notebook, none of them the user's. The frame of the function
that the user has called is kept, since it cannot be left out there.
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Final

from ...protocol.errors import InternalError, WeftError

#: The folders of weft and of Python's library, with the separator.
_WEFT: Final = os.path.abspath(f"{__file__}/../../..") + os.sep
_LIBRARY: Final = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
#: In the latter, but not of it.
_PACKAGES: Final = ("site-packages" + os.sep, "dist-packages" + os.sep)


class _ShortTracebacks:
    """A context for the body of a function that users call."""

    __slots__ = ("_kinds",)

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, self._kinds) and not isinstance(error, InternalError):
            error.__suppress_context__ = True
            cut(traceback)


def cut(traceback: TracebackType | None) -> None:
    """Cut the innermost frames that are not the user's; the first one is kept."""
    last = traceback
    while traceback is not None:
        if not _is_internal(traceback.tb_frame.f_code.co_filename):
            last = traceback
        traceback = traceback.tb_next
    if last is not None:
        last.tb_next = None


def _is_internal(path: str) -> bool:
    if path.startswith(_LIBRARY):
        return not path.startswith(_PACKAGES, len(_LIBRARY)) or path.startswith(_WEFT)
    return path.startswith((_WEFT, "<frozen "))


#: For waits: Ctrl-C, and errors whose text says all.
short_tracebacks: Final = _ShortTracebacks(KeyboardInterrupt, WeftError)
#: For checks of arguments, which do nothing else.
short_refusals: Final = _ShortTracebacks(KeyboardInterrupt, WeftError, TypeError, ValueError)
