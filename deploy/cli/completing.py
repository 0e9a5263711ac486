"""Completions for shells: names of workers and connections, if a scheduler answers quickly.

A shell waits for these lists while a user has pressed a key, so a scheduler that does not answer at
once completes nothing, and no error is shown.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

_TIMEOUT_S: Final = 1.0
_N_ITEMS: Final = 200


def complete_workers(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the names of connected workers."""
    from ..overview.hosts import natural

    path, address = ctx.params.get("connection_file"), ctx.params.get("address")
    address = address or ctx.params.get("at")
    try:
        names = asyncio.run(_names(path, address))
    except Exception:  # a traceback would be written into the line that the user edits
        return []
    return [
        CompletionItem(name, help=host)
        for name, host in sorted(names.items(), key=lambda item: natural(item[0]))
        if name.startswith(incomplete)
    ][:_N_ITEMS]


async def _names(connection_file: Path | None, address: str | None) -> dict[str, str]:
    from ..finding import find_scheduler
    from ..http.viewer import viewing

    workers: dict[str, Any] = {}
    async with viewing(find_scheduler(connection_file, address), _TIMEOUT_S) as viewer:
        async for page in viewer.ask("workers"):
            workers |= page["workers"]
            if len(workers) >= _N_ITEMS:
                break
    return {worker["name"]: worker["host"] for worker in workers.values()}


def complete_addresses(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the addresses of the schedulers in the run directories."""
    from ...protocol.trust.finding import known_files

    try:
        files, _ = known_files()
    except OSError:
        return []
    return [
        CompletionItem(file.addresses[0], help=f"process {file.pid} on {file.host}")
        for file in files
        if file.addresses[0].startswith(incomplete)
    ]


def complete_connection_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the connection files of the run directories, and let the shell add other files."""
    from ...protocol.trust.finding import known_files

    files, _ = known_files()
    known = [file.source for file in files if file.source.startswith(incomplete)]
    return [*map(CompletionItem, known), CompletionItem(incomplete, type="file")]
