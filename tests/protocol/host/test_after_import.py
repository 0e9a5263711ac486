"""Functions that are called when a module was imported."""

from __future__ import annotations

import builtins
import importlib
import sys
import threading

import pytest

from weft.protocol.host.after_import import after_import, forget, loaded_module

NAME = "weft_module_of_this_test"


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Make a module that can be imported, and forget it at the end."""
    path = tmp_path / f"{NAME}.py"
    path.write_text("ready = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    n_finders = len(sys.meta_path)
    yield path
    sys.modules.pop(NAME, None)
    assert len(sys.meta_path) == n_finders


def test_a_function_is_called_once_when_the_module_has_been_executed(module):
    seen = []

    def note(found):
        seen.append(found.ready)

    after_import(NAME, note)
    after_import(NAME, note)
    assert loaded_module(NAME) is None
    importlib.import_module("json")
    assert seen == []
    assert loaded_module(NAME) is None
    found = importlib.import_module(NAME)
    assert (seen, loaded_module(NAME)) == ([True], found)
    assert "exec_module" not in vars(found.__loader__)


def test_a_module_that_is_loaded_already_is_handed_over_at_once(module):
    found = importlib.import_module(NAME)
    seen = []
    after_import(NAME, seen.append)
    assert seen == [found]


def test_a_function_that_is_forgotten_is_not_called(module):
    seen, kept = [], []
    after_import(NAME, seen.append)
    forget(NAME, seen.append)
    forget(NAME, seen.append)
    after_import(NAME, kept.append)
    importlib.import_module(NAME)
    assert (seen, len(kept)) == ([], 1)


def test_a_function_may_wait_for_a_module_while_another_module_is_sought(module):
    """As a finder does that imports something of its own."""
    seen = []

    class Importing:
        def find_spec(self, name, path=None, target=None):
            if name == NAME:
                after_import(f"{NAME}_2", seen.append)
                forget(f"{NAME}_2", seen.append)

    sys.meta_path.insert(0, finder := Importing())
    try:
        after_import(NAME, seen.append)
        found = importlib.import_module(NAME)
    finally:
        sys.meta_path.remove(finder)
    assert seen == [found]


def test_a_module_that_another_thread_is_importing_is_waited_for(module, monkeypatch):
    module.write_text("import builtins\nbuiltins.weft_test_wait()\nready = True\n")
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def wait():
        begun.set()
        assert go_on.wait(20)

    monkeypatch.setattr(builtins, "weft_test_wait", wait, raising=False)
    importer = threading.Thread(target=importlib.import_module, args=(NAME,))
    other = threading.Thread(target=after_import, args=(NAME, lambda m: seen.append(m.ready)))
    importer.start()
    assert begun.wait(20)
    other.start()
    go_on.set()
    other.join(20)
    importer.join(20)
    assert seen == [True]
