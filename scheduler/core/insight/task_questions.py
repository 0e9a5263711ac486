"""Questions about tasks, by key; and about the tasks that workers have been given."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ....protocol.wire.failure import Failure
from ....protocol.wire.payload import nbytes_of
from ....protocol.wire.question_arguments import BadArgument, Info, Page, keys_of, position_of
from ..ends.attempt_ends import attempt_ends
from ..ends.measured import latest_use
from ..records.tasks import ERRED, MEMORY, PROCESSING, SchedulerTask
from .explaining import explain, why
from .timings import timings_of

if TYPE_CHECKING:
    from ..records.peers import WorkerHandle
    from ..state import SchedulerState

#: Holders that are listed in one page, about.
N_HOLDERS: Final = 220
#: Keys of processing tasks in one page.
N_PROCESSING: Final = 900
#: Keys that one page of a story looks at, and its lines.
N_LOOKED_AT: Final = 2500
N_LINES: Final = 300
#: Tasks that are looked up for one page: those of a million are seldom in the processor's cache.
N_LOOKED_UP: Final = 150
#: Tasks that are described in one page.
N_DESCRIBED: Final = 20
#: Other tasks, workers and clients that are named in the description of a task.
N_NAMED: Final = 20


def ask_holders(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the workers that hold the results of keys; [] of one that is not in memory."""
    keys = keys_of(arguments)
    start = i = position_of(page)
    places: dict[WorkerHandle, int] = {}
    holders: list[list[int]] = []
    left = N_HOLDERS
    for key in keys[start:]:
        if left <= 0:
            break
        task = state.tasks.get(key)
        replicas = () if task is None else task.replicas
        holders.append([places.setdefault(ws, len(places)) for ws in replicas])
        left -= 1 + len(replicas)
        i += 1
    info = {
        "keys": keys[start:i],
        "holders": holders,
        "workers": [ws.address for ws in places],
    }
    return info, str(i) if i < len(keys) else ""


def ask_sizes(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the bytes of the results of keys, those that are in memory."""
    found, next_page = _look_up(state, arguments, page, N_LOOKED_UP)
    kept = [task for task in found if task.state == MEMORY]
    info = {"keys": [task.key for task in kept], "nbytes": [task.nbytes for task in kept]}
    return info, next_page


def ask_states(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return {key: state} of the keys that the scheduler knows, and where the processing are."""
    found, next_page = _look_up(state, arguments, page, N_LOOKED_UP)
    places = {t.key: t.worker.worker_id for t in found if t.worker is not None}
    return {
        "keys": [task.key for task in found],
        "states": [task.state for task in found],
        "processing": [[key, worker] for key, worker in places.items()],
    }, next_page


def ask_processing(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return the keys that workers have been given and have not finished, by worker.

    `workers` are the ids of the wanted ones; without it, of all. The page names a worker by its
    connection and the last attempt there: attempts only grow.
    """
    wanted = arguments.get("workers")
    if wanted is not None and (type(wanted) is not list or not set(map(type, wanted)) <= {str}):
        raise BadArgument("workers= is a list of ids")
    ids = None if wanted is None else set(wanted)
    peer_text, _, attempt_text = page.partition(".")
    first, attempt = position_of(peer_text), position_of(attempt_text)
    rows: list[list[Any]] = []
    left = N_PROCESSING
    for peer in filter((first - 1).__lt__, state.workers):
        ws = state.workers[peer]
        if ids is not None and ws.worker_id not in ids:
            continue
        if left <= 0:
            return {"processing": rows}, f"{peer}.0"
        after = attempt if peer == first else 0
        attempts = list(islice(filter(after.__lt__, ws.processing), left))
        rows.append([ws.address, [ws.processing[attempt].key for attempt in attempts]])
        left -= 1 + len(attempts)
        if attempts and left <= 0 and attempts[-1] != next(reversed(ws.processing)):
            return {"processing": rows}, f"{peer}.{attempts[-1]}"
    return {"processing": rows}, ""


def ask_story(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return what happened to keys lately: [[seconds ago, key, what], ...], oldest first."""
    wanted = set(keys_of(arguments))
    found, following = state.story.search(wanted, position_of(page), N_LOOKED_AT, N_LINES)
    lines = [[state.now - when, key, what] for when, key, what in found]
    return {"story": lines}, str(following) if following else ""


def ask_attempts(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return how attempts ended: [[key, [[worker, end], ...]], ...]; and {key: options}."""
    keys, next_page = _next_keys(arguments, page, N_DESCRIBED)
    ends = [[key, [list(end) for end in attempt_ends(state, key)]] for key in keys]
    found = [state.tasks[key] for key in keys if key in state.tasks]
    shown = {task.key: options for task in found if (options := task.group.options.shown)}
    return {"attempts": ends, **({"options": shown} if shown else {})}, next_page


def ask_failures(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return how tasks have failed: [[key, kind, key of the first to fail, traceback], ...].

    A traceback is as it was printed where the task raised, "" if nothing was raised.
    """
    found, next_page = _look_up(state, arguments, page, 1)
    failures = [(task.key, failure) for task in found if (failure := task.failure) is not None]
    return {"failures": [[key, *_described(failure)] for key, failure in failures]}, next_page


def _described(failure: Failure) -> tuple[str, str, str]:
    """Return the kind of a failure, its key, and its traceback. Its items come from a worker."""
    kind, key, *items = failure
    text = items[3] if kind == "exception" and len(items) > 3 else ""
    return str(kind), str(key), text if isinstance(text, str) else ""


def ask_measured(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Return what the last attempts of tasks have used that have ended: {key: row}.

    A row is `MeasuredUse.row`. Of an attempt that was too short to be measured only the time is
    known, as long as it is one of the latest; others are left out.
    """
    keys, next_page = _next_keys(arguments, page, N_LOOKED_UP)
    found: list[list[Any]] = []
    for key in keys:
        task, use = state.tasks.get(key), latest_use(state).get(key)
        attempt = 0
        if task is not None and task.state == ERRED:
            attempt = state.failed_at[task][1] if task in state.failed_at else 0
        elif task is not None and task.state != PROCESSING:
            attempt = task.attempt
        if attempt and (use is None or use.attempt != attempt):
            timing = timings_of(state).of(attempt)
            if timing is not None:
                found.append([key, [timing.duration_us, None, None, None, None, True]])
        elif use is not None:
            found.append([key, use.row()])
    return {"measured": found}, next_page


def ask_tasks(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Describe tasks by key; keys that the scheduler does not know are left out."""
    found, next_page = _look_up(state, arguments, page, N_DESCRIBED)
    return {"tasks": [_describe(state, task) for task in found]}, next_page


def ask_explanations(state: SchedulerState, arguments: Info, page: str) -> Page:
    """Explain tasks by key: why they are where they are, and where their time went."""
    found, next_page = _look_up(state, arguments, page, 1)
    return {"explanations": [explain(state, task) for task in found]}, next_page


def _look_up(
    state: SchedulerState, arguments: Info, page: str, n: int
) -> tuple[list[SchedulerTask], str]:
    """Return the tasks of the next `n` keys, as far as they are known, and the next page."""
    keys, next_page = _next_keys(arguments, page, n)
    return [task for key in keys if (task := state.tasks.get(key)) is not None], next_page


def _next_keys(arguments: Info, page: str, n: int) -> tuple[list[str], str]:
    keys = keys_of(arguments)
    start = position_of(page)
    end = start + n
    return keys[start:end], str(end) if end < len(keys) else ""


def _describe(state: SchedulerState, task: SchedulerTask) -> Info:
    group = task.group
    worker = task.worker
    return {
        "key": task.key,
        "function": group.prefix.name,
        "state": task.state,
        "why": why(state, task).text,
        "worker": "" if worker is None else worker.name,
        "worker_address": "" if worker is None else worker.address,
        "attempt": task.attempt,
        "nbytes": task.nbytes if task.state == MEMORY else None,
        "holders": [ws.name for ws in task.replicas[:N_NAMED]],
        "n_holders": len(task.replicas),
        "inputs": _keys(task.dependencies),
        "n_inputs": len(task.dependencies),
        "dependents": _keys(task.dependents or ()),
        "n_dependents": len(task.dependents or ()),
        "wanted_by": [client.name for client in task.wanted_by[:N_NAMED]],
        "span": list(group.options.span),
        "attempts": [list(end) for end in attempt_ends(state, task.key)],
        "restrictions": group.task_class.restrictions,
        "timeout_s": group.options.timeout_us / 1e6,
        "args_nbytes": nbytes_of(task.args),
    }


def _keys(tasks: Any) -> list[str]:
    return [task.key for task in islice(tasks, N_NAMED)]
