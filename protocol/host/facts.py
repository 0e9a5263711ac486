"""Facts that a process reports when it registers, and the scheduler in its answer."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any


def process_facts() -> dict[str, Any]:
    """Return facts about this process, which its peers display and check for compatibility."""
    return {
        "python": platform.python_version(),
        "pid": os.getpid(),
        "host": platform.node(),
        "platform": sys.platform,
    }
