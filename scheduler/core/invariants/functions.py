"""The invariants of functions and of their measurements, by name; `validate.py` checks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ....protocol.wire.payload import blob_nbytes
from ..moves.transitions import ACTIVE
from ..records.prefixes import MAX_SHOWN, MIN_DURATION_NS
from ..records.tasks import PROCESSING
from .checking import tasks_in, unless

if TYPE_CHECKING:
    from ..records.peers import ClientHandle
    from ..state import SchedulerState


def _unknown_prefixes(state: SchedulerState) -> list[str]:
    known = dict(state.prefixes.items())
    prefixes = [function.prefix for function in state.functions.values()]
    return [prefix.name for prefix in prefixes if known.get(prefix.name) is not prefix]


def _miscounted_prefixes(state: SchedulerState) -> list[tuple[str, int, int]]:
    n = Counter(function.prefix for function in state.functions.values())
    items = state.prefixes.items()
    return [(name, p.n_functions, n[p]) for name, p in items if p.n_functions != n[p]]


def _keeping(state: SchedulerState) -> list[ClientHandle]:
    wanting = (client for task in state.tasks.values() for client in task.wanted_by)
    return [*dict.fromkeys((*state.clients.values(), *wanting))]


def _miscounted_functions(state: SchedulerState) -> list[tuple[str, int, int]]:
    n = Counter(task.group.function for task in state.tasks.values())
    for client in _keeping(state):
        n.update(client.functions.keys())
    functions = state.functions.values()
    return [(f.prefix.name, f.n_tasks, n[f]) for f in functions if f.n_tasks != n[f]]


def _unlike_idle_prefixes(state: SchedulerState) -> list[str]:
    used = {function.prefix for function in state.functions.values()}
    idle, shown = state.prefixes.idle, state.prefixes.shown
    items = state.prefixes.items()
    return [name for name, p in items if (p in idle) != (p not in used and name not in shown)]


def _sum_of_prefixes(state: SchedulerState, field: str) -> int:
    prefixes = [prefix for _, prefix in state.prefixes.items()]
    return sum(getattr(prefix, field) for prefix in (*prefixes, state.prefixes.dropped))


def _unlike_idle_functions(state: SchedulerState) -> list[str]:
    used = {task.group.function for task in state.tasks.values()}
    used.update(*(client.functions for client in _keeping(state)))
    functions = state.functions.values()
    return [f.prefix.name for f in functions if (f in state.idle_functions) == (f in used)]


def _miscounted_tasks(
    state: SchedulerState, counted: str, states: Iterable[str]
) -> list[tuple[str, int, int]]:
    """Return the prefixes whose count differs from the number of their tasks in these states."""
    n = Counter(task.group.prefix for task in tasks_in(state, *states))
    found = [(name, getattr(p, counted), n[p]) for name, p in state.prefixes.items()]
    return [(name, has, expected) for name, has, expected in found if has != expected]


#: {what holds: what breaks it}
FUNCTION_INVARIANTS: Final[dict[str, Callable[[SchedulerState], Iterable[object]]]] = {
    "prefixes are filed by name": lambda s: [n for n, p in s.prefixes.items() if p.name != n],
    "the estimate of a prefix has a minimum": lambda s: [
        name for name, prefix in s.prefixes.items() if prefix.estimate_ns < MIN_DURATION_NS
    ],
    "prefixes of functions are known": _unknown_prefixes,
    "n_functions counts the functions of a prefix": _miscounted_prefixes,
    "a prefix is idle iff it has no function and is not shown": _unlike_idle_prefixes,
    "a prefix shares a series iff it is not shown": lambda s: [
        name
        for name, prefix in s.prefixes.items()
        if (prefix.series is s.prefixes.other) != (name not in s.prefixes.shown)
    ],
    "few prefixes are shown": lambda s: unless(
        len(s.prefixes.shown) <= MAX_SHOWN, len(s.prefixes.shown)
    ),
    "active lists the prefixes with unfinished tasks": lambda s: [
        name
        for name, prefix in s.prefixes.items()
        if prefix.n_unfinished and prefix not in s.prefixes.active
    ],
    "active prefixes are known": lambda s: [
        p.name for p in s.prefixes.active if dict(s.prefixes.items()).get(p.name) is not p
    ],
    "n_before is the sum over all prefixes": lambda s: unless(
        s.prefixes.n_before == _sum_of_prefixes(s, "n_before"), s.prefixes.n_before
    ),
    "n_failed_before is the sum over all prefixes": lambda s: unless(
        s.prefixes.n_failed_before == _sum_of_prefixes(s, "n_failed_before"),
        s.prefixes.n_failed_before,
    ),
    "compute_ns is the sum over all prefixes": lambda s: unless(
        s.prefixes.compute_ns == _sum_of_prefixes(s, "compute_ns"), s.prefixes.compute_ns
    ),
    "tasks_completed is the sum of n_finished over all prefixes": lambda s: unless(
        s.counters.tasks_completed == _sum_of_prefixes(s, "n_finished"), s.counters.tasks_completed
    ),
    "n_failed is the sum over all prefixes": lambda s: unless(
        s.counters.n_failed == _sum_of_prefixes(s, "n_failed"), s.counters.n_failed
    ),
    "functions are filed by id": lambda s: [
        f.prefix.name for id, f in s.functions.items() if f.function_id != id
    ],
    "functions of tasks are known": lambda s: [
        t
        for t in tasks_in(s)
        if s.functions.get(t.group.function.function_id) is not t.group.function
    ],
    "function.n_tasks counts the tasks, and clients that keep it": _miscounted_functions,
    "a client that was refused keys keeps functions": lambda s: [
        c for c in s.clients.values() if c.refused and not c.functions
    ],
    "a function is idle iff no task uses it and no client keeps it": _unlike_idle_functions,
    "workers of a function are registered": lambda s: [
        ws for f in s.functions.values() for ws in f.workers if s.workers.get(ws.peer) is not ws
    ],
    "idle functions are known": lambda s: [
        f.prefix.name for f in s.idle_functions if s.functions.get(f.function_id) is not f
    ],
    "idle functions are few": lambda s: unless(
        len(s.idle_functions) <= s.idle_functions.max_n, len(s.idle_functions)
    ),
    "idle_functions_nbytes is the sum of their blobs": lambda s: unless(
        s.idle_functions.nbytes == sum(blob_nbytes(f.blob) for f in s.idle_functions),
        s.idle_functions.nbytes,
    ),
    "n_unfinished counts the active tasks of a prefix": lambda s: _miscounted_tasks(
        s, "n_unfinished", ACTIVE
    ),
    "n_processing counts the tasks of a prefix at workers": lambda s: _miscounted_tasks(
        s, "n_processing", (PROCESSING,)
    ),
}
