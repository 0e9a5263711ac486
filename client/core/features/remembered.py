"""Settings of this client, which it states to a scheduler that was started again.

A part of the core. The answer to a call that sets something (a variable, an event, a dataset,
metadata) has a number. Under it the call is remembered, until the scheduler reports that the
setting does not hold any more. The session with a new scheduler begins by stating these settings
again, as leases are; which one counts if several clients state the same is decided there
(`scheduler/core/coordination/marks.py`). What cannot be stated again is reported to the user, once
for each object: the values of queues, which may have been taken, and what was too much to be
remembered. So are waits for what another client may have set that is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ....protocol.wire.messages import Operated
from ....protocol.wire.messages.coordination import (
    DATASET,
    DURABLE,
    METADATA,
    QUEUE,
    RESTATE,
    SUPERSEDED,
)
from ....protocol.wire.payload import blob_nbytes
from ....protocol.wording import counted
from ..events import Warn

if TYPE_CHECKING:
    from ..feature import Invariant
    from ..state import ClientState
    from .coordination import ObjectCall, ObjectCalls

#: The most settings, and bytes of their values: those of the oldest are forgotten.
MAX_SETTINGS: Final = 10_000
MAX_NBYTES: Final = 64 << 20
#: The most queues whose values are counted.
MAX_QUEUES: Final = 10_000
#: Lines about so many objects after one restart; one more counts the others.
MAX_LINES: Final = 5

#: Arguments that say what is set.
_STATED: Final[tuple[str, ...]] = ("dataset", "path", "value", DURABLE)
_SETTING_OVERHEAD: Final = 200


@dataclass(slots=True)
class ObjectSetting:
    """A setting that a call has made, as it is stated again."""

    #: the call that states it
    call: ObjectCall
    nbytes: int
    #: the scheduler of this session has it
    is_there: bool = True

    @property
    def what(self) -> str:
        """Return what the user calls it."""
        call = self.call
        if call.kind == DATASET:
            return f"dataset {call.arguments['dataset']!r}"
        if call.kind == METADATA:
            return f"metadata {call.arguments['path']!r}"
        return f"{call.kind} {call.name!r}"


@dataclass(slots=True)
class QueueUse:
    """Counts of the values that this client has put into a queue, and taken from it."""

    n_put: int = 0
    n_taken: int = 0


@dataclass(slots=True)
class Remembered:
    """The settings of this client, and the queues that it has used."""

    #: {number: setting} that hold
    settings: dict[int, ObjectSetting] = field(default_factory=dict)
    nbytes: int = 0  #: sum over the settings
    #: {number: what it was} of those whose values are forgotten
    forgotten: dict[int, str] = field(default_factory=dict)
    #: {request: number} that were stated in this session and not answered
    stating: dict[int, int] = field(default_factory=dict)
    #: {name: use} of those where this client has put more values than it has taken out, at this
    #: scheduler; not if it knows that they were empty later
    queues: dict[str, QueueUse] = field(default_factory=dict)
    #: lines about what is lost, or waited for, that are not reported yet: `stating` is not empty
    lost: list[str] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all: the client has ended."""
        self.settings.clear()
        self.nbytes = 0
        self.forgotten.clear()
        self.stating.clear()
        self.queues.clear()
        self.lost.clear()


def remembered_of(core: ClientState) -> Remembered:
    """Return the settings of this client."""
    return core.record(Remembered)


def note_answer(core: ClientState, call: ObjectCall, answer: Operated) -> None:
    """Remember what a call has set or put; forget what does not hold any more."""
    remembered = remembered_of(core)
    if call.kind == QUEUE:
        is_kept = answer.info.get(DURABLE) is True
        if call.operation == "put" and not is_kept and len(remembered.queues) < MAX_QUEUES:
            remembered.queues.setdefault(call.name, QueueUse()).n_put += 1
        elif call.operation == "close" or (call.operation == "count" and answer.info.get("n") == 0):
            remembered.queues.pop(call.name, None)
        call.n_given = len(answer.values)
        return
    number = answer.info.get("number")
    if type(number) is not int:
        return
    arguments = {name: call.arguments[name] for name in _STATED if name in call.arguments}
    nbytes = _SETTING_OVERHEAD + sum(blob_nbytes(blob) for blob in call.values if blob is not None)
    stated = replace(
        call, watcher=None, operation=RESTATE, arguments={**arguments, "number": number}
    )
    remembered.settings[number] = ObjectSetting(stated, nbytes)
    remembered.nbytes += nbytes
    while remembered.nbytes > MAX_NBYTES or len(remembered.settings) > MAX_SETTINGS:
        oldest = next(iter(remembered.settings))
        what = remembered.settings[oldest].what
        _forget(remembered, oldest)
        if len(remembered.forgotten) < MAX_SETTINGS:
            remembered.forgotten[oldest] = what


def note_taken(core: ClientState, call: ObjectCall) -> None:
    """Note that a caller has values of a queue: it gives them back no more."""
    use = remembered_of(core).queues.get(call.name)
    if use is not None:
        use.n_taken += call.n_given
        if use.n_taken >= use.n_put:
            del remembered_of(core).queues[call.name]


def note_superseded(core: ClientState, answer: Operated) -> None:
    """Forget the settings that do not hold any more."""
    for number in answer.info[SUPERSEDED]:
        _forget(remembered_of(core), number)


def _forget(remembered: Remembered, number: int) -> None:
    setting = remembered.settings.pop(number, None)
    if setting is not None:
        remembered.nbytes -= setting.nbytes
    remembered.forgotten.pop(number, None)


def numbers_there(core: ClientState) -> list[int]:
    """Return the numbers of the settings that the scheduler has, unless others have set anew."""
    there = [n for n, setting in remembered_of(core).settings.items() if setting.is_there]
    return [*there, *remembered_of(core).forgotten]


def note_restart(core: ClientState, calls: ObjectCalls) -> None:
    """Note that the scheduler is a new one, which has nothing; report what is lost with the old."""
    remembered = remembered_of(core)
    for setting in remembered.settings.values():
        setting.is_there = False
    queues = dict(remembered.queues)
    for call in calls.pending.values():
        is_kept = call.arguments.get(DURABLE) is True
        if call.kind == QUEUE and call.operation in ("put", "get") and not is_kept:
            queues.setdefault(call.name, QueueUse())
    for name, use in queues.items():
        line = f"queue {name!r}: what it held was lost with the scheduler, which was started again"
        line += f"; this client had put {counted(use.n_put, 'value')} there" if use.n_put else ""
        line += f", and taken {use.n_taken} out" if use.n_taken else ""
        remembered.lost.append(line)
    own = {(setting.call.kind, setting.call.name) for setting in remembered.settings.values()}
    waits = {
        (call.kind, call.name): None
        for call in calls.pending.values()
        if call.awaits_set and (call.kind, call.name) not in own
    }
    for kind, name in waits:
        remembered.lost.append(
            f"{kind} {name!r}: this client waits for it; the scheduler was started again, and what "
            "clients that are gone had set is lost"
        )
    for what in remembered.forgotten.values():
        remembered.lost.append(
            f"{what} was lost with the scheduler, which was started again: this client keeps at "
            f"most {MAX_NBYTES >> 20} MiB and {MAX_SETTINGS} objects to state again; set it again"
        )
    remembered.queues = {}
    for call in calls.untaken.values():
        call.n_given = 0  # not of what will be put at the new scheduler
    remembered.forgotten = {}


def state_again(core: ClientState) -> None:
    """Send the settings that the scheduler does not have, in the order in which they were made."""
    remembered = remembered_of(core)
    remembered.stating = {}
    for number, setting in sorted(remembered.settings.items()):
        if setting.is_there:
            continue
        request = core.next_request()
        remembered.stating[request] = number
        core.to_scheduler.append(setting.call.message(request))
    _report(core)


def note_stated(core: ClientState, request: int, problem: str) -> bool:
    """Note the answer to a setting that was stated again; return False if it was something else."""
    remembered = remembered_of(core)
    number = remembered.stating.pop(request, None)
    if number is None:
        return False
    setting = remembered.settings.get(number)
    if setting is not None and problem:
        remembered.lost.append(
            f"{setting.what} was lost with the scheduler, which was started again: {problem}"
        )
        _forget(remembered, number)
    elif setting is not None:
        setting.is_there = True
    _report(core)
    return True


def _report(core: ClientState) -> None:
    """Report to the user what is lost, when all is known of it."""
    remembered = remembered_of(core)
    if remembered.stating:
        return
    lost, remembered.lost = remembered.lost, []
    core.after += [Warn(line) for line in lost[:MAX_LINES]]
    if len(lost) > MAX_LINES:
        n_more = counted(len(lost) - MAX_LINES, "more object")
        text = f"{n_more} were lost with the scheduler, or are waited for, likewise"
        core.after.append(Warn(text))


REMEMBERED_INVARIANTS: Final[dict[str, Invariant]] = {
    "bytes of what was set are counted": lambda core: (
        []
        if remembered_of(core).nbytes
        == sum(setting.nbytes for setting in remembered_of(core).settings.values())
        else [remembered_of(core).nbytes]
    ),
    "more was put into a queue than taken out": lambda core: [
        name for name, use in remembered_of(core).queues.items() if use.n_taken >= use.n_put
    ],
}
