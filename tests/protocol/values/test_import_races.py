"""Two threads that import modules which import each other, by unpickling."""

from __future__ import annotations

import sys
import threading
import time
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location

import pytest

from weft.protocol.values.serialize import loads, loads_arguments


class SlowLoader(SourceFileLoader):
    """Takes its time between locking a module and adding it to `sys.modules`."""

    def create_module(self, spec):
        time.sleep(0.3)


class SlowFinder:
    """Finds one package."""

    def __init__(self, folder):
        self.folder = folder

    def find_spec(self, name, path=None, target=None):
        if name != self.folder.name:
            return None
        path = self.folder / "__init__.py"
        return spec_from_file_location(name, path, loader=SlowLoader(name, str(path)))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that imports its module, which imports it."""
    name = "weft_circular"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text(f"import {name}.part\ndef outer(): pass\n")
    (folder / "part.py").write_text(f"import {name}\ndef inner(): pass\n")
    # One thread waits for the package, and has locked the module.
    monkeypatch.setattr(sys, "meta_path", [SlowFinder(folder), *sys.meta_path])
    yield name
    for module in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[module]


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
def test_threads_that_import_a_circular_package_at_once_do_not_fail(package, read, end):
    names = {"outer": package, "inner": f"{package}.part"}
    found = []
    threads = [
        threading.Thread(target=name_of, args=(read, f"c{module}\n{name}\n".encode() + end, found))
        for name, module in names.items()
    ]
    for thread in threads:
        thread.start()
        time.sleep(0.1)
    for thread in threads:
        thread.join(20)
    assert sorted(found) == sorted(names)


def test_a_module_that_is_not_there_is_an_error_at_once(tmp_path, monkeypatch):
    (tmp_path / "weft_broken.py").write_text("from time import no_such_name\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    began_s = time.monotonic()
    with pytest.raises(ModuleNotFoundError, match="weft_absent"):
        loads(b"cweft_absent\nf\n.")
    with pytest.raises(ImportError, match="no_such_name"):
        loads(b"cweft_broken\nf\n.")
    assert time.monotonic() - began_s < 1


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
