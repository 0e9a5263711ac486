"""Gives memory back after many tasks: tables that stayed large, and the story of forgotten tasks.

A dict does not shrink when its entries are deleted: after a million tasks the empty tables take
100 MB and more. And the keys of the story were allocated among the records of those tasks, so they
keep the memory around them alive. Both are reduced in small parts, one per tick, because
everything else waits meanwhile: a table that once had a million entries takes 2 to 7 ms. Free
memory of the process is returned to the system when clients have requested nothing for a while:
that takes 20 ms of processor time after a million tasks, nearly all of it in the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .state import SchedulerState

#: How often tables are checked while the scheduler is idle.
INTERVAL_S: Final = 1.0
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
class ReturnMemory:
    """An action: return the memory that is free, since many tasks are gone and few are left."""


def shrink(state: SchedulerState) -> None:
    """Give one part of the memory back that is not needed any more."""
    if state.now < state.next_shrink:
        return
    story = state.story
    n_keys = STORY_KEYS + STORY_KEYS_PER_TASK * len(state.tasks)
    if story.n_keys > n_keys:
        story.cut(max(n_keys, story.n_keys - STORY_PART))
        state.has_shrunk = True
        return
    for owner, name in _tables(state):
        table: dict[Any, Any] = getattr(owner, name)
        if table.__sizeof__() > max(LARGE_NBYTES, SPARSE_NBYTES * len(table)):
            setattr(owner, name, dict(table))
            state.has_shrunk = True
            return
    is_quiet = state.now - state.last_submission > QUIET_S
    if state.has_shrunk and is_quiet and len(state.tasks) <= FEW_TASKS:
        state.has_shrunk = False
        state.after.append(ReturnMemory())
    state.next_shrink = state.now + INTERVAL_S


def _tables(state: SchedulerState) -> Iterator[tuple[object, str]]:
    """List the tables whose size depends on the number of tasks, by owner and attribute."""
    for name in ("tasks", "functions", "n_exceptions", "deaths", "out_of_reach"):
        yield state, name
    for client in state.clients.values():
        yield client, "wants"
    for ws in state.workers.values():
        yield ws, "has_what"
        yield ws, "processing"
        yield ws, "zombies"
    for task_class in state.classes.values():
        yield task_class, "unrunnable"
