"""Recognises workers that the kernel's out-of-memory killer has ended.

The kernel reports such a kill as a SIGKILL like any other, and counts it in the control group of
the process. Several workers share a group, so a kill that was counted explains the end of one of
them only: the first of those that got SIGKILL.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from ...protocol.host.machine import n_oom_kills, oom_counter


class OomMark(NamedTuple):
    """The counter of a worker's control group when the worker was started."""

    counter: Path
    n_before: int


def mark_of(pid: int) -> OomMark | None:
    """Look at the counter of a process that was started; None = its group has none.

    One that has gone already was in the group of this process, which it has inherited.
    """
    counter = oom_counter(pid) or oom_counter(os.getpid())
    n_before = None if counter is None else n_oom_kills(counter)
    return None if counter is None or n_before is None else OomMark(counter, n_before)


def kills_since(mark: OomMark | None) -> int | None:
    """Return how many processes of that group were killed since then; None = not known."""
    n_now = None if mark is None else n_oom_kills(mark.counter)
    return None if mark is None or n_now is None else max(0, n_now - mark.n_before)


class OomClaims:
    """The kills that ends of workers of one family are explained by."""

    def __init__(self) -> None:
        #: {counter: its value up to which kills are explained}
        self._explained: dict[Path, int] = {}

    def claim(self, mark: OomMark | None, n_kills: int | None) -> bool:
        """Return whether a kill is left that explains the SIGKILL of a worker, and take it.

        Args:
            mark: of its start.
            n_kills: as `kills_since` has returned it for this mark.
        """
        if mark is None or not n_kills:
            return False
        explained = max(self._explained.get(mark.counter, 0), mark.n_before)
        if explained >= mark.n_before + n_kills:
            return False
        self._explained[mark.counter] = explained + 1
        return True
