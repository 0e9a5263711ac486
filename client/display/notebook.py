"""The program's IPython shell and notebook, if it runs in one; weft never imports IPython first."""

from __future__ import annotations

import sys
from typing import Any


def shell_of_program() -> Any:
    """Return the IPython shell that the program runs in; None if there is none."""
    ipython = sys.modules.get("IPython")
    get = getattr(ipython, "get_ipython", None)
    return get() if callable(get) else None


def is_interactive() -> bool:
    """Return whether a user looks at the program: it is a kernel, IPython, or Python's prompt."""
    return hasattr(sys, "ps1") or shell_of_program() is not None


def in_notebook() -> bool:
    """Return whether the program is a kernel, whose outputs a front end shows."""
    return getattr(shell_of_program(), "kernel", None) is not None
