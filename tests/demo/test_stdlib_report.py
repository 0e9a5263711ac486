"""The demo: its pure functions on small sources, and the script itself, run as users run it."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import psutil
import pytest

import weft

SCRIPT = Path(__file__).parents[2] / "demo" / "stdlib_report.py"

SOURCE = b"""\
import os.path, sys
import sys
from collections.abc import Sequence
from . import sibling
from .sibling import name

class Tree:
    def grow(self):
        def leaf():
            import json
            return json
        return leaf

async def wait():
    pass
"""


def load() -> ModuleType:
    """Load the script as a module: demo/ is a folder of scripts, not a package."""
    spec = spec_from_file_location("stdlib_report", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


demo = load()


# -- analyse -------------------------------------------------------------------------------------


def test_analyse_counts_a_files_lines_functions_and_imports() -> None:
    assert demo.analyse("tree.py", SOURCE, 10) == {
        "n_files": 1,
        "n_lines": 15,
        "n_functions": 3,
        "imports": {"os": 1, "sys": 1, "collections": 1, "json": 1},
        "longest": [
            (5, "Tree.grow", "tree.py", 8),
            (3, "Tree.grow.leaf", "tree.py", 9),
            (2, "wait", "tree.py", 14),
        ],
        "unparsed": [],
    }


def test_analyse_names_only_the_longest_functions_but_counts_all() -> None:
    report = demo.analyse("tree.py", SOURCE, 1)
    assert report["n_functions"] == 3
    assert [name for _, name, _, _ in report["longest"]] == ["Tree.grow"]


@pytest.mark.parametrize(
    ("source", "n_lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"a\n\n", 2)]
)
def test_analyse_counts_a_last_line_without_a_newline(source: bytes, n_lines: int) -> None:
    assert demo.analyse("a.py", source, 1)["n_lines"] == n_lines


def test_analyse_reads_the_coding_line() -> None:
    source = "# coding: latin-1\ndef caf\xe9(): pass\n".encode("latin-1")
    assert demo.analyse("cafe.py", source, 1)["longest"] == [(1, "caf\xe9", "cafe.py", 2)]


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"print 'hello'\n", "(line 1)"),
        (b"# coding: no-such-codec\n", "no-such-codec"),
        (b"x = '\xff'\n", "0xff" if sys.version_info < (3, 14) else "Non-UTF-8"),
        (b"x = 1\0\n", "null bytes"),
        (b"-" * 100_000 + b"1\n", ""),
    ],
    ids=["python 2", "unknown coding", "bad utf-8", "null byte", "nested too deeply"],
)
def test_analyse_names_a_file_that_does_not_parse(source: bytes, why: str) -> None:
    report = demo.analyse("bad.py", source, 10)
    ((path, reason),) = report["unparsed"]
    assert path == "bad.py"
    assert reason
    assert "\n" not in reason
    assert why in reason
    assert (report["n_files"], report["n_functions"], report["imports"]) == (1, 0, {})


def test_analyse_does_not_warn_of_odd_escapes_in_a_source() -> None:
    # Warnings are errors in this suite: an escaped one would make the file unparsed.
    assert demo.analyse("odd.py", b"x = '\\d'\n", 1)["unparsed"] == []


# -- merge ---------------------------------------------------------------------------------------


def test_merge_adds_counts_and_keeps_the_longest_functions() -> None:
    left = demo.analyse("a.py", b"import os, sys\ndef f():\n    pass\n", 9)
    right = demo.analyse(
        "b.py", b"import os\ndef g(): pass\ndef h():\n    x = 1\n    return x\n", 9
    )
    assert demo.merge(left, right, 2) == {
        "n_files": 2,
        "n_lines": 8,
        "n_functions": 3,
        "imports": {"os": 2, "sys": 1},
        "longest": [(3, "h", "b.py", 3), (2, "f", "a.py", 2)],
        "unparsed": [],
    }


def test_merge_leaves_its_arguments_as_they_are() -> None:
    # They belong to a worker's store, where other tasks may read them.
    left, right = demo.analyse("a.py", SOURCE, 9), demo.analyse("b.py", b"print 1\n", 9)
    demo.merge(left, right, 1)
    assert left == demo.analyse("a.py", SOURCE, 9)
    assert right == demo.analyse("b.py", b"print 1\n", 9)


def test_merge_gives_the_same_report_in_any_order() -> None:
    a, b, c = (demo.analyse(path, SOURCE, 2) for path in ("a.py", "b.py", "c.py"))
    bad = demo.analyse("bad.py", b"(", 2)
    one_way = demo.merge(demo.merge(a, b, 2), demo.merge(c, bad, 2), 2)
    other_way = demo.merge(bad, demo.merge(c, demo.merge(b, a, 2), 2), 2)
    assert one_way == other_way
    assert one_way["longest"] == [(5, "Tree.grow", "a.py", 8), (5, "Tree.grow", "b.py", 8)]


def test_unreadable_files_are_counted_with_those_that_do_not_parse() -> None:
    report = demo.merge(demo.analyse("a.py", SOURCE, 1), demo.analyse("z.py", b"(", 1), 1)
    report = demo.add_unreadable(report, [("locked.py", "Permission denied")])
    assert report["n_files"] == 3
    assert [path for path, _ in report["unparsed"]] == ["locked.py", "z.py"]


# -- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("with_tests", "expected"),
    [(False, ["a.py", "pkg/b.py"]), (True, ["a.py", "pkg/b.py", "pkg/tests/c.py", "test/d.py"])],
)
def test_find_sources_skips_installed_packages_and_tests(
    tmp_path: Path, with_tests: bool, expected: list[str]
) -> None:
    for name in (*expected, "pkg/tests/c.py", "test/d.py", "site-packages/e.py", "pkg/notes.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = demo.find_sources(tmp_path, with_tests=with_tests)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == expected


# -- output --------------------------------------------------------------------------------------


def test_table_sets_numbers_to_the_right_and_text_to_the_left() -> None:
    assert demo.render_table("Title", ("n", "name"), [(1234, "x"), (5, "longer")]) == (
        "Title\n    n  name\n-----  ------\n1,234  x\n    5  longer"
    )


def test_table_without_rows_is_its_headers() -> None:
    assert demo.render_table("Title", ("n", "name"), []) == "Title\nn  name\n-  ----"


def test_report_shows_top_rows_unparsed_files_and_totals() -> None:
    report = demo.merge(demo.analyse("a.py", SOURCE, 2), demo.analyse("b.py", b"(\n", 2), 2)
    text = demo.render_report(report, 1)
    assert "    1  collections" in text
    assert "json" not in text
    assert "    5  Tree.grow  a.py:8" in text
    assert "leaf" not in text
    assert "Not parsed: 1\n" in text
    assert text.endswith("2 files, 16 lines, 3 functions, 4 modules imported, 1 not parsed")


def test_progress_off_a_terminal_is_a_few_plain_lines() -> None:
    stream = io.StringIO()
    progress = demo.Progress(100, stream)
    for _ in range(100):
        progress.advance(demo.analyse("a.py", b"1\n2\n", 1))
    progress.clear()
    assert stream.getvalue().splitlines() == [
        f"{n}/100 files, {2 * n} lines" for n in (20, 40, 60, 80, 100)
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_on_a_terminal_is_one_line_rewritten_and_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Terminal()
    progress = demo.Progress(2, stream)
    progress.advance(demo.analyse("a.py", b"1\n", 1))
    progress.advance(demo.analyse("b.py", b"1\n", 1))
    progress.clear()
    assert "\n" not in stream.getvalue()
    *shown, cleared = stream.getvalue().removeprefix("\r").split("\r")
    assert cleared == "\x1b[K"
    assert all(len(line.removesuffix("\x1b[K")) < 30 for line in shown)
    assert shown[-1].startswith(f"[{'#' * 24}]")


# -- the script ----------------------------------------------------------------------------------


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the script in a session of its own, with the weft that this test run imports."""
    assert weft.__file__ is not None
    environment = {**os.environ, "PYTHONPATH": str(Path(weft.__file__).parents[1])}
    with ExitStack() as started:

        def start_script(*arguments: str | Path) -> subprocess.Popen[str]:
            script = subprocess.Popen(
                [sys.executable, SCRIPT, *arguments],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # its pid is then its process group's id
            )
            started.enter_context(script)
            started.callback(script.kill)  # has no effect on one that has ended
            return script

        yield start_script


@pytest.mark.slow
def test_script_reports_on_a_folder_with_an_embedded_worker(start: Start, tmp_path: Path) -> None:
    for i in range(9):
        body = "    x = 1\n" * i
        (tmp_path / f"m{i}.py").write_text(f"import os\ndef f{i}():\n    pass\n{body}")
    (tmp_path / "old.py").write_text("print 'hello'\n")
    script = start("--workers", "1", "--folder", tmp_path, "--top", "2")
    out, err = script.communicate(timeout=60)
    assert script.returncode == 0, err
    assert "    9  os\n" in out
    assert "   10  f8        m8.py:2\n    9  f7        m7.py:2\n\n" in out
    assert "old.py" in out
    assert "10 files, 64 lines, 9 functions, 1 modules imported, 1 not parsed\n19 tasks in " in out
    header, *progress = err.splitlines()
    assert header == f"10 files, 0.0 MB under {tmp_path}"
    assert [line.partition(" ")[0] for line in progress] == [
        "2/10",
        "4/10",
        "6/10",
        "8/10",
        "10/10",
    ]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is sent as a signal to a process group")
def test_ctrl_c_prints_one_line_and_leaves_nothing_running(start: Start, tmp_path: Path) -> None:
    # A few files that are done at once, then some that keep a worker in the parser for seconds. Not
    # longer: the parser holds the interpreter lock, and what was done before may wait for it.
    for i in range(4):
        (tmp_path / f"a{i}.py").write_text("import os\n")
    for i in range(6):
        (tmp_path / f"b{i}.py").write_text("x = [1, 2, 3]\n" * 100_000)
    script = start("--workers", "1", "--folder", tmp_path)
    assert script.stderr is not None
    script.stderr.readline()
    assert script.stderr.readline().startswith("2/10 files")
    descendants = psutil.Process(script.pid).children(recursive=True)
    os.killpg(script.pid, signal.SIGINT)
    out, err = script.communicate(timeout=60)
    assert script.returncode == 130, err
    assert out == ""
    *progress, last = err.splitlines()
    assert all("/10 files" in line for line in progress), err
    assert last.startswith("stdlib_report: interrupted after ")
    assert descendants
    _gone, alive = psutil.wait_procs(descendants, timeout=10)
    assert alive == []


@pytest.mark.slow
def test_script_reports_in_one_line_that_there_are_no_files(start: Start, tmp_path: Path) -> None:
    script = start("--folder", tmp_path)
    out, err = script.communicate(timeout=60)
    assert script.returncode == 1
    assert out == ""
    assert err.splitlines() == [f"stdlib_report: no Python sources under {tmp_path}"]
