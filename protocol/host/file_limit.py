"""The limit of open files, which the processes of a cluster raise for themselves.

The usual soft limit of 1024 is there for programs that call `select`. A worker with 330 actors
exceeds it if these have coroutine functions, since each has three descriptors then, and so does a
scheduler with a thousand peers.
"""

from __future__ import annotations

import logging
from typing import Final

_log = logging.getLogger("weft.limits")

#: No more than this, although the hard limit may be a thousand million: the children of tasks have
#: the same limit, and some programs close every number below theirs one by one.
MOST_FILES: Final = 65_536


def raise_file_limit() -> None:
    """Let this process and later children open as many files as they may, at most `MOST_FILES`."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:  # the system has a lower one of its own
            _log.debug("the limit of %d open files stays: %d are refused: %s", soft, wanted, error)
        else:
            _log.debug("the limit of open files is raised from %d to %d", soft, wanted)
