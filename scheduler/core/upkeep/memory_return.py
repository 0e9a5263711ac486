"""Gives memory back after many tasks: tables that stayed large, and the story of forgotten tasks.

A dict does not shrink when its entries are deleted: after a million tasks the empty tables take
100 MB and more. And the keys of the story were allocated among the records of those tasks, so they
keep the memory around them alive. Both are reduced in small parts, with pauses, because
everything else waits meanwhile: a table that once had a million entries takes 2 to 7 ms. Free
memory of the process is returned to the system when clients have requested nothing for a while:
that takes 20 ms of processor time after a million tasks, nearly all of it in the kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..actions import Action
from ..feature import Feature

if TYPE_CHECKING:
    from ..records.deadlines import Deadline
    from ..state import SchedulerState

#: The pause between two rounds of looks at all tables, and that between two parts of one.
INTERVAL_S: Final = 1.0
PAUSE_S: Final = 0.1
#: Owners of tables that are looked at in one part.
OWNERS_PER_PART: Final = 500
#: The tables whose size depends on the number of tasks, by type of their owner.
_TABLES: Final = {
    "SchedulerState": ("tasks", "functions", "n_exceptions", "deaths", "out_of_reach"),
    "ClientHandle": ("wants",),
    "WorkerHandle": ("has_what", "processing", "zombies"),
    "TaskClass": ("unrunnable",),
}
#: A table is made anew if it takes more bytes than this, and more than this per entry (a full one
#: takes 40 to 100).
LARGE_NBYTES: Final = 1 << 20
SPARSE_NBYTES: Final = 10_000
#: The story keeps this many keys, and some per known task; of the others it drops so many at once.
STORY_KEYS: Final = 2_000
STORY_KEYS_PER_TASK: Final = 10
STORY_PART: Final = 20_000
#: With more tasks than this, or sooner after a submission, returning memory would delay peers.
FEW_TASKS: Final = 1_000
QUIET_S: Final = 1.0


@dataclass(slots=True)
class ReturnMemory(Action):
    """An action: return the memory that is free, since many tasks are gone and few are left."""


class Shrinking:
    """What is looked at."""

    __slots__ = ("has_shrunk", "next", "owners")

    def __init__(self) -> None:
        #: when the next tables are looked at; None while there is no task and nothing to give back
        self.next: Deadline | None = None
        #: the owners of those that are left in this round
        self.owners: list[object] = []
        #: something was made smaller since memory was returned
        self.has_shrunk = False


def _keep_small(state: SchedulerState, *_: object) -> None:
    """Look at the tables from now on, until there is no task and nothing to give back."""
    shrinking = state.record(Shrinking)
    if shrinking.next is None:
        shrinking.next = state.call_after(INTERVAL_S, _shrink)


def _shrink(state: SchedulerState) -> None:
    """Give one part of the memory back that is not needed any more, and come back."""
    shrinking = state.record(Shrinking)
    if _shrink_one(state, shrinking) or shrinking.owners:
        delay_s = PAUSE_S
    elif state.tasks or shrinking.has_shrunk:
        delay_s = INTERVAL_S
        is_quiet = state.now - state.ranks.last_submission > QUIET_S
        if shrinking.has_shrunk and is_quiet and len(state.tasks) <= FEW_TASKS:
            shrinking.has_shrunk = False
            state.after.append(ReturnMemory())
    else:
        shrinking.next = None
        return
    shrinking.next = state.call_after(delay_s, _shrink)


def _shrink_one(state: SchedulerState, shrinking: Shrinking) -> bool:
    """Make one thing smaller; False if nothing of this part of the round is too large."""
    story = state.story.ring
    n_keys = STORY_KEYS + STORY_KEYS_PER_TASK * len(state.tasks)
    if story.n_rows > n_keys:
        story.cut(max(n_keys, story.n_rows - STORY_PART))
        shrinking.has_shrunk = True
        return True
    owners = shrinking.owners
    if not owners:
        owners += [*state.workers.values(), *state.clients.values(), *state.classes.values(), state]
    for _ in range(min(len(owners), OWNERS_PER_PART)):
        owner = owners.pop()
        for name in _TABLES[type(owner).__name__]:
            table: dict[Any, Any] = getattr(owner, name)
            if table.__sizeof__() > max(LARGE_NBYTES, SPARSE_NBYTES * len(table)):
                rows = dict(table)
                table.clear()  # in place: others may know the table
                table.update(rows)
                shrinking.has_shrunk = True
                owners.append(owner)
                return True
    return False


FEATURE: Final = Feature(
    name="memory return",
    records=(Shrinking,),
    first_submitted=(_keep_small,),
    client_connected=(_keep_small,),  # tasks of an earlier scheduler may be here before it
)
