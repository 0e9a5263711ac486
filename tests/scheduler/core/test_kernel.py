"""The kernel of the scheduler's core knows no feature, and stays small."""

from __future__ import annotations

import ast
import io
import re
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
FEATURE_MODULES = {path.stem for room in FEATURE_ROOMS for path in (CORE / room).glob("*.py")}
#: The options of a task that the kernel reads; all others are for features alone.
OPTIONS = {
    "priority",
    "retries",
    "pauses",
    "workers",
    "allow_other_workers",
    "resources",
    "attempt",
    "delivered",
}
#: What no text and no comment of the kernel speaks of.
WORDS = re.compile(
    r"\b(actor|plugin|scatter|relay|task.stream|retir|leaver|stocked|sole|recover|interrupt|shuffle"
    r"|coordination|dataset|latch|semaphore|topic|admission|relief|command|credential"
    r"|explain|insight|output|persist|print)",
    re.IGNORECASE,
)


@cache
def tokens(path: Path) -> list[tokenize.TokenInfo]:
    source = io.StringIO(path.read_text(encoding="utf-8"))
    return list(tokenize.generate_tokens(source.readline))


@cache
def words(path: Path) -> set[str]:
    """Return the names that occur in the code of a module."""
    return {token.string for token in tokens(path) if token.type == tokenize.NAME}


def texts(path: Path) -> Iterator[str]:
    """Return the comments, texts and parts of texts of a module."""
    others = (tokenize.NAME, tokenize.OP, tokenize.NUMBER)
    return (token.string for token in tokens(path) if token.type not in others)


def in_kernel(names: set[str]) -> set[tuple[str, str]]:
    """Return where the kernel has one of these names."""
    return {(path.name, name) for path in KERNEL for name in words(path) & names}


def trees_of_features() -> Iterator[ast.Module]:
    for room in FEATURE_ROOMS:
        for path in (CORE / room).glob("*.py"):
            yield ast.parse(path.read_text(encoding="utf-8"))


def imports_of(path: Path) -> Iterator[str]:
    """Yield the absolute names of all that a module imports, wherever in it."""
    package = ["weft", *path.parent.relative_to(CORE.parents[1]).parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            parts = [*above, node.module] if node.module else above
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def test_the_kernel_imports_no_module_of_a_feature():
    core = "weft.scheduler.core."
    names = [(path.name, name) for path in KERNEL for name in imports_of(path)]
    inside = [(who, name.removeprefix(core)) for who, name in names if name.startswith(core)]
    assert len(inside) > 100
    forbidden = FEATURE_ROOMS | {"features"}
    assert not [(who, name) for who, name in inside if name.split(".")[0] in forbidden]


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
    assert {name for _, name in in_kernel(OPTIONS)} == OPTIONS
    assert not in_kernel({*OPTIONS_OF_TASKS} - OPTIONS)


def test_the_kernel_cites_no_module_of_a_feature():
    known = {path.stem for path in KERNEL} | {*ROOMS}
    modules = (FEATURE_MODULES | FEATURE_ROOMS | {"features"}) - known
    cited = {
        (path.name, quoted)
        for path in KERNEL
        for text in texts(path)
        for quoted in re.findall(r"`([^`\n]+)`", text)
        if quoted.split(".")[0] in modules
    }
    # The seam says where the list of features is.
    assert cited == {("feature.py", "features.FEATURES")}


def test_no_text_of_the_kernel_speaks_of_a_feature():
    assert not [(path.name, text) for path in KERNEL for text in texts(path) if WORDS.search(text)]


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
