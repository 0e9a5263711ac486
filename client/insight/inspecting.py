"""Asks what the cluster holds and does: the answers to `who_has`, `call_stack` and the like.

Workers are asked at the same time, each through the scheduler. A worker that does not answer in
time, or dies meanwhile, has an error in the place of its answer; the other answers are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from ...protocol.errors import ForeignFuture, QuestionFailed, UnknownWorker
from ...protocol.values.exceptions import add_note
from ...protocol.wire.address import names_of_process
from ...protocol.wire.answers import part_of, reading
from ...protocol.wire.keys import Key, key_of, text_of
from ...protocol.wire.message import MAX_NUMBER
from ...protocol.wording import listed
from ..core.tasks import FutureState
from ..future import Future
from ..modes import on_loop
from ..shell.engine import Engine
from .asking import ask, ask_about, ask_each
from .cluster_info import describe_workers

#: A worker that has not answered after this is reported as silent: perhaps its task holds the
#: interpreter lock.
TIMEOUT_S: Final = 10.0
#: Names of workers in an error.
_N_NAMED: Final = 10


async def find_workers(
    engine: Engine, workers: str | Iterable[str] | None
) -> dict[str, dict[str, Any]]:
    """Return `{address: description}` of workers, named by address, name or host; None = all.

    Raises:
        UnknownWorker: no connected worker has this name.
        TypeError: `workers` is something else.
    """
    return choose_workers(await describe_workers(engine), names_of(workers))


def choose_workers(
    found: dict[str, dict[str, Any]], wanted: set[str] | None
) -> dict[str, dict[str, Any]]:
    """Return those of `{address: description}` with a wanted name, as tasks name them; None = all.

    Raises:
        UnknownWorker: no connected worker has this name.
    """
    if wanted is None:
        return found
    chosen: dict[str, dict[str, Any]] = {}
    unknown = set(wanted)
    for address, worker in found.items():
        its_names = names_of_process(address, worker["host"]) | {worker["name"]}
        if not its_names.isdisjoint(wanted):
            chosen[address] = worker
            unknown -= its_names
    if unknown:
        missing = " or ".join(map(repr, sorted(unknown)))
        names = [worker["name"] for worker in found.values()]
        there = listed(names[:_N_NAMED], len(names)) or "none"
        raise UnknownWorker(
            f"no connected worker has the name, address or host {missing}; "
            f"connected workers: {there}"
        )
    return chosen


def names_of(workers: str | Iterable[str] | None) -> set[str] | None:
    """Return the names in `workers=`.

    Raises:
        TypeError: it is neither a str nor an iterable of them.
    """
    if workers is None:
        return None
    if isinstance(workers, str):
        return {workers}
    is_several = isinstance(workers, Iterable) and not isinstance(workers, (bytes, bytearray))
    names: set[Any] = set(workers) if is_several else {workers}
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"workers= is the address, name or host of a worker, or several; not {name!r}"
            )
    return names


def keys_of(engine: Engine, futures: Any, call: str) -> list[str]:
    """Return the keys, as text, of futures and keys in a container or an iterable.

    Raises:
        ForeignFuture: one is of another client.
        TypeError: there are other objects.
    """
    if isinstance(futures, (Future, FutureState, str)):
        futures = [futures]
    elif isinstance(futures, tuple) and not any(isinstance(x, (Future, tuple)) for x in futures):
        futures = [futures]  # the key of a part of a collection
    elif isinstance(futures, dict):
        futures = futures.values()
    elif not isinstance(futures, Iterable) or isinstance(futures, (bytes, bytearray)):
        raise TypeError(f"{call} takes futures and keys, not {type(futures).__name__}")
    keys: dict[str, None] = {}
    for item in futures:
        if isinstance(item, Future):
            if item._engine is not engine:
                raise ForeignFuture(
                    f"{call} takes futures of this client, {engine.name}; that of {item.key!r} is "
                    f"of another one, {item._engine.name}: use that client, or pass the key"
                )
            keys[item._state.key] = None
        elif isinstance(item, list):
            keys |= dict.fromkeys(keys_of(engine, item, call))
        else:
            keys[text_of(item)] = None
    return list(keys)


@on_loop
async def nthreads(engine: Engine, workers: str | Iterable[str] | None = None) -> dict[str, int]:
    """Return `{address: number of threads}` of workers.

    Args:
        workers: their names, hosts or addresses; None = all.

    Raises:
        UnknownWorker: no connected worker has this name.
    """
    found = await find_workers(engine, workers)
    return {address: worker["nthreads"] for address, worker in found.items()}


# --- Where results are ----------------------------------------------------------------------------


@on_loop
async def who_has(engine: Engine, futures: Any = None) -> dict[Key, tuple[str, ...]]:
    """Return `{key: addresses of the workers that hold its result}`.

    Args:
        futures: futures or keys; None = all results, as the workers list them.

    Raises:
        ForeignFuture: a future is of another client.
        NoAnswer: without futures, a worker did not answer.

    Example:
        >>> future = client.submit(pow, 2, 10)
        >>> done, _ = weft.wait(future)
        >>> [len(addresses) for addresses in client.who_has(future).values()]
        [1]
    """
    found: dict[Key, tuple[str, ...]] = {}
    if futures is None:
        for address, keys in _complete(await has_what.on(engine), "who_has").items():
            for key in keys:
                found[key] = (*found.get(key, ()), address)
        return found
    async for page in ask_about(engine, "holders", keys_of(engine, futures, "who_has")):
        addresses = page["workers"]
        for key, places in zip(page["keys"], page["holders"], strict=True):
            found[key_of(key)] = tuple(addresses[place] for place in places)
    return found


@on_loop
async def has_what(engine: Engine, workers: str | Iterable[str] | None = None) -> dict[str, Any]:
    """Return `{address: keys of the results that this worker holds}`.

    Args:
        workers: their names, hosts or addresses; None = all.
    """
    found = await find_workers(engine, workers)
    return await _ask_workers(
        engine, found, "held", lambda page: map(key_of, part_of(page, "keys", list)), tuple
    )


def _complete(answers: dict[str, Any], call: str) -> dict[str, Any]:
    """Return the answers of all workers.

    Raises:
        QuestionFailed: one has none.
    """
    errors = [answer for answer in answers.values() if isinstance(answer, QuestionFailed)]
    if errors:
        add_note(
            errors[0],
            f"weft: {len(errors)} of {len(answers)} workers gave no answer; {call}(futures) asks "
            "the scheduler alone, and has_what() returns what the other workers hold",
        )
        raise errors[0]
    return answers


@on_loop
async def nbytes(engine: Engine, keys: Any = None, summary: bool = True) -> dict[Any, int]:
    """Return the sizes of results on the cluster, in bytes, each result counted once.

    Args:
        keys: keys or futures; None = all.
        summary: `{name of the function: bytes}`; False = `{key: bytes}`.

    Raises:
        NoAnswer: without keys, a worker did not answer.
    """
    sizes: dict[str, int] = {}
    if keys is None:
        found = await find_workers(engine, None)
        answers = await _ask_workers(engine, found, "held", _sizes_in, dict)
        for of_one in _complete(answers, "nbytes").values():
            sizes |= of_one
    else:
        async for page in ask_about(engine, "sizes", keys_of(engine, keys, "nbytes")):
            sizes.update(_sizes_in(page))
    if not summary:
        return {key_of(key): n for key, n in sizes.items()}
    totals: dict[str, int] = {}
    for key, n in sizes.items():
        name = name_in(key_of(key))
        totals[name] = totals.get(name, 0) + n
    return totals


def _sizes_in(page: dict[str, Any]) -> Iterator[tuple[str, int]]:
    return zip(page["keys"], page["nbytes"], strict=True)


def name_in(key: Key) -> str:
    """Return the name of the function or collection in a key: "inc" of "inc-1a2b"."""
    while isinstance(key, tuple):
        if not key:
            return ""
        key = key[0]
    name, dash, rest = str(key).rpartition("-")
    is_made = bool(dash) and bool(rest) and not set(rest) - set("0123456789abcdef")
    return name if is_made and name else str(key)


@on_loop
async def processing(engine: Engine, workers: str | Iterable[str] | None = None) -> dict[str, Any]:
    """Return `{address: keys of the tasks that this worker was given and has not finished}`.

    Args:
        workers: their names, hosts or addresses; None = all.
    """
    found = await find_workers(engine, workers)
    keys: dict[str, list[Key]] = {address: [] for address in found}
    arguments = {} if workers is None else {"workers": [w["id"] for w in found.values()]}
    async for page in ask(engine, "processing", arguments):
        for address, some in page["processing"]:
            keys.setdefault(address, []).extend(map(key_of, some))
    return {address: tuple(of_one) for address, of_one in keys.items()}


# --- What happens ---------------------------------------------------------------------------------


@on_loop
async def story(engine: Engine, *keys: Any) -> list[tuple[Key, str, float]]:
    """Return what happened to tasks lately: `[(key, what, seconds since 1970), ...]`.

    The scheduler remembers the latest 100 000 events of all tasks.

    Args:
        keys: keys or futures.
    """
    now = time.time()
    wanted = keys_of(engine, list(keys), "story")
    lines: list[tuple[float, Key, str]] = []
    async for page in ask_about(engine, "story", wanted):
        lines += [(now - age_s, key_of(key), what) for age_s, key, what in page["story"]]
    lines.sort(key=lambda line: line[0])
    return [(key, what, when) for when, key, what in lines]


@on_loop
async def call_stack(engine: Engine, futures: Any = None, keys: Any = None) -> dict[str, Any]:
    """Return `{address: {key: frames}}` of tasks that run now, outermost frame first.

    Args:
        futures: futures or keys of tasks; None = all that run.
        keys: the same.
    """
    wanted: list[str] | None = None
    if futures is not None or keys is not None:
        given = [keys_of(engine, one, "call_stack") for one in (futures, keys) if one is not None]
        wanted = [key for some in given for key in some]
    found = await find_workers(engine, None)
    if wanted is not None:
        running: set[str] = set()
        async for page in ask_about(engine, "states", wanted):
            running |= {worker for _, worker in page["processing"]}
        found = {a: worker for a, worker in found.items() if worker["id"] in running}

    def stacks_in(page: dict[str, Any]) -> list[tuple[Key, tuple[str, ...]]]:
        stacks = page["stacks"]
        return [(key_of(k), tuple(of)) for k, of in stacks if wanted is None or k in wanted]

    answers = await _ask_workers(engine, found, "call_stack", stacks_in, dict)
    return {address: answer for address, answer in answers.items() if answer}


@on_loop
async def get_scheduler_logs(engine: Engine, n: int | None = None) -> list[tuple[str, str]]:
    """Return the latest log lines of the scheduler, oldest first: `[(level, line), ...]`.

    Args:
        n: how many; None = all that are kept, about 1 MiB.
    """
    rows = [row async for page in ask(engine, "logs", _last(n)) for row in page["records"]]
    return [line_of(row) for row in rows]


@on_loop
async def get_worker_logs(
    engine: Engine,
    n: int | None = None,
    workers: str | Iterable[str] | None = None,
    nanny: bool = False,
) -> dict[str, Any]:
    """Return `{address: [(level, line), ...]}`: the latest log lines of workers.

    They have what weft and the tasks log with `logging`, from the level on at which the worker
    logs. With `Client(processes=False)` there are none: it is the program's own logging.

    Args:
        n: how many of each; None = all that are kept, about 1 MiB.
        workers: their names, hosts or addresses; None = all.
        nanny: the log of each worker's supervisor instead.
    """
    arguments = _last(n)
    found = await find_workers(engine, workers)
    return await _ask_workers(
        engine, found, "logs", lambda page: map(line_of, page["records"]), list, arguments, nanny
    )


def line_of(row: list[Any]) -> tuple[str, str]:
    """Return level and line of a log record, as `[when, level, logger, text]`."""
    when, level, logger, text = row
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    return level, f"{clock},{int(when % 1 * 1000):03d} - {logger} - {level} - {text}"


@on_loop
async def get_versions(
    engine: Engine, check: bool = False, packages: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return the versions of Python and packages: of the scheduler, each worker, the client.

    Args:
        check: raise ValueError if a package has not the same version everywhere.
        packages: names of packages beside those that weft always looks at.
    """
    from ...protocol.host.versions import process_versions

    is_list = packages is None or (isinstance(packages, Iterable) and not isinstance(packages, str))
    names: list[Any] = list(packages or ()) if is_list else [None]
    if not all(isinstance(name, str) for name in names):
        raise TypeError("packages= is a list of names of packages")
    arguments = {"packages": names}
    found = await find_workers(engine, None)

    def checked(items: list[Any]) -> dict[str, Any]:
        info = dict(items)
        part_of(info, "packages", dict)
        return info

    scheduler: dict[str, Any] = {}
    async for page in ask(engine, "versions", arguments):
        scheduler |= page
    answers = {
        "scheduler": scheduler,
        "workers": await _ask_workers(engine, found, "versions", dict.items, checked, arguments),
        "client": process_versions(names),
    }
    if check:
        _check_versions(answers)
    return answers


def _check_versions(answers: dict[str, Any]) -> None:
    """Raise ValueError if a package has not the same version in all processes."""
    processes = {"client": answers["client"], "scheduler": answers["scheduler"]}
    processes |= {a: w for a, w in answers["workers"].items() if not isinstance(w, QuestionFailed)}
    mine = answers["client"]["packages"]
    lines = []
    for name in mine:
        by_version: dict[str, list[str]] = {}
        for process, found in processes.items():
            version = found["packages"].get(name) or "none"
            by_version.setdefault(version, []).append(process)
        if len(by_version) > 1:
            parts = [f"{version} on {', '.join(of)}" for version, of in by_version.items()]
            lines.append(f"{name}: {'; '.join(parts)}")
    if lines:
        raise ValueError(
            "processes of this cluster have different versions of packages; install the same ones "
            "on all machines:\n  " + "\n  ".join(lines)
        )


# --- Asking workers -------------------------------------------------------------------------------


async def _ask_workers(
    engine: Engine,
    found: dict[str, dict[str, Any]],
    name: str,
    read: Callable[[dict[str, Any]], Iterable[Any]],
    made: Callable[[list[Any]], Any],
    arguments: dict[str, Any] | None = None,
    nanny: bool = False,
) -> dict[str, Any]:
    """Ask workers at the same time; return `{address: answer, or error}`.

    Args:
        engine: the client's.
        found: `{address: description}` of the workers.
        name: of the question.
        read: returns the rows of a page.
        made: returns the answer that has these rows.
        arguments: of the question.
        nanny: ask the supervisors of the workers in their place.
    """

    async def ask_one(address: str) -> Any:
        worker = found[address]
        to, process = worker["id"], f"worker {worker['name']}"
        if nanny:
            to, process = worker["nanny"], f"the supervisor of {process}"
            if not to:
                why = "it has none, because it lives in the program's own process"
                raise QuestionFailed(why, process)
        rows: list[Any] = []
        async for page in ask(engine, name, arguments, TIMEOUT_S, to=to, process=process):
            with reading(process):
                rows += read(page)
        with reading(process):
            return made(rows)

    return await ask_each(found, ask_one)


def _last(n: int | None) -> dict[str, Any]:
    if n is None:
        return {}
    if type(n) is not int or n < 0:
        raise ValueError(f"n= is a whole number >= 0, or None for all, not {n!r}")
    return {"n": min(n, MAX_NUMBER)}
