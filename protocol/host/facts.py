"""What a process reports about itself when it registers, and the scheduler when it answers."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any


def process_facts() -> dict[str, Any]:
    """Return the facts about this process that its peers show, and compare before they use it."""
    return {
        "python": platform.python_version(),
        "pid": os.getpid(),
        "host": platform.node(),
        "platform": sys.platform,
    }
