"""Prints the overview of a cluster, once or repeatedly."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable

import click

from ...protocol.trust.connection_file import ConnectionFile
from ..overview.snapshot import Snapshot
from ..top.watching import OverviewReader
from .status_text import describe_status, exit_code

#: Clears the screen from the upper left corner on.
_CLEAR = "\x1b[H\x1b[J"


def print_once(find: Callable[[], ConnectionFile], as_json: bool) -> int:
    """Print the overview; return the exit code."""

    async def run() -> Snapshot:
        watcher = OverviewReader(find, time.monotonic, reads_workers=False)
        try:
            return await watcher.step()
        finally:
            watcher.close()

    snapshot = asyncio.run(run())
    code = exit_code(snapshot)
    if as_json:
        click.echo(as_line(snapshot, indent=2))
    else:
        click.echo(describe_status(snapshot), err=bool(snapshot.down))
    return code


def as_line(snapshot: Snapshot, indent: int | None = None) -> str:
    """Return the overview as JSON, or why there is none."""
    if snapshot.down:
        return json.dumps({"address": snapshot.address, "down": snapshot.down}, indent=indent)
    plain = {"address": snapshot.address, **snapshot.overview}
    return json.dumps(plain, indent=indent)


def print_repeatedly(
    find: Callable[[], ConnectionFile],
    interval_s: float,
    as_json: bool,
    n: int | None = None,
    *,
    is_screen: bool = True,
) -> None:
    """Print the overview until Ctrl-C, or `n` times.

    A terminal shows one that changes, unless `is_screen` is False; elsewhere they follow each
    other, with an empty line between.
    """
    is_screen = is_screen and sys.stdout.isatty() and not as_json

    async def run() -> None:
        watcher = OverviewReader(find, time.monotonic, reads_workers=False)
        n_printed = 0
        try:
            while n is None or n_printed < n:
                snapshot = await watcher.step()
                if as_json:
                    click.echo(as_line(snapshot))
                elif is_screen:
                    click.echo(_CLEAR + describe_status(snapshot))
                else:
                    click.echo(("\n" if n_printed else "") + describe_status(snapshot))
                sys.stdout.flush()
                n_printed += 1
                if n is None or n_printed < n:
                    await asyncio.sleep(interval_s)
        finally:
            watcher.close()

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return
