"""The kernel of the scheduler's core knows no feature, and stays small."""

from __future__ import annotations

import ast

from tests.kernel_source import ROOT, KernelSource, tree_of
from weft.scheduler.core.features import FEATURES
from weft.scheduler.core.state import SchedulerState

ROOMS = ("records", "moves", "requests", "assignment", "reports", "members")
KERNEL = KernelSource("scheduler", ROOMS)
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
#: Beginnings of words of its features, of which its texts do not speak.
WORDS = (
    "retir|leaver|stocked|sole|recover|interrupt|dataset|latch|semaphore|admission|relief"
    "|credential|explain|insight|persist|print"
)


def test_the_kernel_imports_no_module_of_a_feature():
    assert not KERNEL.imports()


def test_the_kernel_names_no_class_of_a_feature():
    assert not KERNEL.classes()


def test_the_kernel_names_no_message_of_a_feature():
    handled = {kind for feature in FEATURES for kind in feature.handlers}
    assert len(handled) > 15
    # The seam has the type of questions, whichever feature answers them.
    assert KERNEL.messages(handled) == {("feature.py", "Ask")}


def test_the_kernel_names_no_option_of_a_feature():
    assert KERNEL.options() == OPTIONS


def test_the_kernel_cites_no_module_of_a_feature():
    # The seam says where the list of features is.
    assert KERNEL.cited() == {("feature.py", "features.FEATURES")}


def test_the_kernel_does_not_speak_of_a_feature():
    # What a task waits for is a column of a report, and is noted for features.
    assert KERNEL.words(WORDS) == {("blocked.py", "actors")}


def test_the_kernel_is_small():
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in KERNEL.modules)
    assert lines <= 7500
    assert len(vars(SchedulerState(1, features=FEATURES))) <= 60


def test_the_door_imports_few_modules():
    core = ROOT / "scheduler" / "core"
    imported = set()
    for node in tree_of(core / "state.py").body:
        if isinstance(node, ast.ImportFrom) and node.level:
            # Of a room, each name is a module.
            module = (core / (node.module or "").replace(".", "/")).with_suffix(".py")
            is_room = node.level == 1 and not module.exists()
            imported |= {(node.module, a.name if is_room else "") for a in node.names}
    assert 10 < len(imported) <= 15
