"""The end of a benchmark that gets SIGTERM, as from `timeout`: all that it started ends with it."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Let SIGTERM raise `SystemExit`, once, so that children are stopped on the way out.

    For the main thread. By default the signal would end this process alone.
    """
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end itself takes some seconds
    raise SystemExit(128 + number)
