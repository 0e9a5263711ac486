"""Attributes are changed, and all of it is taken back."""

from __future__ import annotations

import os
import sys
import threading
from types import ModuleType

import pytest

from weft.compat.patching import Patches, alone


def old():
    return "old"


def new():
    return "new"


@pytest.fixture
def modules(monkeypatch):
    """Make a module that has a function, and one that has imported it."""
    made = [ModuleType("weft_has_it"), ModuleType("weft_imports_it")]
    for module in made:
        module.function = old
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def test_a_name_is_replaced_where_it_was_imported_and_put_back_everywhere(modules):
    has, imports = modules
    patches = Patches()
    assert not patches
    patches.replace(has, "function", old, new)
    assert patches
    patches.replace_imported()
    assert (has.function, imports.function) == (new, new)
    imports.later = new
    patches.undo()
    assert (has.function, imports.function, imports.later) == (old, old, old)
    assert not patches


def test_modules_of_one_package_may_be_left_alone(modules):
    has, imports = modules
    patches = Patches()
    patches.replace(has, "function", old, new)
    patches.replace_imported(but_in="weft_imports_it")
    assert imports.function is old
    patches.undo()
    assert has.function is old


def test_an_attribute_that_was_added_is_removed():
    class Owner:
        there = 1

    entries = {"there": 1}
    before = dict(vars(Owner))
    patches = Patches()
    for name in ("there", "not_there"):
        patches.set(Owner, name, 2)
        patches.replace_item(entries, name, 2)
    assert (Owner.there, Owner.not_there, entries) == (2, 2, {"there": 2, "not_there": 2})
    patches.undo()
    assert dict(vars(Owner)) == before
    assert entries == {"there": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent():
    held, ends = threading.Event(), threading.Event()

    def hold():
        with alone():
            held.set()
            ends.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if alone().acquire(blocking=False) else 1)
    ends.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_base_is_added_and_removed():
    class Base(Exception):
        pass

    class Added(Exception):
        pass

    class Derived(Base):
        pass

    patches = Patches()
    patches.add_base(Derived, Added)
    with pytest.raises(Added):
        raise Derived
    patches.undo()
    assert Derived.__bases__ == (Base,)
