"""Workers that were refused for good, and why tasks find no worker: texts for display.

A worker that can never join (for example, one with another minor version of Python) is remembered
for a while, so that a user whose tasks wait for it can read the reason.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wording import listed
from ..feature import Feature
from ..gangs.seating import why_too_large
from ..invariants.checking import in_order

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..records.tasks import TaskClass
    from ..state import SchedulerState

#: Refused workers that are remembered; the one refused longest ago is forgotten first.
MAX_REFUSED: Final = 100
#: ... and for how long, seconds: a reason why tasks find no worker now may be as old.
REMEMBERED_S: Final = 3600.0
#: Where no task waits for it, a worker that has not tried again for so long is over.
CURRENT_S: Final = 300.0
#: Connected workers that are named where the wanted one is not among them.
MAX_NAMED: Final = 10


@dataclass(slots=True)
class Refusal:
    """The last time that a worker of this name, on this host, was refused."""

    name: str
    host: str
    #: in a few words, for a list
    why: str
    when: float
    n_times: int = 1


class RefusedNames(dict[tuple[str, str], Refusal]):
    """The refused workers, by name and host, the latest last; at most MAX_REFUSED."""


def refusals_of(state: SchedulerState) -> RefusedNames:
    """Return the refused workers."""
    return state.record(RefusedNames)


def _on_worker_refused(state: SchedulerState, name: str, host: str, why: str) -> bool:
    """Note that a worker was refused for good; return whether that was not known before."""
    refusals = refusals_of(state)
    known = refusals.pop((name, host), None)
    is_first = known is None or known.why != why
    n_times = 1 if known is None else known.n_times + 1
    refusals[name, host] = Refusal(name, host, why, state.now, n_times)
    while len(refusals) > MAX_REFUSED:
        del refusals[next(iter(refusals))]
    return is_first


def _on_worker_joined(state: SchedulerState, ws: WorkerHandle) -> None:
    """Drop the note of a worker that could join after all."""
    refusals_of(state).pop((ws.name, ws.host), None)


def current_refusals(state: SchedulerState) -> list[Refusal]:
    """Return the refusals that somebody should know of, oldest first.

    Those of the last minutes: who has started the worker may look for it. And all that are
    remembered while no worker takes tasks, or may run some of them: they may be why.
    """
    recent = recent_refusals(state)
    if not state.staying or any(c.unrunnable for c in state.classes.values()):
        return recent
    return [refusal for refusal in recent if state.now - refusal.when <= CURRENT_S]


def recent_refusals(state: SchedulerState) -> list[Refusal]:
    """Return the refusals that are remembered, oldest first."""
    refusals = refusals_of(state)
    for key, refusal in list(refusals.items()):
        if state.now - refusal.when > REMEMBERED_S:
            del refusals[key]
    return list(refusals.values())


def describe_refusals(state: SchedulerState) -> list[dict[str, Any]]:
    """Describe the refused workers for `weft info`."""
    return [
        {
            "name": refusal.name,
            "host": refusal.host,
            "why": refusal.why,
            "n_times": refusal.n_times,
            "seconds_ago": max(0.0, state.now - refusal.when),
        }
        for refusal in current_refusals(state)
    ]


def explain_unrunnable(state: SchedulerState, task_class: TaskClass) -> str:
    """Return why no worker of the cluster may run the tasks of a class."""
    parts = [_what_is_missing(state, task_class)]
    whys = Counter(refusal.why for refusal in recent_refusals(state))
    for why, n in whys.items():
        parts.append(f"{n} worker{' was' if n == 1 else 's were'} refused: {why}")
    return "; ".join(parts)


def _what_is_missing(state: SchedulerState, task_class: TaskClass) -> str:
    workers = [ws for ws in state.workers.values() if not ws.is_leaving]
    if not workers:
        return "the cluster has no workers"
    if of_gang := why_too_large(state, task_class):
        return of_gang
    wanted = task_class.workers
    is_strict = wanted and not task_class.allow_other_workers
    if is_strict and not any(ws.is_named(wanted) for ws in workers):
        names = [ws.name for ws in workers]
        there = listed(names[:MAX_NAMED], len(names))
        verb = "is" if len(names) == 1 else "are"
        return f"no connected worker is named {' or '.join(wanted)}; there {verb} {there}"
    n = "1 worker is" if len(workers) == 1 else f"{len(workers)} workers are"
    return f"no worker offers {task_class.restrictions} ({n} connected)"


FEATURE: Final = Feature(
    name="refused workers",
    records=(RefusedNames,),
    invariants={
        "refusals are few": lambda s: [*refusals_of(s)][MAX_REFUSED:],
        "refusals are in order of time": lambda s: in_order(
            refusal.when for refusal in refusals_of(s).values()
        ),
    },
    worker_refused=(_on_worker_refused,),
    worker_joined=(_on_worker_joined,),
    why_unrunnable=(explain_unrunnable,),
)
