"""Puts "weft: " in front of warnings in programs that have not configured `logging`.

There Python prints the bare message, which does not show where it comes from. A program with any
handler for these records gets them in its own form, as before.
"""

from __future__ import annotations

import logging
import sys


class _Unconfigured(logging.Handler):
    """Prints records for which there is no other handler, as `logging.lastResort` does."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.setFormatter(logging.Formatter("weft: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        if logging.lastResort is None or _has_other_handlers(record.name, self):
            return
        try:
            print(self.format(record), file=sys.stderr, flush=True)
        except Exception:  # as logging's own handlers: a closed stderr is no error of the program
            self.handleError(record)


def _has_other_handlers(name: str, handler: logging.Handler) -> bool:
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(other is not handler for other in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def mark_warnings() -> None:
    """Begin; repeated calls have no effect."""
    logger = logging.getLogger("weft")
    if not any(isinstance(handler, _Unconfigured) for handler in logger.handlers):
        logger.addHandler(_Unconfigured())
