"""The state of `weft top`: what is shown, in which order, and what a key does. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..overview.hosts import by_host, natural
from ..overview.snapshot import Snapshot
from ..overview.wording import memory_share, worker_state

WORKERS, HOSTS, FUNCTIONS, FAILURES = "workers", "hosts", "functions", "failures"
TABS: Final = (WORKERS, HOSTS, FUNCTIONS, FAILURES)

#: What the keyboard sends for keys without a character.
UP, DOWN, PAGE_UP, PAGE_DOWN = "<up>", "<down>", "<page up>", "<page down>"
ENTER, ESCAPE, BACKSPACE, TAB = "<enter>", "<escape>", "<backspace>", "<tab>"

#: Modes: what is typed goes into a text, or answers a question.
BROWSING, FILTERING, ASKING_KEY, CONFIRMING, READING = (
    "browsing",
    "filtering",
    "asking for a key",
    "confirming",
    "reading",
)
_MAX_TYPED: Final = 500
#: Rows that page up and page down skip.
_PAGE: Final = 10

Row = Mapping[str, Any]


class Quit(NamedTuple):
    """End the program."""


class Explain(NamedTuple):
    """Ask the scheduler about a task, and show the answer."""

    key: str


class RetireOne(NamedTuple):
    """Let a worker finish what it runs, and leave."""

    worker_id: str
    name: str


Action = Quit | Explain | RetireOne


class SortOrder(NamedTuple):
    """An order of the rows of a table."""

    name: str
    value: Callable[[Row], Any]
    is_descending: bool


ORDERS: Final[dict[str, tuple[SortOrder, ...]]] = {
    WORKERS: (
        SortOrder("name", lambda w: natural(w["name"]), False),
        SortOrder("memory", memory_share, True),
        SortOrder("cpu", lambda w: w["metrics"].get("cpu", 0), True),
        SortOrder("tasks", lambda w: w["n_processing"], True),
        SortOrder("results", lambda w: w["nbytes"], True),
        SortOrder("seen", lambda w: w["last_seen_s"], True),
    ),
    HOSTS: (
        SortOrder("name", lambda h: natural(h["name"]), False),
        SortOrder("memory", memory_share, True),
        SortOrder("cpu", lambda h: h["metrics"]["cpu"], True),
        SortOrder("tasks", lambda h: h["n_processing"], True),
        SortOrder("results", lambda h: h["nbytes"], True),
    ),
    FUNCTIONS: (
        SortOrder("unfinished", lambda f: f["n_unfinished"], True),
        SortOrder("failed", lambda f: f["n_failed"], True),
        SortOrder("time", lambda f: f["compute_s"], True),
        SortOrder("name", lambda f: natural(f["name"]), False),
    ),
    FAILURES: (
        SortOrder("age", lambda f: f["age_s"], False),
        SortOrder("function", lambda f: natural(f["function"]), False),
    ),
}


@dataclass
class View:
    """The choices of one user: tab, order, filter.

    Attributes:
        tab: the table that is shown.
        orders: {table: place of its order in ORDERS}.
        filters: {table: text that is a part of the rows shown}.
        selected: the row under the cursor, by worker id, function name, or key.
        mode: what keys do.
        typed: the text that is being typed.
        message: the last outcome, shown until the next key.
        page: the text that is read in READING.
        offset: first line of it that is shown.
    """

    tab: str = WORKERS
    orders: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABS, 0))
    filters: dict[str, str] = field(default_factory=lambda: dict.fromkeys(TABS, ""))
    selected: str = ""
    mode: str = BROWSING
    typed: str = ""
    message: str = ""
    page: str = ""
    offset: int = 0
    #: the worker that is to be retired, while that is asked
    retiring: RetireOne | None = None

    # --- Rows -------------------------------------------------------------------------------------

    @property
    def order(self) -> SortOrder:
        """The order of the table that is shown."""
        return ORDERS[self.tab][self.orders[self.tab]]

    def rows(self, snapshot: Snapshot) -> list[Row]:
        """Return the rows of the table that is shown, filtered and in order."""
        found: list[Row]
        if self.tab == WORKERS:
            found = list(snapshot.workers.values())
        elif self.tab == HOSTS:
            found = by_host(snapshot.workers.values())
        else:
            found = list(snapshot.overview.get(self.tab, []))
        wanted = self.typed if self.mode == FILTERING else self.filters[self.tab]
        if wanted:
            found = [row for row in found if wanted.casefold() in text_of(self.tab, row).casefold()]
        order = self.order
        return sorted(found, key=order.value, reverse=order.is_descending)

    # --- Keys -------------------------------------------------------------------------------------

    def press(self, key: str, snapshot: Snapshot) -> Action | None:
        """Change what is shown; return what the program has to do."""
        self.message = ""
        if self.mode in (FILTERING, ASKING_KEY):
            return self._type(key)
        if self.mode == CONFIRMING:
            retiring, self.retiring, self.mode = self.retiring, None, BROWSING
            if key in ("y", "Y"):
                return retiring
            self.message = "nothing was changed"
            return None
        if self.mode == READING:
            self._read(key)
            return None
        return self._browse(key, snapshot)

    def _browse(self, key: str, snapshot: Snapshot) -> Action | None:
        if key in ("q", "Q"):
            return Quit()
        if key == TAB:
            self.tab = TABS[(TABS.index(self.tab) + 1) % len(TABS)]
            self.selected = ""
        elif key == "s":
            self.orders[self.tab] = (self.orders[self.tab] + 1) % len(ORDERS[self.tab])
        elif key == "/":
            self.mode, self.typed = FILTERING, self.filters[self.tab]
        elif key in (UP, "k"):
            self._move(snapshot, -1)
        elif key in (DOWN, "j"):
            self._move(snapshot, 1)
        elif key in (PAGE_UP, PAGE_DOWN):
            self._move(snapshot, _PAGE if key == PAGE_DOWN else -_PAGE)
        elif key == ESCAPE:
            self.filters[self.tab] = self.selected = ""
        elif key == "e":
            if self.tab == FAILURES and self.selected:
                return Explain(self.selected)
            self.mode, self.typed = ASKING_KEY, ""
        elif key == "r":
            self._ask_to_retire(snapshot)
        elif key in ("h", "?"):
            self.show(HELP)
        return None

    def _move(self, snapshot: Snapshot, step: int) -> None:
        ids = [id_of(self.tab, row) for row in self.rows(snapshot)]
        if not ids:
            return
        if self.selected in ids:
            place = min(max(ids.index(self.selected) + step, 0), len(ids) - 1)
        else:
            place = 0
        self.selected = ids[place]

    def _ask_to_retire(self, snapshot: Snapshot) -> None:
        chosen = [w for w in snapshot.workers.values() if w["id"] == self.selected]
        if self.tab != WORKERS or not chosen:
            self.message = "choose a worker first, with the arrow keys in the table of workers"
            return
        self.mode = CONFIRMING
        self.retiring = RetireOne(chosen[0]["id"], chosen[0]["name"])

    def _type(self, key: str) -> Action | None:
        if key == ESCAPE:
            if self.mode == FILTERING:
                self.filters[self.tab] = ""
            self.mode, self.typed = BROWSING, ""
        elif key == BACKSPACE:
            self.typed = self.typed[:-1]
        elif key == ENTER:
            typed, mode, self.mode, self.typed = self.typed, self.mode, BROWSING, ""
            if mode == FILTERING:
                self.filters[self.tab] = typed
            elif typed.strip():
                return Explain(typed.strip())
        elif len(key) == 1 and key.isprintable() and len(self.typed) < _MAX_TYPED:
            self.typed += key
        return None

    def _read(self, key: str) -> None:
        n_lines = self.page.count("\n") + 1
        steps = {UP: -1, "k": -1, DOWN: 1, "j": 1, PAGE_UP: -_PAGE, PAGE_DOWN: _PAGE, " ": _PAGE}
        if key in steps:
            self.offset = min(max(self.offset + steps[key], 0), n_lines - 1)
        else:
            self.mode, self.page, self.offset = BROWSING, "", 0

    def show(self, text: str) -> None:
        """Show a text until a key is pressed."""
        self.mode, self.page, self.offset = READING, text, 0


def id_of(tab: str, row: Row) -> str:
    """Return what a row is known by from one snapshot to the next."""
    return str(row[{WORKERS: "id", HOSTS: "name", FUNCTIONS: "name", FAILURES: "key"}[tab]])


def text_of(tab: str, row: Row) -> str:
    """Return the text of a row that a filter looks at."""
    if tab == WORKERS:
        return f"{row['name']} {row['host']} {worker_state(row)}"
    if tab in (HOSTS, FUNCTIONS):
        return str(row["name"])
    return f"{row['key']} {row['function']} {row['worker']} {row['kind']} {row['text']}"


HELP: Final = """\
tab        the next table: workers, hosts, functions, failures
s          the next order of the rows
/          filter the rows by a text; enter keeps it, escape removes it
↑ ↓ j k    choose a row
e          explain a task: type its key (future.key), or choose a failure first
r          retire the chosen worker: it finishes what it runs, and leaves
h ?        this help
q          quit

Any key goes back."""
