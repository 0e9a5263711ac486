"""Rules of the house that no linter has, checked on every file of the tree."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINES_LIMIT = 600

#: Texts that a finished file does not contain. Split, so that this file does not contain them.
LEFTOVERS = re.compile(
    r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|\bbreakpoint\(\)|^(<{7}|>{7}) |^={7}$", re.MULTILINE
)
#: A task that sleeps is a workload, not a wait; its line has this comment.
WORKLOAD = "# workload"
#: The only file that sleeps, in `wait_until`.
MAY_SLEEP = {"tests/leaks.py"}

TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".cfg", ".yaml", ".yml", ".sh", ".html", ".js", ""}


def tree(*suffixes: str) -> Iterator[Path]:
    """Yield every file of the project with one of `suffixes`, except links and built files."""
    folders = [ROOT]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path.is_symlink() or path.name in {"__pycache__", "build", "dist"}:
                continue
            if path.is_dir():
                if (path.name == ".ci" or not path.name.startswith(".")) and not path.name.endswith(
                    ".egg-info"
                ):
                    folders.append(path)
            elif path.suffix in suffixes:
                yield path


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


PYTHON_FILES = [name_of(path) for path in tree(".py")]
TEXT_FILES = [name_of(path) for path in tree(*TEXT_SUFFIXES)]


def parse(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text(encoding="utf-8"), name)


def test_the_tree_was_found():
    assert {"protocol/__init__.py", "tests/test_style.py", ".ci/wheel_smoke.py"} <= {*PYTHON_FILES}
    assert {"Makefile", "LICENSE", "pyproject.toml", ".ci/run"} <= {*TEXT_FILES}
    assert not [name for name in TEXT_FILES if name.startswith((".venv", "weft/protocol"))]


@pytest.mark.parametrize("name", [n for n in PYTHON_FILES if not n.startswith("tests/")])
def test_file_is_short_enough_to_read_at_one_go(name):
    n_lines = (ROOT / name).read_text(encoding="utf-8").count("\n")
    assert n_lines <= LINES_LIMIT, f"{name} has {n_lines} lines: it is two files"


@pytest.mark.parametrize("name", TEXT_FILES)
def test_nothing_is_left_over(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    found = [text.count("\n", 0, match.start()) + 1 for match in LEFTOVERS.finditer(text)]
    assert not found, f"{name}, lines {found}: finish it, or say it in an issue"


@pytest.mark.parametrize("name", PYTHON_FILES)
def test_no_error_is_swallowed(name):
    """`except Exception: pass` also hides errors that are bugs."""
    found = [
        handler.lineno
        for handler in ast.walk(parse(name))
        if isinstance(handler, ast.ExceptHandler)
        and (handler.type is None or ast.unparse(handler.type) in {"Exception", "BaseException"})
        and all(isinstance(line, (ast.Pass, ast.Continue)) for line in handler.body)
    ]
    assert not found, f"{name}, lines {found}: name the errors that are expected, and why"


@pytest.mark.parametrize(
    "name", [n for n in PYTHON_FILES if n.startswith("tests/") and n not in MAY_SLEEP]
)
def test_tests_wait_for_conditions_and_do_not_sleep(name):
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    found = [
        call.lineno
        for call in ast.walk(parse(name))
        if isinstance(call, ast.Call) and sleeps(call) and WORKLOAD not in lines[call.lineno - 1]
    ]
    assert not found, (
        f"{name}, lines {found}: use wait_until; a task that sleeps says '{WORKLOAD}' on the line"
    )


def sleeps(call: ast.Call) -> bool:
    """Return whether this is a call of sleep; `asyncio.sleep(0)` only lets others run."""
    if ast.unparse(call.func) not in {"sleep", "time.sleep", "asyncio.sleep"}:
        return False
    return ast.unparse(call) != "asyncio.sleep(0)"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("time.sleep(1)", True),
        ("sleep(0.1)", True),
        ("asyncio.sleep(0.1)", True),
        ("asyncio.sleep(0)", False),
        ("thread.join(1)", False),
    ],
)
def test_sleeps_knows_a_sleep(code, expected):
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert sleeps(call) is expected


#: Words of no technical text: a sentence without a subject, a process as a person.
PERSONAL = re.compile(r"^\W*(Who|Whose|Whoever) |\b(he|his|himself)\b|\bfor people\b", re.MULTILINE)


def prose_of(name: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each comment and docstring."""
    source = (ROOT / name).read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if is_docstring or token.type == tokenize.COMMENT:
            yield token.start[0], token.string


@pytest.mark.parametrize("name", PYTHON_FILES)
def test_comments_and_docstrings_are_plain_sentences(name):
    found = [line for line, text in prose_of(name) if PERSONAL.search(text)]
    assert not found, f"{name}, lines {found}: name the peer, caller or user; a process is 'it'"


@pytest.mark.parametrize(
    "line", ["# Who asks is answered.", '"""Closes himself."""', "# for people"]
)
def test_personal_words_are_found(line):
    assert PERSONAL.search(line)
    assert not PERSONAL.search("# The peer that asks is answered; whoever")


#: Beginnings of test names without a noun for the thing that is tested.
LEANING = re.compile(r"test_(so|it|its|that|what|who|whose|whoever|nobody|somebody)_")


@pytest.mark.parametrize("name", [n for n in PYTHON_FILES if n.startswith("tests/")])
def test_names_of_tests_stand_without_their_neighbours(name):
    found = [
        node.name
        for node in ast.walk(parse(name))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and LEANING.match(node.name)
    ]
    assert not found, f"{name}: {found}: name what is tested"
