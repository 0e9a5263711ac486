"""Registers what modules do first in a forked child, which has one thread of its parent."""

from __future__ import annotations

import os
from collections.abc import Callable


def after_fork(call: Callable[[], None]) -> Callable[[], None]:
    """Call this function in each forked child from now on; a decorator."""
    if hasattr(os, "register_at_fork"):  # Windows cannot fork
        os.register_at_fork(after_in_child=call)
    return call
