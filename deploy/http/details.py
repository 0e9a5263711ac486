"""What the pages of a task and of a worker show, and what a search finds: asked of the scheduler.

What takes more than the right to look is asked with the rights of the visitor (`visiting`), and is
left out where the visitor has none. A part that does not come in time is left out as well: a worker
that answers nothing is no reason to show nothing of it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...protocol.errors import QuestionFailed, WeftError
from ...protocol.wire.payload import Blob, parts_of
from .pickle_text import arguments_text
from .viewer import Viewer, ask_task

if TYPE_CHECKING:
    from .pages import Site
    from .visitor import Visitor

T = TypeVar("T")
Info = dict[str, Any]

#: Arguments that take more bytes are not fetched to be shown.
MAX_ARGUMENTS_NBYTES: Final = 1 << 20
#: Keys of a worker that are shown, log lines of it, and keys that a search finds.
N_KEYS: Final = 50
N_LOG_LINES: Final = 30
N_FOUND: Final = 50
#: A question to a worker may take so long.
_WORKER_TIMEOUT_S: Final = 2.0


async def task_facts(viewer: Viewer, visitor: Visitor, key: str) -> Info:
    """Return all that is known of a task; "stack", "traceback" and "call" for clients only.

    Raises:
        QuestionFailed: the scheduler does not know it.
        TimeoutError, WeftError: the scheduler does not answer.
    """
    facts = await ask_task(viewer, key)
    if facts["state"] == "forgotten":
        return facts
    named = {"keys": [key]}
    explained, ends, measured = await asyncio.gather(
        viewer.ask_all("explanations", named),
        viewer.ask_all("attempts", named),
        viewer.ask_all("measured", named),
    )
    for found in explained["explanations"]:
        facts |= {name: found[name] for name in ("steps", "details", "times", "running_at")}
    facts["options"] = ends.get("options", {}).get(key, {})
    for _, row in measured["measured"]:
        names = ("wall_us", "cpu_us", "peak_nbytes", "read_nbytes", "written_nbytes", "is_shared")
        facts["measured"] = dict(zip(names, row, strict=False))
    if visitor.may_read:
        facts |= await _for_clients(viewer, visitor, key, facts)
    return facts


async def _for_clients(viewer: Viewer, visitor: Visitor, key: str, facts: Info) -> Info:
    found: Info = {}
    named = {"keys": [key]}
    if facts["state"] == "erred":
        answer = await viewer.ask_all("failures", named, visit=visitor.visit)
        for _, kind, culprit, text in answer["failures"]:
            found |= {"failure": kind, "culprit": culprit, "traceback": text}
    if facts["running_at"]:
        worker_id, name = facts["running_at"]
        stacks = await _stacks(viewer, visitor, worker_id, name)
        if stacks is not None and key in stacks:
            found["stack"] = stacks[key]
    # Of one that failed with an input the scheduler sends the call of that input.
    is_own = found.get("culprit", key) == key
    if is_own and 0 < facts["args_nbytes"] <= MAX_ARGUMENTS_NBYTES:
        found |= await _call(viewer, visitor, key)
    return found


async def _call(viewer: Viewer, visitor: Visitor, key: str) -> Info:
    """Return the arguments of a task as text; they are read, and nothing of them is run."""
    try:
        info, blobs = await viewer.ask_blobs("call", {"keys": [key]}, visit=visitor.visit)
    except QuestionFailed:
        return {}
    if len(blobs) < 2 or blobs[1] is None:
        return {}
    return {"call": arguments_text(_beginning(blobs[1]), info["inputs"])}


def _beginning(blob: Blob) -> bytes:
    """Return the pickle of a blob, without what stands beside it."""
    return blob if isinstance(blob, bytes) else bytes(parts_of(blob)[0])


async def _stacks(
    viewer: Viewer, visitor: Visitor, worker_id: str, name: str
) -> dict[str, list[str]] | None:
    """Return the frames of what a worker runs, by key; None = it does not answer."""
    asking = viewer.ask_all(
        "call_stack", {}, _WORKER_TIMEOUT_S, to=worker_id, process=name, visit=visitor.visit
    )
    answer = await _or_none(asking)
    return None if answer is None else dict(answer["stacks"])


async def _or_none(asking: Awaitable[T]) -> T | None:
    try:
        return await asking
    except (TimeoutError, WeftError):
        return None


async def worker_facts(site: Site, visitor: Visitor, name: str) -> Info | None:
    """Return all that is known of a worker; "stacks" and "log" for clients only. None = no such.

    Args:
        site: of the pages.
        visitor: who asks.
        name: its address, id or name.

    Raises:
        TimeoutError, WeftError: the scheduler does not answer.
    """
    workers = await site.watch.workers.get()
    found = find_worker(workers, name)
    if found is None:
        return None
    viewer, worker_id = site.viewer, found["id"]
    facts: Info = {**found}
    at_worker: Info = {"to": worker_id, "process": found["name"], "timeout_s": _WORKER_TIMEOUT_S}
    given, versions, process = await asyncio.gather(
        viewer.ask_all("processing", {"workers": [worker_id]}),
        _or_none(viewer.ask_all("versions", **at_worker)),
        _or_none(viewer.ask_all("process", **at_worker)),
    )
    keys = [key for _, some in given["processing"] for key in some]
    facts |= {"n_given": len(keys), "given": keys[:N_KEYS]}
    facts |= {"versions": versions, "process": process}
    if visitor.may_read:
        stacks, log = await asyncio.gather(
            _stacks(viewer, visitor, worker_id, found["name"]),
            _or_none(viewer.ask_all("logs", {"n": N_LOG_LINES}, visit=visitor.visit, **at_worker)),
        )
        lines = None if log is None else list(map(_line, log["records"]))
        facts |= {"stacks": stacks, "log": lines}
    return facts


def _line(record: Sequence[Any]) -> str:
    """Return a record of a log in one line, with the time of this machine's clock."""
    when, level, logger, text = record[:4]
    return f"{time.strftime('%H:%M:%S', time.localtime(when))} {level} {logger}: {text}"


def find_worker(workers: Mapping[str, Info], name: str) -> Info | None:
    """Return the worker of an address, an id, or a name, with its address."""
    if name in workers:
        return {**workers[name], "address": name}
    for address, worker in workers.items():
        if name and name in (worker["id"], worker["name"]):
            return {**worker, "address": address}
    return None


async def search_facts(site: Site, text: str) -> Info:
    """Return what has a text in its name: tasks, functions, workers, and what was raised lately.

    Raises:
        QuestionFailed: the text is too long.
        TimeoutError, WeftError: the scheduler does not answer.
    """
    found: Info = {"keys": [], "functions": [], "n_looked_at": 0, "n_tasks": 0, "is_cut": False}
    seen: set[str] = set()
    async for page in site.viewer.ask("search", {"text": text}):
        rows = [row for row in page["keys"] if row[0] not in seen]
        seen.update(row[0] for row in rows)
        found["keys"] += rows
        found["n_looked_at"] += page["n_looked_at"]
        found["n_tasks"] = page["n_tasks"]
        found["functions"] += page.get("functions", [])
        if page["is_cut"] or len(found["keys"]) >= N_FOUND:
            found["is_cut"] = True
            break
    del found["keys"][N_FOUND:]
    workers, overview = await site.watch.workers.get(), await site.watch.overview.get()
    low = text.lower()
    matching = (
        {"address": address, "name": w["name"], "host": w["host"]}
        for address, w in workers.items()
        if any(low in str(part).lower() for part in (address, w["name"], w["host"], w["id"]))
    )
    found["workers"] = list(islice(matching, N_FOUND))
    found["failures"] = [
        failure
        for failure in overview["failures"]
        if any(low in str(failure[name]).lower() for name in ("text", "key", "function"))
    ]
    return found
