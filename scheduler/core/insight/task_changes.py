"""The changes of tasks, as the story has them, for a reader that goes on at a cursor.

The story is recorded anyway, one entry for each batch (`protocol/story.py`). Reading it on adds
nothing to that: a reader that asks often enough gets each submission, assignment and cancellation
once. Starts and ends of attempts are in the task stream, with their threads, and are left out here.

A *cursor* is the epoch and a position. Positions count the keys of all entries, also of those that
are forgotten, so a reader that is slow is told how many it has missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.question_arguments import BadArgument, Info, Page, position_of

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Keys, and entries, that one page looks at.
N_KEYS: Final = 2000
N_ENTRIES: Final = 200
#: {beginning of a text of the story: the change}; what follows in the text says who, or where.
CHANGES: Final = {
    "submitted by ": "queued",
    "assigned to ": "assigned",
    "goes on at ": "kept",
    "returned by ": "returned",
    "asked on ": "returned",
    "takes too long on ": "overdue",
    "runs again in ": "paused",
    "retried by ": "retried",
    "last copy lost": "lost",
    "erred": "failed",
    "cancelled by ": "cancelled",
}
#: In the task stream, with more about it.
_ENDS: Final = "finished on "


def ask_task_changes(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return what has happened to tasks since a cursor.

    `after` is the `cursor` of the answer before; "" = from now on, so that the answer has a cursor
    and no changes. `changes` are [[time, change, who or where, keys], ...], oldest first, by the
    scheduler's clock: `to_unix_s` makes its times seconds since 1970.
    """
    after = arguments.get("after", "")
    if type(after) is not str:
        raise BadArgument("after= is the cursor of an answer")
    ring = state.story.ring
    # A page begins at a cursor, and ends where the story did when the first one was asked for.
    text, _, end_text = page.rpartition(".") if page else (after, "", "")
    epoch_text, _, position_text = text.partition(".")
    started = state.now if state.started is None else state.started
    is_known = epoch_text == str(state.epoch)
    if is_known:
        position, limit = position_of(position_text), position_of(end_text)
    else:  # all is new to a reader that comes from another scheduler
        position, limit = (ring.first if text else ring.end), 0
    start = min(position, ring.end)
    end = min(limit, ring.end) if is_known and page else ring.end
    first = max(start, ring.first)
    changes, stop = _changes(state, first, end)
    cursor = f"{state.epoch}.{stop}"
    info = {
        "changes": changes,
        "n_missed": first - start,
        "cursor": cursor,
        "to_unix_s": state.epoch / 1e9 - started,
    }
    return info, f"{cursor}.{end}" if stop < end else ""


def _changes(state: SchedulerState, first: int, end: int) -> tuple[list[list[Any]], int]:
    """Return changes from the key with position `first` on, and the position after the last."""
    found: list[list[Any]] = []
    n_keys, n_entries = N_KEYS, N_ENTRIES
    position = first
    for begin, (when, text, keys) in state.story.ring.since(first):
        if begin >= end or n_keys <= 0 or n_entries <= 0:
            break
        n_entries -= 1
        # A submission may have more keys than a page, which then ends within it.
        skip = max(first - begin, 0)
        part = keys[skip : skip + n_keys]
        position = begin + skip + len(part)
        if not text.startswith(_ENDS):
            n_keys -= len(part)
            found.append([when, *change_in(text), [*part]])
        elif skip + len(part) < len(keys):
            position = begin + len(keys)  # nothing of it is sent
    return found, position


def change_in(text: str) -> tuple[str, str]:
    """Return the change that a text of the story stands for, and who made it, or where.

    A text that is not in the table is a change of its own name, `noted`.
    """
    for beginning, change in CHANGES.items():
        if text.startswith(beginning):
            return change, text[len(beginning) :]
    return "noted", text
