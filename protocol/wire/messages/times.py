"""The times of attempts, which workers report while somebody reads the task stream."""

from __future__ import annotations

from dataclasses import field

from ..message import Flag, Ints, Message, Sizes, Texts, message
from ..roles import WORKERS


@message(210, to=WORKERS)
class RecordTimes(Message):
    """Ask a worker to report the times of its attempts from now on; with `on` false, no more."""

    on: Flag
    running: Flag = False  #: and with each heartbeat those that run for some time


@message(
    211,
    by=WORKERS,
    columns=("attempts", "ended_us", "durations_us", "threads", "nbytes", "types"),
    optional_columns=("failed", "waited_us", "arrived_us", "fetched_us"),
)
class AttemptTimes(Message):
    """Report the times of attempts that have ended; it comes before the report of their ends.

    Times are microseconds of the worker's own clock, from any fixed point. An attempt began
    `durations_us` and `waited_us` before its end: the latter is the time in which it waited and had
    given its thread up. `arrived_us` and `fetched_us` are 0 where no input was fetched.
    """

    attempts: Ints
    ended_us: Ints
    durations_us: Sizes
    threads: Ints  #: numbers of threads; a task that waits has one of its own
    nbytes: Sizes
    types: Texts  #: of the results, or of the exceptions
    failed: Ints = field(default_factory=list)  #: 1 = it raised
    waited_us: Sizes = field(default_factory=list)
    arrived_us: Ints = field(default_factory=list)  #: when it was assigned to the worker
    fetched_us: Ints = field(default_factory=list)  #: when its last fetched input came


@message(218, by=WORKERS, columns=("attempts", "threads", "ages_us"))
class AttemptsRunning(Message):
    """List the attempts that run for some time already; this replaces what the last one said."""

    attempts: Ints
    threads: Ints  #: as in `AttemptTimes`
    ages_us: Ints  #: since when they run


@message(219, by=WORKERS, columns=("ages_us", "durations_us", "nbytes", "reads"))
class DiskTimes(Message):
    """Report when values have gone to disk, or have come back, since the last such report."""

    ages_us: Ints  #: since when it goes on
    durations_us: Sizes
    nbytes: Sizes
    reads: Ints  #: 1 = from disk, 0 = to disk
