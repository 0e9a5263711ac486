"""The kernel of the scheduler's core knows no feature, and stays small."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from weft.protocol.wire.options import OPTIONS as OPTIONS_OF_TASKS
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState

CORE = Path(__file__).resolve().parents[3] / "scheduler" / "core"
#: The rooms of the kernel; it is also what lies beside the rooms, but for the list of features.
ROOMS = ("records", "moves", "requests", "assignment", "reports", "members")
KERNEL = sorted(
    path
    for path in CORE.rglob("*.py")
    if (path.parent == CORE and path.name != "features.py") or path.parent.name in ROOMS
)
FEATURE_ROOMS = {path.parent.name for path in CORE.glob("*/__init__.py")} - {*ROOMS}
#: What is an option for a feature alone.
OPTIONS = {"timeout_us", "actor", "scattered", "span", "meta"}


@cache
def words(path: Path) -> set[str]:
    """Return the names that occur in the code of a module."""
    source = io.StringIO(path.read_text(encoding="utf-8"))
    tokens = tokenize.generate_tokens(source.readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def in_kernel(names: set[str]) -> set[tuple[str, str]]:
    """Return where the kernel has one of these names."""
    return {(path.name, name) for path in KERNEL for name in words(path) & names}


def trees_of_features() -> Iterator[ast.Module]:
    for room in FEATURE_ROOMS:
        for path in (CORE / room).glob("*.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def test_the_kernel_imports_no_module_of_a_feature():
    found = set()
    for path in KERNEL:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == len(path.relative_to(CORE).parts):
                names = [node.module or ""] if node.module else [a.name for a in node.names]
                found |= {(path.name, name.split(".")[0]) for name in names}
    assert {name for _, name in found}.isdisjoint(FEATURE_ROOMS)


def test_the_kernel_names_no_class_of_a_feature():
    classes = {
        node.name
        for tree in trees_of_features()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    assert len(classes) > 50
    assert not in_kernel(classes)


def test_the_kernel_names_no_message_that_a_feature_handles():
    messages = {kind.__name__ for feature in FEATURES for kind in feature.handlers}
    assert len(messages) > 15
    # The seam has the type of questions, whichever feature answers them.
    assert in_kernel(messages) == {("feature.py", "Ask")}


def test_the_kernel_names_no_option_of_a_feature():
    assert {*OPTIONS_OF_TASKS} >= OPTIONS
    assert not in_kernel(OPTIONS)


def test_the_kernel_is_small():
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in KERNEL)
    assert lines <= 7500
    assert len(vars(SchedulerState(1, features=FEATURES))) <= 60


def test_the_door_imports_few_modules():
    imported = set()
    for node in ast.parse((CORE / "state.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            # Of a room, each name is a module.
            module = (CORE / (node.module or "").replace(".", "/")).with_suffix(".py")
            is_room = node.level == 1 and not module.exists()
            imported |= {(node.module, a.name if is_room else "") for a in node.names}
    assert 10 < len(imported) <= 15
