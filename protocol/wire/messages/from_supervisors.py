"""Messages of a supervisor to the scheduler."""

from __future__ import annotations

from dataclasses import field

from ..message import Facts, Ints, Message, Sizes, Text, Texts, message
from ..roles import SUPERVISORS


@message(80, by=SUPERVISORS, columns=("worker_ids", "rss"))
class WorkersAlive(Message):
    """Report which worker processes exist, with their resident memory in bytes.

    It is answered by one heartbeat, which proves that what was sent before it has been read.
    """

    worker_ids: Texts
    rss: Sizes
    numbers: Sizes = field(default_factory=list)  #: of the supervisor, see `protocol/reported.py`

    def parts(self, max_rows: int) -> list[Message]:
        """Return it whole: each part would be answered."""
        return [self]


@message(191, by=SUPERVISORS, columns=("attempts", "held_ms"))
class WorkerHeldUp(Message):
    """Report a worker whose event loop does not run, and the attempts that run meanwhile.

    Most often one of them holds the interpreter lock: then the worker cannot report anything.
    """

    worker_id: Text
    attempts: Ints
    held_ms: Sizes  #: for how long each of them has certainly run


@message(81, by=SUPERVISORS)
class WorkerExited(Message):
    """Report that a worker process ended.

    `running` are the attempts whose user code was being executed or whose results were being
    pickled or sent.
    """

    worker_id: Text
    reason: Text  #: e.g. "killed by SIGKILL", "exit code 3", "memory limit: 4.10 of 4.00 GiB"
    running: Ints
    kind: Text = ""  #: one of `reported.DEATHS`, or `reported.REQUESTED`
    facts: Facts = field(default_factory=dict)  #: see `DeathFacts.to_plain`
