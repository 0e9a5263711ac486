#!/usr/bin/env python
"""Report on the Python standard library's own sources, with weft.

The text is on every machine that has Python. Each file is one task (parse it, note its imports and
functions); the per-file reports are merged in pairs by a tree of tasks whose arguments are futures,
so the merging runs beside the parsing and needs no data from here; the per-file results are
consumed with `as_completed` to show progress.

    python demo/stdlib_report.py                            # embedded: nothing to start
    python demo/stdlib_report.py tcp://host:port            # the same on a cluster
    python demo/stdlib_report.py --connection-file PATH

The sources travel as arguments: workers on other machines need neither the same files nor the same
paths. `analyse` and `merge` live in `__main__` and are sent by value, and reports are plain dicts,
so workers need no copy of this script.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import sys
import sysconfig
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, TypedDict

import weft

INSTALLED_FOLDERS = frozenset({"site-packages", "dist-packages", "__pycache__"})
TEST_FOLDERS = frozenset({"test", "tests", "idle_test"})

#: Shown instead of a bar where lines cannot be rewritten (a log, a pipe).
PLAIN_PROGRESS_LINES = 5

#: Faster than this only costs the terminal.
REWRITE_EVERY_S = 0.05


class Report(TypedDict):
    """The report on one file, or on many: `merge` of two reports is a report."""

    n_files: int
    n_lines: int
    n_functions: int
    #: {top-level module: number of files that import it}
    imports: dict[str, int]
    #: (lines, qualified name, path, first line), in the order of `by_length`, at most `keep`.
    longest: list[tuple[int, str, str, int]]
    #: (path, why), sorted. These files count in n_files.
    unparsed: list[tuple[str, str]]


# -- the tasks -----------------------------------------------------------------------------------


def analyse(path: str, source: bytes, keep: int) -> Report:
    """Report on one source text; `keep` is how many of its longest functions to name."""
    report: Report = {
        "n_files": 1,
        "n_lines": source.count(b"\n") + (source != b"" and not source.endswith(b"\n")),
        "n_functions": 0,
        "imports": {},
        "longest": [],
        "unparsed": [],
    }
    try:
        with warnings.catch_warnings():
            # Warnings about odd escapes in these sources are not shown.
            warnings.simplefilter("ignore")
            tree = ast.parse(source, path)  # from bytes: honours the file's own coding line
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # ValueError: null bytes. MemoryError: the parser's error for a full stack.
        report["unparsed"].append((path, explain(error)))
        return report

    functions: list[tuple[int, str, str, int]] = []
    # A stack, not recursion: test data nests deeper than the interpreter's limit.
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, prefix = stack.pop()
        if isinstance(node, ast.Import):
            for alias in node.names:
                report["imports"][alias.name.partition(".")[0]] = 1
        elif isinstance(node, ast.ImportFrom):
            # A relative import (level > 0) is of the package's own.
            if node.module is not None and node.level == 0:
                report["imports"][node.module.partition(".")[0]] = 1
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            n_lines = (node.end_lineno or node.lineno) - node.lineno + 1
            functions.append((n_lines, prefix + node.name, path, node.lineno))
            prefix += f"{node.name}."
        elif isinstance(node, ast.ClassDef):
            prefix += f"{node.name}."
        stack.extend((child, prefix) for child in ast.iter_child_nodes(node))

    report["n_functions"] = len(functions)
    report["longest"] = sorted(functions, key=by_length)[:keep]
    return report


def merge(left: Report, right: Report, keep: int) -> Report:
    """Join two reports into a new one: the arguments are the worker's own and must not change."""
    imports = dict(left["imports"])
    for module, n_files in right["imports"].items():
        imports[module] = imports.get(module, 0) + n_files
    return {
        "n_files": left["n_files"] + right["n_files"],
        "n_lines": left["n_lines"] + right["n_lines"],
        "n_functions": left["n_functions"] + right["n_functions"],
        "imports": imports,
        "longest": sorted(left["longest"] + right["longest"], key=by_length)[:keep],
        "unparsed": sorted(left["unparsed"] + right["unparsed"]),
    }


def add_unreadable(report: Report, files: Sequence[tuple[str, str]]) -> Report:
    """Count files that could not be opened, as (path, why), with those that did not parse."""
    return {
        **report,
        "n_files": report["n_files"] + len(files),
        "unparsed": sorted([*report["unparsed"], *files]),
    }


def by_length(function: tuple[int, str, str, int]) -> tuple[int, str, int]:
    """Sort key: longest first, then by place: the order of merging must not show in the report."""
    n_lines, _name, path, first_line = function
    return -n_lines, path, first_line


def explain(error: BaseException) -> str:
    """Put a parse error in one short line."""
    if isinstance(error, SyntaxError):
        return f"{error.msg} (line {error.lineno})" if error.lineno else error.msg
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


# -- the job -------------------------------------------------------------------------------------


def find_sources(folder: Path, *, with_tests: bool) -> list[Path]:
    """List the .py files under a folder, sorted, without installed packages and maybe tests."""
    skipped = INSTALLED_FOLDERS if with_tests else INSTALLED_FOLDERS | TEST_FOLDERS
    found: list[Path] = []
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in skipped]
        found.extend(Path(where, name) for name in names if name.endswith(".py"))
    return sorted(found)


def run(
    client: weft.Client,
    paths: Sequence[str],
    sources: Sequence[bytes],
    keep: int,
    progress: Progress,
) -> Report:
    """Map over the files, reduce by tree, and show the per-file results as they come."""
    files = client.map(analyse, paths, sources, [keep] * len(paths))

    # The whole tree goes out before anything has finished: each merge waits on the cluster for its
    # two inputs.
    level = files
    while len(level) > 1:
        merged = [
            client.submit(merge, left, right, keep)
            for left, right in zip(level[::2], level[1::2], strict=False)
        ]
        level = merged + level[2 * len(merged) :]  # an odd one out goes up as it is

    for _future, report in weft.as_completed(files, with_results=True):
        progress.advance(report)
    total: Report = level[0].result()
    return total


class Progress:
    """Count finished files: one line that updates on a terminal, a few plain lines elsewhere."""

    def __init__(self, n_files: int, stream: TextIO) -> None:
        self.n_files = n_files
        self.n_done = 0
        self.n_lines = 0
        self.stream = stream
        self.on_terminal = stream.isatty()
        self.shown_at_s = float("-inf")

    def advance(self, report: Report) -> None:
        """Count one more file and show it where that is due."""
        self.n_done += 1
        self.n_lines += report["n_lines"]
        text = f"{self.n_done}/{self.n_files} files, {self.n_lines:,} lines"
        if self.on_terminal:
            now_s = time.monotonic()
            if now_s - self.shown_at_s >= REWRITE_EVERY_S or self.n_done == self.n_files:
                self.shown_at_s = now_s
                self._rewrite(text)
        else:
            step = PLAIN_PROGRESS_LINES * self.n_done // self.n_files
            if step > PLAIN_PROGRESS_LINES * (self.n_done - 1) // self.n_files:
                print(text, file=self.stream, flush=True)

    def clear(self) -> None:
        """Take the updating line away, so that what is printed next starts on a clean one."""
        if self.on_terminal:
            self._rewrite("")

    def _rewrite(self, text: str) -> None:
        if text:
            n_columns = shutil.get_terminal_size().columns
            filled = 24 * self.n_done // self.n_files
            text = f"[{'#' * filled}{'.' * (24 - filled)}] {text}"[: n_columns - 1]
        self.stream.write(f"\r{text}\x1b[K")
        self.stream.flush()


# -- the tables ----------------------------------------------------------------------------------


def render_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str | int]]) -> str:
    """Lay out rows in columns; a column of numbers is set to the right."""
    cells = [[f"{cell:,}" if isinstance(cell, int) else cell for cell in row] for row in rows]
    to_right = [
        bool(rows) and all(isinstance(row[i], int) for row in rows) for i in range(len(headers))
    ]
    widths = [max(len(line[i]) for line in [headers, *cells]) for i in range(len(headers))]

    def lay_out(line: Sequence[str]) -> str:
        columns = zip(line, widths, to_right, strict=True)
        return "  ".join(
            text.rjust(width) if right else text.ljust(width) for text, width, right in columns
        ).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([title, lay_out(headers), rule, *map(lay_out, cells)])


def render_report(report: Report, top: int) -> str:
    """Print a report as its two tables, the files that did not parse, and the totals."""
    imports = sorted(report["imports"].items(), key=lambda item: (-item[1], item[0]))
    parts = [
        render_table(
            "Most used imports",
            ("files", "module"),
            [(n_files, module) for module, n_files in imports[:top]],
        ),
        render_table(
            "Longest functions",
            ("lines", "function", "where"),
            [
                (n_lines, name, f"{path}:{first_line}")
                for n_lines, name, path, first_line in report["longest"][:top]
            ],
        ),
    ]
    unparsed = report["unparsed"]
    if unparsed:
        parts.append(render_table(f"Not parsed: {len(unparsed)}", ("file", "why"), unparsed))
    parts.append(
        f"{report['n_files']:,} files, {report['n_lines']:,} lines, "
        f"{report['n_functions']:,} functions, "
        f"{len(imports):,} modules imported, {len(unparsed):,} not parsed"
    )
    return "\n\n".join(parts)


# -- the command ---------------------------------------------------------------------------------


def positive(text: str) -> int:
    """Read an option's value as a number of at least one."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="stdlib_report",
        description="Report on the Python standard library's sources, with weft.",
    )
    cluster = parser.add_mutually_exclusive_group()
    cluster.add_argument(
        "address", nargs="?", help="a scheduler, as tcp://host:port (default: an embedded cluster)"
    )
    cluster.add_argument(
        "--connection-file", metavar="PATH", help="the file that the scheduler wrote"
    )
    cluster.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="worker processes of the embedded cluster (default: cores)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(sysconfig.get_path("stdlib")),
        help="read this folder's .py files instead of the standard library's",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="read only the first N files")
    parser.add_argument(
        "--top", type=positive, default=10, metavar="N", help="rows per table (default: 10)"
    )
    parser.add_argument("--with-tests", action="store_true", help="read test folders too")
    return parser.parse_args(arguments)


def connect(options: argparse.Namespace) -> weft.Client:
    """Reach the cluster that the command line names, or start an embedded one."""
    if options.address is not None:
        return weft.Client(options.address)
    if options.connection_file is not None:
        return weft.Client(connection_file=options.connection_file)
    if options.workers is not None:
        return weft.Client(n_workers=options.workers)
    return weft.Client()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job and return the exit code: 0, 1 on an error, 130 on Ctrl-C."""
    options = parse_arguments(arguments)
    progress: Progress | None = None
    try:
        folder: Path = options.folder
        paths: list[str] = []
        sources: list[bytes] = []
        unreadable: list[tuple[str, str]] = []
        for file in find_sources(folder, with_tests=options.with_tests)[: options.limit]:
            path = file.relative_to(folder).as_posix()
            try:
                source = file.read_bytes()
            except OSError as error:
                unreadable.append((path, error.strerror or str(error)))
            else:
                paths.append(path)
                sources.append(source)
        if not paths:
            print(f"stdlib_report: no Python sources under {folder}", file=sys.stderr)
            return 1
        n_megabytes = sum(map(len, sources)) / 1e6
        print(
            f"{len(paths):,} files, {n_megabytes:.1f} MB under {folder}",
            file=sys.stderr,
            flush=True,
        )

        progress = Progress(len(paths), sys.stderr)
        with connect(options) as client:
            started_s = time.perf_counter()
            report = run(client, paths, sources, options.top, progress)
            elapsed_s = time.perf_counter() - started_s
        progress.clear()
        report = add_unreadable(report, unreadable)
    except KeyboardInterrupt:
        # By now the client is closed, and with it the embedded cluster.
        if progress is not None:
            progress.clear()
        n_done = progress.n_done if progress is not None else 0
        print(f"stdlib_report: interrupted after {n_done} files", file=sys.stderr)
        return 130
    except (OSError, weft.WeftError) as error:
        if progress is not None:
            progress.clear()
        print(f"stdlib_report: {error}", file=sys.stderr)
        return 1

    print(render_report(report, options.top))
    n_tasks = 2 * len(paths) - 1  # one a file, and one fewer to merge them
    print(f"{n_tasks:,} tasks in {elapsed_s:.2f} s: {n_tasks / elapsed_s:,.0f} tasks/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
