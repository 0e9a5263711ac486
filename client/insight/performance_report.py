"""`performance_report`: what a part of a program did on the cluster, as one HTML file."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import sys
import textwrap
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from ...protocol.errors import NotSupported
from ...protocol.wording import grouped
from ..display.report import ReportContent, report_page
from ..shell.engine import Engine
from .asking import ask
from .cluster_info import describe_workers
from .inspecting import get_versions
from .profiling import READ_S, StackReading
from .task_stream import StreamContext

if TYPE_CHECKING:
    from ..client import Client

#: Values of `mode=` that mean what is done anyway.
_MODES: Final = (None, "inline")


class performance_report(StreamContext):
    """Write an HTML file about what runs within a `with` block; or `async with`.

        with weft.performance_report("report.html"):
            client.gather(client.map(f, range(100)))

    It has the task stream, sums by function, span and worker, the latest failures, the code of the
    block and the versions of packages. The file needs no other file and no network. It is about
    all clients of the cluster, and is written also if the block raises.

    Args:
        filename: a path, or a URL that `fsspec` can write to.
        stacklevel: whose code is shown: 1 = that of the caller, 2 = that of its caller, ...
        mode: None or "inline": accepted for compatibility with dask.
        storage_options: for `fsspec`.
        profile: sample the stacks of tasks meanwhile, for a flame graph; see `Client.profile`.
        client: whose cluster it is; None = the current client.

    Raises:
        OSError: on entry: the folder of the file does not exist, or it is a folder itself.
        NotSupported: `mode` is another one.

    Example:
        >>> with weft.performance_report("report.html"):
        ...     values = client.gather(client.map(abs, range(10)))
    """

    def __init__(
        self,
        filename: str | os.PathLike[str] = "weft-report.html",
        stacklevel: int = 1,
        mode: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        *,
        profile: bool = False,
        client: Client | None = None,
    ) -> None:
        if mode not in _MODES:
            raise NotSupported(f"mode={mode!r}: leave it out, the file has everything in it")
        if type(stacklevel) is not int or stacklevel < 1:
            raise ValueError(f"stacklevel= is a whole number >= 1, not {stacklevel!r}")
        super().__init__(client)
        self._file = os.fspath(filename)
        self._storage_options = dict(storage_options or {})
        self._is_url = "://" in self._file or bool(self._storage_options)
        if not self._is_url:
            self._file = os.path.abspath(self._file)  # the program may change its folder
        self._stacklevel = stacklevel
        self._stacks = StackReading() if profile else None
        self._next_stacks = 0.0
        self._code = ""
        self._content: dict[str, Any] = {}

    def __enter__(self) -> performance_report:
        self._prepare()
        return super().__enter__()

    async def __aenter__(self) -> performance_report:
        self._prepare()
        return await super().__aenter__()

    def _prepare(self) -> None:
        with contextlib.suppress(ValueError):  # there are fewer frames
            self._code = code_of_block(sys._getframe(1 + self._stacklevel))
        if self._is_url:
            import fsspec  # noqa: F401 - a lack shows before the work

            return
        folder = os.path.dirname(self._file)
        if not os.path.isdir(folder):
            raise FileNotFoundError(f"the folder of the report, {folder!r}, does not exist")
        if os.path.isdir(self._file):
            raise IsADirectoryError(f"the report is a file, and {self._file!r} is a folder")

    async def _read(self, engine: Engine, keep_s: float) -> None:
        await super()._read(engine, keep_s)
        if self._stacks is not None and (not keep_s or time.monotonic() >= self._next_stacks):
            self._next_stacks = time.monotonic() + READ_S
            await self._stacks.read(engine)

    async def _on_end(self, engine: Engine) -> None:
        failures: list[dict[str, Any]] = []
        async for page in ask(engine, "overview"):
            failures = page["failures"]
        lasted_s = time.monotonic() - self._entered
        self._content = {
            "workers": await describe_workers(engine),
            "versions": await get_versions.on(engine),
            "failures": [one for one in failures if one["age_s"] <= lasted_s],
        }

    def _finish(self) -> None:
        shown = ReportContent(
            timings=[*self._pages.timings()],
            begin=self._begin,
            end=self._end,
            when=_period(self._begin, self._end),
            notes=self._notes(),
            code=self._code,
            profile=None if self._stacks is None else self._stacks.result().to_data(),
            **self._content,
        )
        self._write(report_page(shown))

    def _notes(self) -> list[str]:
        notes = []
        if self._failure is not None:
            notes.append(f"The end is missing: {self._failure}")
        if self._pages.n_missed:
            notes.append(
                f"{grouped(self._pages.n_missed)} further attempts ended, and are not in this "
                "report: there were too many, or the program that made it was suspended."
            )
        if self._pages.has_gap:
            notes.append(
                "The scheduler was started again: attempts that ended just before that, or while "
                "it was away, are missing."
            )
        return notes

    def _write(self, page: str) -> None:
        if self._is_url:
            import fsspec

            with fsspec.open(self._file, "w", encoding="utf-8", **self._storage_options) as file:
                file.write(page)
            return
        part = f"{self._file}.part"
        with open(part, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(part, self._file)


def _period(begin: float, end: float) -> str:
    """Return a time for display: `2026-11-23 10:00:01 to 10:02:30`."""
    first, last = time.localtime(begin), time.localtime(end)
    is_same_day = first[:3] == last[:3]
    to = time.strftime("%H:%M:%S" if is_same_day else "%Y-%m-%d %H:%M:%S", last)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', first)} to {to}"


def code_of_block(frame: FrameType) -> str:
    """Return the text of the `with` statement that a frame is in; "" if it is not known."""
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):  # the magic commands of notebooks
        return "".join(lines[frame.f_lineno - 1 :][:1]).strip()
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.With, ast.AsyncWith))
        and node.lineno <= frame.f_lineno <= node.body[0].lineno
    ]
    if not found:
        return ""
    block = max(found, key=lambda node: node.lineno)
    return textwrap.dedent("".join(lines[block.lineno - 1 : block.end_lineno])).rstrip()
