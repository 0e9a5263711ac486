"""The kernel of the worker's core knows no feature."""

from __future__ import annotations

from tests.kernel_source import KernelSource
from weft.worker.core.features import FEATURES

KERNEL = KernelSource("worker", beside=("actors", "commands", "output", "plugins"))
#: The options of a task that the kernel reads; all others are for features alone.
OPTIONS = {"priority", "attempt", "resources"}


def test_the_kernel_imports_no_module_of_a_feature():
    assert not KERNEL.imports()


def test_the_kernel_names_no_class_of_a_feature():
    assert not KERNEL.classes()


def test_the_kernel_names_no_message_of_a_feature():
    handled = {kind for feature in FEATURES for kind in (*feature.messages, *feature.events)}
    assert len(handled) > 10
    assert not KERNEL.messages(handled)


def test_the_kernel_names_no_option_of_a_feature():
    assert KERNEL.options() == OPTIONS


def test_the_kernel_cites_no_module_of_a_feature():
    # The seam says where the list of features is.
    assert KERNEL.cited() == {("feature.py", "features.FEATURES")}


def test_the_kernel_does_not_speak_of_a_feature():
    assert not KERNEL.words()
