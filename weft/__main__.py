"""``python -m weft`` is the ``weft`` command."""

from __future__ import annotations

import os
import signal

if os.getpid() == 1:
    # The first process of a container gets no signal that it does not handle: a pod that is stopped
    # at its start would run on for all of its grace period. The commands replace this handler.
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(128 + number))

from .deploy.cli.command import main

if __name__ == "__main__":
    main()
