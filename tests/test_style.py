"""Rules of the house that no linter has, checked on every file of the tree."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
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


#: Written at build time, and not in git.
GENERATED = {"protocol/wire/coders.py"}
PYTHON_FILES = [name for path in tree(".py") if (name := name_of(path)) not in GENERATED]
TEXT_FILES = [name_of(path) for path in tree(*TEXT_SUFFIXES)]

#: Yields where a file breaks a rule. The trees of all files at once would fill the memory, so each
#: file is read and parsed once, for all rules.
Rule = Callable[[str, list[ast.AST]], Iterator[int | str]]
#: {rule: what the text of each file that breaks it contains}
RULES: dict[Rule, re.Pattern[str]] = {}


def rule(hint: str) -> Callable[[Rule], Rule]:
    def decorate(function: Rule) -> Rule:
        RULES[function] = re.compile(hint)
        return function

    return decorate


@pytest.fixture(scope="module")
def breaches() -> dict[Rule, dict[str, list[int | str]]]:
    """Where each file breaks each rule: lines, or names."""
    found: dict[Rule, dict[str, list[int | str]]] = {check: {} for check in RULES}
    for name in PYTHON_FILES:
        text = text_of(name)
        checks = [check for check, hint in RULES.items() if hint.search(text)]
        nodes = [*ast.walk(ast.parse(text, name))] if checks else []
        for check in checks:
            if where := [*check(text, nodes)]:
                found[check][name] = where
    return found


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def below_tests(found: dict[str, list[int | str]]) -> dict[str, list[int | str]]:
    return {name: where for name, where in found.items() if name.startswith("tests/")}


def test_the_tree_was_found():
    assert {"protocol/__init__.py", "tests/test_style.py", ".ci/wheel_smoke.py"} <= {*PYTHON_FILES}
    assert {"Makefile", "LICENSE", "pyproject.toml", ".ci/run"} <= {*TEXT_FILES}
    assert not [name for name in TEXT_FILES if name.startswith((".venv", "weft/protocol"))]


def test_each_file_is_short_enough_to_read_at_one_go():
    lengths = {name: text_of(name).count("\n") for name in PYTHON_FILES}
    assert len(lengths) > 100
    found = {name: n_lines for name, n_lines in lengths.items() if n_lines > LINES_LIMIT}
    assert not found, f"{found}: lines; each of them is two files"


def test_nothing_is_left_over():
    found = {}
    for name in TEXT_FILES:
        text = text_of(name)
        if lines := [text.count("\n", 0, match.start()) + 1 for match in LEFTOVERS.finditer(text)]:
            found[name] = lines
    assert not found, f"{found}: finish it, or say it in an issue"


@rule(r"\bexcept\s*\(?\s*(:|Exception|BaseException)")
def swallowed_errors(text: str, nodes: list[ast.AST]) -> Iterator[int]:
    """`except Exception: pass` also hides errors that are bugs."""
    for node in nodes:
        if (
            isinstance(node, ast.ExceptHandler)
            and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
            and all(isinstance(line, (ast.Pass, ast.Continue)) for line in node.body)
        ):
            yield node.lineno


def test_no_error_is_swallowed(breaches):
    found = breaches[swallowed_errors]
    assert not found, f"{found}: name the errors that are expected, and why"


@rule(r"\bsleep\b")
def sleeping_lines(text: str, nodes: list[ast.AST]) -> Iterator[int]:
    lines = text.splitlines()
    for node in nodes:
        if isinstance(node, ast.Call) and sleeps(node) and WORKLOAD not in lines[node.lineno - 1]:
            yield node.lineno


def test_tests_wait_for_conditions_and_do_not_sleep(breaches):
    found = below_tests(breaches[sleeping_lines])
    assert {*found} >= MAY_SLEEP
    found = {name: where for name, where in found.items() if name not in MAY_SLEEP}
    assert not found, f"{found}: use wait_until; a task that sleeps says '{WORKLOAD}' on the line"


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


@rule(r"\b(Who|Whose|Whoever|he|his|himself|for people)\b")
def personal_prose(text: str, nodes: list[ast.AST]) -> Iterator[int]:
    """Yield the lines of comments and docstrings with such words."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if (is_docstring or token.type == tokenize.COMMENT) and PERSONAL.search(token.string):
            yield token.start[0]


def test_comments_and_docstrings_are_plain_sentences(breaches):
    found = breaches[personal_prose]
    assert not found, f"{found}: name the peer, caller or user; a process is 'it'"


@pytest.mark.parametrize(
    "line", ["# Who asks is answered.", '"""Closes himself."""', "# for people"]
)
def test_personal_words_are_found(line):
    assert PERSONAL.search(line)
    assert not PERSONAL.search("# The peer that asks is answered; whoever")


#: Beginnings of test names without a noun for the thing that is tested.
LEANING = re.compile(r"test_(so|it|its|that|what|who|whose|whoever|nobody|somebody)_")


@rule(LEANING.pattern)
def leaning_names(text: str, nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and LEANING.match(node.name):
            yield node.name


def test_names_of_tests_stand_without_their_neighbours(breaches):
    found = below_tests(breaches[leaning_names])
    assert not found, f"{found}: name what is tested"
