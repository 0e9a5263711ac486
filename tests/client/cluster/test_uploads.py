"""Modules, files and packages that clients send to workers in processes of their own."""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

import pytest

import weft

pytestmark = pytest.mark.slow


def answer_of(module: str) -> object:
    import importlib

    return importlib.import_module(module).answer()


def test_a_module_reaches_workers_and_another_version_replaces_it(apart, tmp_path):
    module = tmp_path / "weft_uploaded.py"
    module.write_text("def answer():\n    return 1\n")
    apart.upload_file(module)
    assert apart.submit(answer_of, "weft_uploaded").result() == 1
    module.write_text("def answer():\n    return 2\n")
    apart.upload_file(module)
    assert [*apart.run(answer_of, "weft_uploaded").values()] == [2, 2]
    apart.unregister_plugin("upload-weft_uploaded.py")
    with pytest.raises(ModuleNotFoundError):
        apart.submit(answer_of, "weft_uploaded", pure=False).result()


def test_functions_of_an_uploaded_module_are_the_new_ones(apart, tmp_path, monkeypatch):
    """A function is sent as a name: what a worker has unpickled before is not used any more."""
    module = tmp_path / "weft_beside.py"
    module.write_text("def twice(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import weft_beside  # type: ignore[import-not-found]

    apart.upload_file(str(module))
    assert apart.gather(apart.map(weft_beside.twice, [1, 2])) == [2, 4]
    module.write_text("def twice(x):\n    return x * 200\n")
    apart.upload_file(str(module))
    assert apart.gather(apart.map(weft_beside.twice, [1, 2], pure=False)) == [200, 400]
    monkeypatch.delitem(sys.modules, "weft_beside")


def test_a_package_beside_a_script_reaches_workers(apart, tmp_path):
    package = tmp_path / "weft_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("from .inner.deep import answer\n")
    (package / "inner" / "__init__.py").write_text("")
    (package / "inner" / "deep.py").write_text("def answer():\n    return 'deep'\n")
    apart.upload_file(package)
    assert {*apart.run(answer_of, "weft_package").values()} == {"deep"}


def test_an_archive_reaches_workers(apart, tmp_path):
    archive = tmp_path / "weft_archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("weft_zipped/__init__.py", "def answer():\n    return 'zip'\n")
    apart.upload_file(archive)
    assert apart.submit(answer_of, "weft_zipped").result() == "zip"


def test_a_data_file_is_in_the_folder_of_the_worker(apart, tmp_path):
    data = tmp_path / "weft_data.csv"
    data.write_text("1,2")
    apart.upload_file(data)

    def read():
        worker = weft.get_worker()
        path = worker.plugins["upload-weft_data.csv"].path
        return path == os.path.join(worker.local_directory, "weft_data.csv"), open(path).read()

    assert apart.submit(read).result() == (True, "1,2")
    folders = {*apart.run(lambda: weft.get_worker().local_directory).values()}
    data.write_text("3,4")
    apart.upload_file(data)
    assert apart.submit(read, pure=False).result() == (True, "3,4")
    apart.unregister_plugin("upload-weft_data.csv")
    assert not [folder for folder in folders if Path(folder, "weft_data.csv").exists()]


def uploads_on_path() -> list[str]:
    return [entry for entry in sys.path if "weft-upload-" in entry]


def test_an_upload_that_never_ends_can_be_given_up_and_mended(apart, tmp_path):
    module = tmp_path / "weft_endless.py"
    module.write_text("while True:\n    pass\n")
    with pytest.raises(TimeoutError, match=r"'upload-weft_endless.py' is not set up on 2 of 2"):
        apart.upload_file(module, timeout=0.5)
    apart.unregister_plugin("upload-weft_endless.py")
    module.write_text("def answer():\n    return 1\n")
    apart.upload_file(module)
    assert [*apart.run(answer_of, "weft_endless").values()] == [1, 1]


def test_a_module_with_an_error_is_refused_where_it_is_uploaded(apart, tmp_path):
    module = tmp_path / "weft_wrong.py"
    module.write_text("1 / 0\n")
    before = apart.run(uploads_on_path)
    with pytest.raises(ZeroDivisionError):
        apart.upload_file(module)
    assert apart.run(uploads_on_path) == before, "it hides no module that is installed"
    with pytest.raises(FileNotFoundError):
        apart.upload_file(tmp_path / "nothing.py")
    with pytest.raises(ValueError, match="is a directory"):
        weft.UploadFile(tmp_path)
    with pytest.raises(ValueError, match="is no directory"):
        weft.UploadDirectory(module)
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ValueError, match="would hide the module 'json', which workers need"):
        apart.upload_file(tmp_path / "json.py")
    (tmp_path / "weft").mkdir()
    (tmp_path / "weft" / "__init__.py").write_text("")
    with pytest.raises(ValueError, match="would hide the module 'weft', which workers need"):
        apart.upload_file(tmp_path / "weft")


def test_variables_are_set_and_restored(apart):
    apart.register_plugin(weft.Environ({"WEFT_TEST_VARIABLE": 3}), name="variables")
    assert {*apart.run(os.getenv, "WEFT_TEST_VARIABLE").values()} == {"3"}
    apart.unregister_plugin("variables")
    assert {*apart.run(os.getenv, "WEFT_TEST_VARIABLE").values()} == {None}


def wheel(folder: Path) -> Path:
    """Make the smallest wheel."""
    path = folder / "weft_wheel-1.0-py3-none-any.whl"
    about = "weft_wheel-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("weft_wheel.py", "def answer():\n    return 'wheel'\n")
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: weft_wheel\nVersion: 1\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")
    return path


def test_packages_are_installed_once_per_machine(apart, tmp_path):
    target = tmp_path / "target"
    log = tmp_path / "log"
    options = ["--no-index", "--no-deps", "--target", str(target), "--log", str(log)]
    apart.register_plugin(weft.PipInstall([str(wheel(tmp_path))], pip_options=options))
    assert (target / "weft_wheel.py").exists()
    assert log.read_text().count("Successfully installed weft-wheel") == 1


def test_a_failed_installation_shows_what_pip_has_printed(apart):
    plugin = weft.PipInstall(["weft-wheel"], pip_options=["--nonsense"])
    with pytest.raises(RuntimeError, match="no such option: --nonsense"):
        apart.register_plugin(plugin)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: weft.PipInstall("numpy"), "lists of texts"),
        (lambda: weft.PipInstall([]), "at least one"),
        (lambda: weft.Environ(["A=1"]), "a mapping"),
    ],
)
def test_arguments_of_ready_made_plugins_are_checked(make, text):
    with pytest.raises((TypeError, ValueError), match=text):
        make()
