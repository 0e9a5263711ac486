"""Finds tasks by a part of their keys, and functions by a part of their names.

A dict cannot be read from the middle, so a search looks at the latest tasks and at the oldest: as
many as can be skipped within a page. A whole key is found among any number of tasks.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from ....protocol.wire.question_arguments import BadArgument, Info, Page, position_of

if TYPE_CHECKING:
    from ..state import SchedulerState

#: Keys that one page looks at: in half a millisecond.
N_LOOKED_AT: Final = 4000
#: Pages from either end of the table; the last ones skip so many keys in about a millisecond.
N_PAGES: Final = 20
#: Keys, and functions, that are found at most in one page.
N_FOUND: Final = 50
MAX_TEXT_CHARS: Final = 200


def ask_search(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return `[[key, state, function], ...]` of tasks with a text in their keys.

    And how many tasks were looked at, of how many; with the first page functions, too, as
    `[[name, unfinished, failed], ...]`. Pages may overlap if tasks come meanwhile.
    """
    text = arguments.get("text")
    if type(text) is not str or not 0 < len(text) <= MAX_TEXT_CHARS:
        raise BadArgument(f"text= is a text of at most {MAX_TEXT_CHARS} characters")
    number = position_of(page)
    if number >= 2 * N_PAGES:
        raise BadArgument(f"there is no page {page[:40]!r}")
    tasks = state.tasks
    # The older half of a table that is looked at as a whole is not looked at twice.
    n_latest = min(len(tasks), N_PAGES * N_LOOKED_AT)
    n_oldest = min(len(tasks) - n_latest, N_PAGES * N_LOOKED_AT)
    is_latest = number < N_PAGES
    start = (number if is_latest else number - N_PAGES) * N_LOOKED_AT
    end = min(start + N_LOOKED_AT, n_latest if is_latest else n_oldest)
    keys = reversed(tasks) if is_latest else iter(tasks)
    found = [key for key in islice(keys, start, max(start, end)) if text in key]
    if number == 0 and text in tasks:  # first, and wherever it is
        found = [text, *(key for key in found if key != text)]
    rows = [[tasks[k].key, tasks[k].state, tasks[k].group.prefix.name] for k in found[:N_FOUND]]
    info: Info = {
        "keys": rows,
        "is_cut": len(found) > N_FOUND,
        "n_looked_at": max(0, end - start),
        "n_tasks": len(tasks),
    }
    if number == 0:
        info["functions"] = _functions(state, text.lower())
    following = number + 1
    if is_latest and end >= n_latest:
        following = N_PAGES if n_oldest else 2 * N_PAGES
    elif not is_latest and end >= n_oldest:
        following = 2 * N_PAGES
    return info, str(following) if following < 2 * N_PAGES else ""


def _functions(state: SchedulerState, text: str) -> list[list[object]]:
    seen = islice(state.prefixes.items(), N_LOOKED_AT)
    found = (prefix for name, prefix in seen if text in name.lower())
    return [[p.name, p.n_unfinished, p.n_failed] for p in islice(found, N_FOUND)]
