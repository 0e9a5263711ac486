"""The places of a family's workers, and how many there are.

The family grows by new places, with names that no earlier one had. It becomes smaller in two ways:
a worker that is retired leaves its place by itself, and the place goes with it; and those whose
worker has not joined the cluster yet can be given up at once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from ...protocol.restarting import Restarting
from ...protocol.wire.messages.questions import MAX_PLACES
from ..slots.silence import SilenceWatch
from .config import WorkerSpec
from .oom_kills import OomMark
from .stalled import HeldUpWatch


@dataclass
class Place:
    """The place of one worker in the family. `pid` is 0 while no process runs there."""

    spec: WorkerSpec
    worker_id: str = ""
    pid: int = 0
    process: psutil.Process | None = None
    started: float = 0.0
    restarting: Restarting = field(default_factory=Restarting)
    #: why the supervisor killed it, if it did
    verdict: str = ""
    #: why the supervisor asked it to leave, if it did
    asked: str = ""
    #: of its control group when it was started
    oom: OomMark | None = None
    #: why its process is replaced on request; "" = it is not
    ended_for: str = ""
    #: it ended on purpose
    retired: bool = False
    record: Path = field(default_factory=Path)
    silence: SilenceWatch = field(default_factory=lambda: SilenceWatch(0.0))
    held_up: HeldUpWatch = field(default_factory=HeldUpWatch)


class CannotScale(ValueError):
    """A family cannot have the number of workers that it is asked for; the text says why."""


class Growth:
    """The workers that are added to a family: like its last one, with names of their own.

    Args:
        specs: the family's first workers.
        like: the one that a family without workers would begin with; None = it gets none.
    """

    def __init__(self, specs: Sequence[WorkerSpec], like: WorkerSpec | None = None) -> None:
        self._like = specs[-1] if specs else like
        self._base = re.sub(r"-[0-9]+$", "", self._like.name) if self._like else ""
        names = [spec.name for spec in specs if spec.name.startswith(f"{self._base}-")]
        numbers = [name[len(self._base) + 1 :] for name in names]
        used = (int(number) for number in numbers if number.isdecimal())
        self._last = max(used, default=0 if specs else -1)

    def more(self, n_now: int, n_more: int) -> list[WorkerSpec]:
        """Return `n_more` workers, beside the `n_now` that there are.

        Raises:
            CannotScale: they would be too many.
        """
        if n_more <= 0:
            return []
        if self._like is None:
            raise CannotScale("it was started without workers")
        if n_now + n_more > MAX_PLACES:
            raise CannotScale(f"{n_now + n_more} workers are more than the limit of {MAX_PLACES}")
        numbers = range(self._last + 1, self._last + 1 + n_more)
        self._last += n_more
        return [replace(self._like, name=f"{self._base}-{number}") for number in numbers]
