"""Facts that a process reports when it registers, and the scheduler in its answer."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from .checkout import running_commit


def process_facts() -> dict[str, Any]:
    """Return facts about this process, which its peers display and check for compatibility."""
    running_commit()  # read while the code that was imported is surely that of the checkout
    return {
        "python": platform.python_version(),
        "pid": os.getpid(),
        "host": platform.node(),
        "platform": sys.platform,
    }
