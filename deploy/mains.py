"""The kinds of child processes: what each is called, and what it does.

A child imports only what its own kind needs, and that of the scheduler no pickle.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Final

from ..protocol.errors import WeftError
from .processes.child import Parent
from .processes.titles import set_title


def main(kind: str, fd: int, stderr_fd: int) -> None:
    """Be a child process of the given kind."""
    _close_stdin()
    # As if this were `python -c`: processes that a task spawns would look for a file "<stdin>".
    del sys.argv[1:]
    vars(sys.modules["__main__"]).pop("__file__", None)
    set_title(_TITLES[kind])
    parent = Parent(fd, stderr_fd)
    # Ctrl-C is handled by the parent, which ends this process if necessary.
    if kind != "workers":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = _MAINS[kind](parent)
    except WeftError as error:
        parent.fail(error)
        code = 1
    finally:
        parent.close()
    sys.exit(code)


def _close_stdin() -> None:
    """Close the program text, so that standard input is empty."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _scheduler_main(parent: Parent) -> int:
    from .scheduler.daemon import run_embedded

    return run_embedded(parent)


def _http_main(parent: Parent) -> int:
    from .http import listening
    from .http.server import HttpConfig, serve

    config = HttpConfig.from_plain(parent.read_config())
    config.on_link_used = lambda access: parent.report(used_link=access)
    listening.run(serve(config, parent.ready, parent.wait_gone))
    return 0


def _family_page_main(parent: Parent) -> int:
    from .http import listening
    from .http.family_page import FamilyPageConfig, serve

    config = FamilyPageConfig.from_plain(parent.read_config())
    listening.run(serve(config, parent.ready, parent.wait_gone))
    return 0


def _workers_main(parent: Parent) -> int:
    from .workers.workers import run_embedded

    return run_embedded(parent)


_TITLES: Final = {
    "scheduler": "weft scheduler",
    "http": "weft http",
    "workers": "weft spawner",
    "family-page": "weft metrics",
}
_MAINS: Final = {
    "scheduler": _scheduler_main,
    "http": _http_main,
    "workers": _workers_main,
    "family-page": _family_page_main,
}
