"""`dump_cluster_state`: all that a cluster tells about itself, written to a file for later.

The answers about tasks are written as they come; held at one time are the keys of all tasks that
are found, the events and the lines of the logs. A file is a sequence of rows, each of a section; a
section has one row or many, one behind the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgpack

from ...protocol.errors import NotSupported, WeftError
from ...protocol.host.versions import process_versions
from ...protocol.wire.keys import text_of
from ..coordination.topics import events_of
from ..modes import waits
from ..shell.engine import Engine
from .asking import N_KEYS, ask, ask_about
from .cluster_info import describe_workers
from .inspecting import (
    get_scheduler_logs,
    get_versions,
    get_worker_logs,
    has_what,
    processing,
)

if TYPE_CHECKING:
    from ..client import Client

#: Tasks that are described: first those at workers, then those of this client, then results.
MAX_TASKS: Final = 100_000
#: What YAML does not allow as it is.
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\ud800-\udfff\u2028\u2029\ufeff\ufffe\uffff]")
_SUFFIXES: Final = {"msgpack": ".msgpack.gz", "yaml": ".yaml"}

Write = Callable[[str, Any], None]


@waits
def dump_cluster_state(
    client: Client[Any],
    /,
    filename: str | os.PathLike[str] = "weft-cluster-dump",
    write_from_scheduler: bool | None = None,
    exclude: Collection[str] = (),
    format: str = "msgpack",
    **storage_options: Any,
) -> str:
    """Write what the cluster tells about itself to a file of this machine, for later.

    It has the scheduler, its workers and clients, the versions of packages, the scheduler's
    events, up to 100 000 tasks with their stories (those at workers, of this client, and
    results), and the logs. Secrets, arguments and results are not in it.

    Args:
        filename: `.msgpack.gz` or `.yaml` is added.
        write_from_scheduler: accepted for compatibility with dask; not True.
        exclude: names of sections, or of fields, that are left out.
        format: "msgpack": a gzip file of rows `[section, value]`, which `msgpack.Unpacker`
            reads one by one; or "yaml": each section is a list.
        storage_options: there are none.

    Returns:
        The path of the file.

    Raises:
        NotSupported: the scheduler, or a storage elsewhere, is to be written to.
        OSError: the file cannot be written.
        NotPermitted: the client's token is of a lower role than client.
    """
    if write_from_scheduler or storage_options or "://" in os.fspath(filename):
        raise NotSupported(
            "a dump is written by this program to a file of its machine: leave out "
            "write_from_scheduler= and the options of storage, and pass a path"
        )
    if format not in _SUFFIXES:
        raise ValueError(f'format= is "msgpack" or "yaml", not {format!r}')
    if isinstance(exclude, str) or not all(isinstance(name, str) for name in exclude):
        raise TypeError(f"exclude= has names of sections and of fields, not {exclude!r}")
    engine = client._running()
    path = os.fspath(filename)
    if not path.endswith(_SUFFIXES[format]):
        path += _SUFFIXES[format]
    dump = _Dump(path, format, frozenset(exclude))
    return client._run(dump.run(engine, client))


class _Dump:
    """One file, and what is written to it."""

    def __init__(self, path: str, format: str, exclude: frozenset[str]) -> None:
        self._path = path
        self._format = format
        self._exclude = exclude
        self._file: Any = None
        self._section = ""

    async def run(self, engine: Engine, client: Client[Any]) -> str:
        """Write everything; return the path. A part of a file is not left."""
        events = await events_of(client, "scheduler")
        part = f"{self._path}.part"
        try:
            self._file = self._open(part)
            with self._file:
                async for section, rows in _sections(engine, events):
                    if section not in self._exclude:
                        self._write(section, rows)
            os.replace(part, self._path)
        except BaseException:
            if self._file is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(part)
            raise
        return self._path

    def _open(self, path: str) -> Any:
        if self._format == "msgpack":
            return gzip.open(path, "wb", compresslevel=3)
        return open(path, "w", encoding="utf-8")

    def _write(self, section: str, rows: list[Any]) -> None:
        for row in rows:
            value = _without(row, self._exclude) if self._exclude else row
            if self._format == "msgpack":
                self._file.write(msgpack.packb([section, value], default=str))
                continue
            if section != self._section:
                self._file.write(f"{section}:\n")
                self._section = section
            self._file.write(f"- {_flow(value)}\n")


def _flow(value: Any) -> str:
    """Return a value as JSON that is YAML too."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _without(value: Any, exclude: frozenset[str]) -> Any:
    """Return a value without the fields of some names, at any depth."""
    if isinstance(value, dict):
        return {k: _without(v, exclude) for k, v in value.items() if k not in exclude}
    if isinstance(value, (list, tuple)):
        return [_without(one, exclude) for one in value]
    return value


async def _sections(engine: Engine, events: Any) -> AsyncIterator[tuple[str, list[Any]]]:
    """Yield sections, some of them several times in a row, with rows of plain data."""
    mine = process_versions([])
    yield "dump", [{"when": time.time(), "weft": mine["packages"].get("weft"), "format": 1}]
    for name in ("cluster", "overview"):
        async for page in ask(engine, name):
            yield name, [page]
    workers = await describe_workers(engine)
    yield "workers", [{"address": address, **worker} for address, worker in workers.items()]
    async for page in ask(engine, "clients"):
        yield "clients", page["clients"]
    found = await get_versions.on(engine)
    yield (
        "versions",
        [
            {"process": "client", **found["client"]},
            {"process": "scheduler", **found["scheduler"]},
            *(
                {"process": address, **_answer(answer)}
                for address, answer in found["workers"].items()
            ),
        ],
    )
    yield "events", [{"when": when, **event} for when, event in events]
    keys = await _keys(engine, workers)
    yield "task_counts", [{"n_listed": min(len(keys), MAX_TASKS), "n_found": len(keys)}]
    listed = [*islice(keys, MAX_TASKS)]
    async for page in ask_about(engine, "tasks", listed):
        yield "tasks", page["tasks"]
    for i in range(0, len(listed), N_KEYS):
        async for page in ask(engine, "story", {"keys": listed[i : i + N_KEYS]}):
            yield (
                "story",
                [{"age_s": age_s, "key": key, "what": what} for age_s, key, what in page["story"]],
            )
    lines = await _logs(engine)
    for i in range(0, len(lines), N_KEYS):
        yield "logs", lines[i : i + N_KEYS]
        await asyncio.sleep(0)  # other coroutines have their turn


async def _keys(engine: Engine, workers: dict[str, Any]) -> dict[str, None]:
    """Return the keys of tasks at workers, of this client, and of results."""
    keys: dict[str, None] = {}
    for at_worker in (await processing.on(engine)).values():
        keys |= dict.fromkeys(map(text_of, at_worker))
    keys |= dict.fromkeys(list(engine.table.states))
    for kept in (await has_what.on(engine)).values():
        if not isinstance(kept, WeftError):
            keys |= dict.fromkeys(map(text_of, kept))
    return keys


async def _logs(engine: Engine) -> list[dict[str, Any]]:
    found: dict[str, Any] = {"scheduler": await get_scheduler_logs.on(engine)}
    found |= await get_worker_logs.on(engine)
    rows = []
    for process, lines in found.items():
        if isinstance(lines, WeftError):
            rows.append({"process": process, "error": str(lines)})
        else:
            rows += [{"process": process, "level": level, "line": line} for level, line in lines]
    return rows


def _answer(answer: Any) -> dict[str, Any]:
    return {"error": str(answer)} if isinstance(answer, WeftError) else answer
