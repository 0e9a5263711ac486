"""The conditions of calls beside their arguments: how other tasks are to end, and times.

A call reads the states of futures when it is made: what has ended already is no condition any more.
The others are watched by the scheduler. Their futures are kept until the new task has ended, so
that they are submitted again with it if the scheduler is started again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ...protocol.amounts import CORES, MEMORY
from ...protocol.durations import moment_of, seconds_of
from ...protocol.errors import ForeignFuture
from ...protocol.wire.columns import MAX_SIZE, MAX_TAG_CHARS
from ...protocol.wire.options import ENDS, MAX_CONDITIONS, is_queue_name
from ...protocol.wording import nearest
from ..core.events import Watch
from ..core.features.conditions import is_met
from ..core.tasks import Watcher
from ..future import Future

if TYPE_CHECKING:
    from ...protocol.wire.options import TaskOptions
    from ..shell.engine import Engine

_NO_WORKER: Final = "no_worker_timeout"
_QUEUE: Final = "queue"
_CATEGORY: Final = "category"
#: Those that change nothing but where a task runs, and how long it waits for that.
_OF_WORKERS: Final = {_NO_WORKER, CORES, MEMORY, _QUEUE, _CATEGORY}
#: {keyword: None}: a call without conditions.
NO_CONDITIONS: Final[dict[str, Any]] = dict.fromkeys(
    (
        *("after", "start_at", "start_after", "ttl", "deadline", "detached"),
        *(_NO_WORKER, CORES, MEMORY, _QUEUE, _CATEGORY),
    )
)


def is_conditional(conditions: Mapping[str, Any]) -> bool:
    """Return whether a call is to run at its own time, so that no equal call stands for it."""
    return conditions is not NO_CONDITIONS and any(
        value is not None for name, value in conditions.items() if name not in _OF_WORKERS
    )


def futures_in_conditions(after: object) -> list[Future]:
    """Return the futures in the value of `after=`; what is none of its form has none."""
    if not isinstance(after, Mapping):
        return []
    return [future for value in after.values() for future in _futures_of(value)]


def keep(engine: Engine, futures: list[Future], conditions: Mapping[str, Any]) -> list[Future]:
    """Keep the futures in conditions until those of a call have ended; return the latter."""
    others = futures_in_conditions(conditions["after"])
    if others and futures:
        engine.post(
            Watch(_KeptFutures(others, len(futures)), [future._state for future in futures])
        )
    return futures


class _KeptFutures(Watcher):
    """Keeps futures until so many states have ended, or are released."""

    __slots__ = ("_futures", "_n_left")

    def __init__(self, futures: list[Future], n_left: int) -> None:
        super().__init__(wants_data=False)
        self._futures = futures
        self._n_left = n_left

    def on_ready(self, items: list[Any]) -> None:
        """Let go of them with the last state."""
        self._n_left -= len(items)
        if self._n_left <= 0:
            self._futures = []


def check_futures(engine: Engine, conditions: Mapping[str, Any]) -> None:
    """Refuse futures of other clients: these may not have submitted them yet.

    Raises:
        ForeignFuture: one belongs to another client.
    """
    for future in futures_in_conditions(conditions["after"]):
        if future._engine is not engine:
            raise ForeignFuture(
                f"the future of {future.key!r} in after= belongs to another client; pass it in a "
                "queue or variable, or submit both calls with one client"
            )


# -- what is read of the values --------------------------------------------------------------------
def read_after(after: Any) -> dict[str, Any]:
    """Read `after=`: {state: a future, or several}."""
    if not isinstance(after, Mapping):
        raise TypeError(
            'after= maps states to futures, as {"done": future, "failed": [one, another]} does; '
            f"this is {type(after).__name__}"
        )
    unmet: list[list[str]] = []
    for name, value in after.items():
        how = "ended" if name == "any" else name
        if how not in ENDS:
            close = nearest(name, ENDS) if isinstance(name, str) else ""
            hint = f"; did you mean {close!r}?" if close else ""
            raise ValueError(f"after= has the state {name!r}; it is one of {', '.join(ENDS)}{hint}")
        for future in _futures_of(value):
            if not isinstance(future, Future):
                raise TypeError(
                    f"after= maps {name!r} to futures of this client, not to "
                    f"{type(future).__name__}"
                )
            if not is_met(future._state, how):
                unmet.append([how, future._state.key])
    if len(unmet) > MAX_CONDITIONS:
        raise ValueError(
            f"after= names {len(unmet)} futures; the limit is {MAX_CONDITIONS}. Let one task read "
            "them, and name that"
        )
    return {"conditions": unmet} if unmet else {}


def _futures_of(value: Any) -> Iterable[Any]:
    is_one = isinstance(value, (Future, str)) or not isinstance(value, Iterable)
    return [value] if is_one else value if isinstance(value, (list, tuple, set)) else [*value]


def _read_start_at(value: Any) -> dict[str, Any]:
    return {"start_ms": _in_ms(moment_of(value, "start_at"))}


def _read_start_after(value: Any) -> dict[str, Any]:
    return {"start_ms": _in_ms(time.time() + seconds_of(value, "start_after"))}


def _read_ttl(value: Any) -> dict[str, Any]:
    return {"begin_by_ms": _in_ms(time.time() + seconds_of(value, "ttl", least=1e-3))}


def _read_no_worker_timeout(value: Any) -> dict[str, Any]:
    return {"no_worker_ms": _in_ms(seconds_of(value, _NO_WORKER))}


def _read_deadline(value: Any) -> dict[str, Any]:
    try:
        when_s = moment_of(value, "deadline")
    except (TypeError, ValueError):
        when_s = time.time() + seconds_of(value, "deadline")
    late_s = time.time() - when_s
    if late_s >= 0:
        raise ValueError(f"deadline={value!r:.80} is over: the task could only be cancelled")
    return {"end_by_ms": _in_ms(when_s)}


def _in_ms(when_s: float) -> int:
    return min(max(round(when_s * 1000), 1), MAX_SIZE)


def _read_detached(value: Any) -> dict[str, Any]:
    if type(value) is not bool:
        raise TypeError(f"detached= is True or False, not {value!r:.80}")
    return {"detached": value} if value else {}


def _read_queue(value: Any) -> dict[str, Any]:
    if type(value) is not str or not is_queue_name(value):
        raise TypeError(
            f"queue= is the name of a queue of jobs, 1 to {MAX_TAG_CHARS} characters, no NUL, not "
            f"{value!r:.80}; to pass it to the function, use functools.partial"
        )
    return {"job_queue": value}


def check_not_held(options: TaskOptions, what: str) -> None:
    """Refuse a queue or a category of what begins at once, also from an annotation.

    Raises:
        TypeError: one is given.
    """
    given = {"queue=": options.job_queue, "category=": options.category}
    if names := [name for name, value in given.items() if value]:
        raise held_at_once(names, what)


def held_at_once(names: list[str], what: str) -> TypeError:
    """Return the error of options by which calls are held back that begin at once."""
    text = f"{' and '.join(names)} cannot be given for {what}, also not by dask.annotate"
    if "category=" in names:
        text += (
            ": a category gives its calls memory one by one, and limits them by what others have "
            "used; give memory= and timeout= instead"
        )
    return TypeError(text)


#: {keyword: what reads its value}
READERS: Final[dict[str, Callable[[Any], dict[str, Any]]]] = {
    "after": read_after,
    "start_at": _read_start_at,
    "start_after": _read_start_after,
    "ttl": _read_ttl,
    "deadline": _read_deadline,
    "detached": _read_detached,
    _NO_WORKER: _read_no_worker_timeout,
    _QUEUE: _read_queue,
}
