"""A recording: what happened on a cluster for a while, as plain data, and as rows of a file. Pure.

Times are seconds since 1970 by the scheduler's clock. Attempts are those of the task stream; the
changes of tasks, and of workers, are what the scheduler has told about them meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from ...protocol.wire.keys import key_of, text_of
from ...protocol.wording import counted, grouped, lasting
from .attempt_timing import AttemptTiming, record_of

#: Of the rows of a file; another one has rows that this version does not know.
FORMAT: Final = 1
#: Later times are no seconds since 1970.
_MAX_TIME_S: Final = 1e11
#: Keys of one row of changes.
_N_KEYS: Final = 1000
#: Fields of a record that are not options of the task.
_FIELDS: Final = frozenset(
    (
        *("key", "function", "span", "worker", "name", "thread", "attempt", "status", "type"),
        *("nbytes", "waited", "startstops"),
    )
)


class TaskChange(NamedTuple):
    """A change of several tasks at once, like their submission."""

    time: float
    change: str  #: "queued", "assigned", "returned", "failed", "cancelled" and so on
    by: str  #: the name of the client or worker; "" = nobody
    keys: Sequence[str]  #: as texts


class MemberChange(NamedTuple):
    """A change of a worker, of a client, or of the scheduler itself."""

    time: float
    category: str  #: "worker", "client" or "scheduler"
    name: str
    change: str  #: "present" (when it began), "joined", "away", "back", "leaving", "gone"
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Recording:
    """What happened on a cluster between two times.

    Attributes:
        timings: the attempts that ended, in order of their ends.
        changes: of tasks, oldest first.
        members: changes of workers, clients and the scheduler, oldest first.
        begin: when it began, seconds since 1970.
        end: when it ended.
        n_missed: attempts that ended and are not in it.
        n_missed_changes: changes of tasks that are not in it.
        notes: what else is missing, in words.
    """

    timings: Sequence[AttemptTiming]
    changes: Sequence[TaskChange] = ()
    members: Sequence[MemberChange] = ()
    begin: float = 0.0
    end: float = 0.0
    n_missed: int = 0
    n_missed_changes: int = 0
    notes: Sequence[str] = field(default=())

    def __repr__(self) -> str:
        return f"<recording of {counted(len(self.timings), 'attempt')} in {lasting(self.seconds)}>"

    @property
    def seconds(self) -> float:
        """How long it lasted."""
        return self.end - self.begin

    @property
    def records(self) -> list[dict[str, Any]]:
        """The attempts as `Client.get_task_stream` returns them."""
        return [record_of(one) for one in self.timings]

    def lacks(self) -> list[str]:
        """Return what is missing, in words: one text for each lack."""
        found = [*self.notes]
        if self.n_missed:
            found.append(f"{grouped(self.n_missed)} attempts ended and are not in it")
        if self.n_missed_changes:
            found.append(
                f"{grouped(self.n_missed_changes)} submissions, assignments and other changes came "
                "faster than they could be read"
            )
        return found


#: What the functions of a timeline take: a recording, or records of the task stream.
Recorded: TypeAlias = "Recording | Iterable[Mapping[str, Any]]"


def recording_of(recorded: Recorded) -> Recording:
    """Return what was given as a recording.

    Raises:
        TypeError: it is neither a recording nor a list of records.
        ValueError: a record is not one of the task stream.
    """
    if isinstance(recorded, Recording):
        return recorded
    if isinstance(recorded, (str, bytes, Mapping)) or not isinstance(recorded, Iterable):
        raise TypeError(
            "records= is a recording, or a list of records as get_task_stream returns it, not "
            f"{type(recorded).__name__}"
        )
    timings = sorted(map(timing_of, recorded), key=lambda one: one.stop)
    begin = min((one.start for one in timings), default=0.0)
    return Recording(timings, begin=begin, end=timings[-1].stop if timings else 0.0)


def timing_of(record: Mapping[str, Any]) -> AttemptTiming:
    """Return the timing that a record describes: the inverse of `record_of`.

    Raises:
        ValueError: it is no record of the task stream.
    """
    try:
        spans = record["startstops"]
        times = {one["action"]: (one["start"] + 0.0, one["stop"] + 0.0) for one in spans}
        start, stop = times["compute"]
        transfer = times.get("transfer")
        found = AttemptTiming(
            record["key"] if isinstance(record["key"], tuple) else key_of(record["key"]),
            str(record["function"]),
            tuple(map(str, record["span"])),
            str(record["name"]),
            str(record["worker"]),
            int(record["thread"]),
            int(record["attempt"]),
            record["status"] == "error",
            str(record["type"]),
            int(record["nbytes"]),
            start,
            stop,
            float(record["waited"]),
            transfer,
            {name: value for name, value in record.items() if name not in _FIELDS},
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(f"{record!r:.200} is no record of the task stream: {error!r}") from None
    if not (0 <= start <= stop < _MAX_TIME_S and 0 <= found.waited < _MAX_TIME_S):
        raise ValueError(f"the times of {record!r:.200} are not those of an attempt")
    return found


# -- what a drawing asks ---------------------------------------------------------------------------
class Submissions:
    """When tasks were submitted, as far as a recording knows it."""

    def __init__(self, changes: Iterable[TaskChange]) -> None:
        #: {text of the key: times, growing}
        self._times: dict[str, list[float]] = {}
        for one in sorted(changes, key=lambda change: change.time):
            if one.change in ("queued", "retried"):
                for key in one.keys:
                    self._times.setdefault(key, []).append(one.time)

    def before(self, key: object, time: float) -> float | None:
        """Return when a task was submitted last before a time; None = it is not known.

        Clocks of workers are known to about a millisecond: an attempt may seem to have begun that
        much before its submission.
        """
        times = self._times.get(text_of(key))
        if times is None:
            return None
        i = bisect_right(times, time)
        return times[i - 1] if i else (times[0] if times[0] - time < 2e-3 else None)


# -- rows of a file --------------------------------------------------------------------------------
def rows_of(recording: Recording) -> Iterator[dict[str, Any]]:
    """Yield a recording as rows of plain data: first what it is, then what is in it."""
    yield {
        "weft_timeline": FORMAT,
        "begin": recording.begin,
        "end": recording.end,
        "n_missed": recording.n_missed,
        "n_missed_changes": recording.n_missed_changes,
        "notes": [*recording.notes],
    }
    for member in recording.members:
        yield {"member": [*member[:4], dict(member.facts)]}
    for change in recording.changes:
        for i in range(0, len(change.keys), _N_KEYS):
            yield {"change": [*change[:3], [*change.keys[i : i + _N_KEYS]]]}
    for timing in recording.timings:
        yield {"attempt": {**record_of(timing), "key": text_of(timing.key)}}


def recording_in(rows: Iterable[Any]) -> Recording:
    """Return the recording that rows describe: the inverse of `rows_of`.

    Raises:
        ValueError: they are not those of a recording, or of another version.
    """
    rows = iter(rows)
    head = next(rows, None)
    if not isinstance(head, dict) or "weft_timeline" not in head:
        raise ValueError("it is no recording of 'weft timeline --save'")
    if head["weft_timeline"] != FORMAT:
        raise ValueError(
            f"it is a recording of format {head['weft_timeline']!r:.20}, which another version of "
            f"weft has written; this one reads format {FORMAT}"
        )
    timings: list[AttemptTiming] = []
    changes: list[TaskChange] = []
    members: list[MemberChange] = []
    for number, row in enumerate(rows, 2):
        try:
            ((kind, content),) = row.items()
            if kind == "attempt":
                timings.append(timing_of(content))
            elif kind == "change":
                time, change, by, keys = content
                changes.append(TaskChange(float(time), str(change), str(by), [*map(str, keys)]))
            elif kind == "member":
                time, category, name, change, facts = content
                words = str(category), str(name), str(change)
                members.append(MemberChange(float(time), *words, dict(facts)))
            else:
                raise ValueError(f"there is no row {kind!r:.40}")
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"row {number} is not one of a recording: {error}") from None
    try:
        return Recording(
            timings,
            changes,
            members,
            float(head["begin"]),
            float(head["end"]),
            int(head["n_missed"]),
            int(head["n_missed_changes"]),
            tuple(map(str, islice(head["notes"], 100))),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"its first row is not that of a recording: {error!r}") from None
