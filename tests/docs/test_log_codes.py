"""Each warning and error that weft's processes log has a code, which the reference explains."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "log_codes.md"
#: The sources of weft's own processes; the client is in a process of the user.
FOLDERS = ("protocol", "scheduler", "worker", "deploy")
LEVELS = ("warning", "error", "exception", "critical")
ROW = re.compile(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)

CODES = [code for code, _, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))]


def calls(text: str) -> Iterator[tuple[ast.Call, bool]]:
    """Yield the calls that log a warning or an error; True = by a core, which has no logger."""
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        who, what = ast.unparse(node.func.value), node.func.attr
        level = ast.unparse(node.args[0]) if node.args else ""
        if who == "state" and what == "log":
            if level != "'info'":
                yield node, True
        elif re.search(r"(^|[._])log(ger)?$", who) and (
            what in LEVELS or (what == "log" and may_warn(level))
        ):
            yield node, False


def may_warn(level: str) -> bool:
    """Return whether the level may be one of a warning or an error; of a variable it may."""
    named = set(re.findall(r"logging\.([A-Z]+)", level))
    return not named or not named <= {"DEBUG", "INFO"}


def code_of(call: ast.Call, *, is_of_core: bool) -> str:
    """Return the code that a call gives, "" if it has none, "..." if it passes on one."""
    if is_of_core:
        found = call.args[2] if len(call.args) > 2 else ast.Constant("")
        return found.value if isinstance(found, ast.Constant) else "..."
    extra = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
    for node in (part for value in extra for part in ast.walk(value)):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "code":
                    return value.value if isinstance(value, ast.Constant) else "..."
    return "..." if any(isinstance(value, ast.Name) for value in extra) else ""


@pytest.fixture(scope="module")
def given() -> list[tuple[str, str]]:
    """Return place and code of each call."""
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            for call, is_of_core in calls(text) if "log" in text else ():
                code = code_of(call, is_of_core=is_of_core)
                found.append((f"{path.relative_to(ROOT)}:{call.lineno}", code))
    return found


def test_each_warning_has_a_code_of_the_table(given):
    assert len(given) > 70
    assert [place for place, code in given if code not in {*CODES, "..."}] == []


def test_few_calls_pass_on_a_code(given):
    assert sum(code == "..." for _, code in given) <= 2


def test_each_code_of_the_table_is_used(given):
    assert {*CODES} - {code for _, code in given} == set()


def test_the_codes_are_in_order():
    assert sorted(set(CODES)) == CODES


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ('_log.warning("%s", 1, extra={"code": "a-code"})', "a-code"),
        ('self._log.error("an error")', ""),
        ('logger.log(level, "%s", 1)', ""),
        ('state.log("warning", "a line")', ""),
        ('state.log("error", text, "a-code")', "a-code"),
    ],
)
def test_the_code_of_a_call_is_found(line: str, code: str) -> None:
    ((call, is_of_core),) = calls(line)
    assert code_of(call, is_of_core=is_of_core) == code


@pytest.mark.parametrize("line", ['state.log("info", "a line")', 'logger.log(logging.INFO, "")'])
def test_other_lines_need_no_code(line: str) -> None:
    assert [*calls(line)] == []
