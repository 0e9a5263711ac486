"""Two threads that import modules which import each other, by unpickling."""

from __future__ import annotations

import sys
import threading
import types
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location

import pytest

from weft.protocol.values import import_races
from weft.protocol.values.pickling import registered_modules
from weft.protocol.values.serialize import loads, loads_arguments


class SlowLoader(SourceFileLoader):
    """Waits between locking a module and adding it to `sys.modules`."""

    def __init__(self, name, path, wait):
        super().__init__(name, path)
        self.wait = wait

    def create_module(self, spec):
        self.wait()


class SlowFinder:
    """Finds one package."""

    def __init__(self, folder, wait):
        self.folder = folder
        self.wait = wait

    def find_spec(self, name, path=None, target=None):
        if name != self.folder.name:
            return None
        path = str(self.folder / "__init__.py")
        return spec_from_file_location(name, path, loader=SlowLoader(name, path, self.wait))


def waits_for_an_import(thread):
    code = sys._current_frames()[thread.ident].f_code
    return code.co_filename.startswith("<frozen importlib") and code.co_name == "acquire"


def name_of(read, blob, found):
    try:
        found.append(read(blob).__name__)
    except BaseException as error:
        found.append(repr(error))


def first_argument(blob):
    (argument,), _ = loads_arguments(blob)
    return argument


@pytest.mark.parametrize(
    ("read", "end"),
    [(loads, b"."), (first_argument, b"\x85.")],
    ids=["a value", "arguments"],
)
def test_threads_that_import_a_circular_package_at_once_do_not_fail(
    tmp_path, monkeypatch, wait_until, read, end
):
    package = tmp_path / "weft_circular"
    package.mkdir()
    (package / "__init__.py").write_text(f"import {package.name}.part\ndef outer(): pass\n")
    (package / "part.py").write_text(f"import {package.name}\ndef inner(): pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []

    def thread_of(module, name):
        blob = f"c{module}\n{name}\n".encode() + end
        return threading.Thread(target=name_of, args=(read, blob, found))

    outer = thread_of(package.name, "outer")
    inner = thread_of(f"{package.name}.part", "inner")

    def wait():
        if threading.current_thread() is outer and inner.ident is None:
            inner.start()  # which locks the module, and waits for the package
            wait_until(lambda: waits_for_an_import(inner))

    monkeypatch.setattr(sys, "meta_path", [SlowFinder(package, wait), *sys.meta_path])
    outer.start()
    outer.join(20)
    inner.join(20)
    for module in [module for module in sys.modules if module.startswith(package.name)]:
        del sys.modules[module]
    assert sorted(found) == ["inner", "outer"]


def test_a_module_that_is_not_there_is_an_error_at_once(monkeypatch):
    monkeypatch.setattr(import_races, "_PAUSES_S", (1e9,))
    with pytest.raises(ModuleNotFoundError, match="weft_absent"):
        loads(b"cweft_absent\nf\n.")


def test_an_import_that_always_fails_in_this_way_ends_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "weft_half.py").write_text("from weft_half import later\nlater = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ImportError, match="partially initialized"):
        loads(b"cweft_half\nlater\n.")


def test_a_module_that_another_thread_has_taken_away_is_imported_again(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "_missed", [])
    (tmp_path / "weft_gone.py").write_text(
        f"import sys\nfrom {__name__} import _missed\n"
        "if not _missed:\n    _missed.append(1)\n    del sys.modules[__name__]\n"
        "def there(): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert loads(b"cweft_gone\nthere\n.").__name__ == "there"
    del sys.modules["weft_gone"]


def test_a_cloudpickle_that_is_being_imported_has_no_registered_modules(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", types.ModuleType("cloudpickle"))
    assert registered_modules() == set()
