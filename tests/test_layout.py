"""The source folders, the links in weft/ and pyproject.toml describe the same package.

Each test covers a defect that an editable install does not show: a folder that the
wheel lacks, a missing link, a module that can be imported twice.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
from itertools import chain
from pathlib import Path

import pytest

import weft
from tests.thorough import THOROUGH
from weft.protocol import errors

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it where tomllib is missing

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ["client", "deploy", "protocol", "scheduler", "worker"]
#: Packages that lie beside the façade.
BESIDE = ["compat", "graphs"]
#: Where source lies: the five folders, and what lies beside the façade.
ROOMS = [*FOLDERS, *(f"weft/{name}" for name in BESIDE)]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]

#: Imported where they are needed, never by `import weft`.
HEAVY = {
    "asyncio",
    "click",
    "cloudpickle",
    "cryptography",
    "msgpack",
    "numpy",
    "pandas",
    "pickle",
    "prometheus_client",
    "psutil",
    "pyarrow",
    "tornado",
    "uvloop",
}


def python(*arguments: str, cwd: Path = ROOT) -> str:
    """Run a fresh interpreter in `cwd`; return what it printed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def sources(folder: str) -> list[Path]:
    found = sorted((ROOT / folder).rglob("*.py"))
    # What has a pyproject.toml of its own is another distribution.
    others = [path.parent for path in (ROOT / folder).rglob("pyproject.toml")]
    return [path for path in found if not any(map(path.is_relative_to, others))]


def package_of(source: Path) -> list[str]:
    """Return the package of a module, as its parts."""
    parts = source.parent.relative_to(ROOT).parts
    return [*parts] if parts[0] == "weft" else ["weft", *parts]


def test_every_folder_with_code_is_a_listed_package():
    on_disk = {"weft"}
    for folder in ROOMS:
        for source in sources(folder):
            on_disk.add(".".join(package_of(source)))
    assert set(SETUPTOOLS["packages"]) == on_disk
    assert len(SETUPTOOLS["packages"]) == len(on_disk)


def test_every_package_has_an_init():
    for package in SETUPTOOLS["packages"]:
        below = package.removeprefix("weft.").replace(".", "/")
        folder = ROOT / ("weft" if below.split("/")[0] in BESIDE else "") / below
        assert (folder / "__init__.py").is_file(), folder


def test_package_dir_maps_each_folder():
    expected = {"weft": "weft"} | {f"weft.{folder}": folder for folder in FOLDERS}
    assert SETUPTOOLS["package-dir"] == expected


@pytest.mark.skipif(sys.platform == "win32", reason="a clone there has no symbolic links")
def test_weft_holds_the_facade_and_one_link_for_each_folder():
    links = {p.name: os.readlink(p) for p in (ROOT / "weft").iterdir() if p.is_symlink()}
    assert links == {folder: f"../{folder}" for folder in FOLDERS}
    others = {p.name for p in (ROOT / "weft").iterdir() if not p.is_symlink()}
    modules = {"__init__.py", "__main__.py", "joblib.py", "multiprocessing.py", "threaded.py"}
    modules |= {"timeline.py"}
    assert others - {"__pycache__"} == modules | {"py.typed", *BESIDE}


def test_weft_is_imported_where_the_working_directory_holds_a_clone_called_weft(tmp_path):
    site = Path(sysconfig.get_path("purelib"))
    if any(site.glob("__editable___weft*")) and not (site / "weft-checkout.pth").exists():
        pytest.skip("`make` did not set up this environment: run `make lint`, for instance")
    (tmp_path / "weft").mkdir()
    assert python("-c", "import weft; print(weft.Client.__name__)", cwd=tmp_path) == "Client\n"


@pytest.mark.parametrize("folder", FOLDERS)
def test_folder_is_not_importable_under_its_bare_name(folder):
    code = f"""
try:
    import {folder}
except ImportError as error:
    print(error)
"""
    assert python("-c", code) == f"import weft.{folder}, not {folder}\n"


@pytest.mark.parametrize("folder", ROOMS)
def test_inside_imports_are_relative_and_leave_the_facade_alone(folder):
    for source in sources(folder):
        package = package_of(source)
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1]
                assert base, f"{source}:{node.lineno} reaches beyond weft"
                # `from .. import x` names the façade, unless x is one of the folders.
                reached = node.module is not None or base != ["weft"]
                assert reached or {alias.name for alias in node.names} <= {*FOLDERS, "graphs"}, (
                    f"{source}:{node.lineno} imports the façade"
                )
                continue
            else:
                continue
            for name in names:
                assert name.split(".")[0] not in {"weft", *FOLDERS}, f"{source}:{node.lineno}"


def under_the_contract_of_cores() -> set[str]:
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    (listed,) = [c["source_modules"] for c in contracts if c["name"].startswith("cores import no")]
    return {*listed}


def test_every_core_package_is_under_the_import_contract():
    listed = under_the_contract_of_cores()
    cores = {package for package in SETUPTOOLS["packages"] if package.endswith(".core")}
    assert cores | {"weft.protocol.errors", "weft.protocol.wire"} <= listed
    for module in listed - cores:
        path = ROOT / module.removeprefix("weft.").replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").is_file(), module


def test_every_module_that_calls_itself_pure_is_under_the_import_contract():
    listed = under_the_contract_of_cores()
    for source in chain.from_iterable(map(sources, ROOMS)):
        docstring = source.read_text(encoding="utf-8").partition('"""')[2].partition('"""')[0]
        if re.search(r"\bPure\b|\bA core[.:]", docstring):
            path = source.relative_to(ROOT).with_suffix("")
            names = [".".join(path.parts[:n]) for n in range(1, len(path.parts) + 1)]
            assert not listed.isdisjoint(f"weft.{name.removeprefix('weft.')}" for name in names), (
                source
            )


def test_every_class_name_is_defined_once():
    homes: dict[str, list[str]] = {}
    for source in [*(ROOT / "weft").glob("*.py"), *chain.from_iterable(map(sources, ROOMS))]:
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(f"{source.relative_to(ROOT)}:{node.lineno}")
    assert len(homes) > 300
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_each_module_of_the_scheduler_s_core_can_be_imported_first():
    core = ROOT / "scheduler" / "core"
    modules = [
        "weft.scheduler." + ".".join(path.relative_to(core.parent).with_suffix("").parts)
        for path in sources("scheduler/core")
        if path.name != "__init__.py"
    ]
    code = f"""
import importlib, sys
for name in {modules}:
    for loaded in [one for one in sys.modules if one.startswith("weft.scheduler.core")]:
        del sys.modules[loaded]
    importlib.import_module(name)
print("done")
"""
    assert len(modules) > 80
    assert python("-c", code) == "done\n"


def test_import_weft_is_light():
    code = "import sys; before = {*sys.modules}; import weft; print(*({*sys.modules} - before))"
    assert not HEAVY & {*python("-c", code).split()}


def test_every_public_name_resolves():
    for name in weft.__all__:
        assert getattr(weft, name) is not None
    assert {*dir(weft)} == {*weft.__all__, "errors"} - {*weft.errors.__all__}
    assert {*dir(weft.errors)} == {*errors.__all__}


def test_every_error_is_public():
    assert {*errors.__all__} <= {*weft.__all__}
    assert len(weft.__all__) == len({*weft.__all__})


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Cleint'"):
        _ = weft.Cleint


def test_the_installed_command_is_the_module():
    (target,) = PROJECT["project"]["scripts"].values()
    module, _, function = target.partition(":")
    # The installed script does the same. A target that moves would break scripts made earlier.
    assert module == "weft.__main__"
    script = f"import sys; from {module} import {function} as f; sys.argv[1:] = ['--help']; f()"
    assert "Usage: weft" in python("-c", script)
    assert python("-c", script) == python("-m", "weft", "--help")


@pytest.mark.parametrize("package", [p for p in SETUPTOOLS["packages"] if p.count(".") > 1])
def test_every_room_has_a_sentence_in_the_nearest_readme(package):
    folder = ROOT.joinpath(*package.split("."))
    readme = next(path for above in folder.parents if (path := above / "README.md").exists())
    text = readme.read_text(encoding="utf-8")
    assert re.search(rf"\b{folder.name}/", text), f"{readme} does not name the room {folder.name}/"


def readmes_of_packages():
    folders = {ROOT.joinpath(*package.split(".")) for package in SETUPTOOLS["packages"][1:]}
    return sorted(path for folder in folders if (path := folder / "README.md").exists())


def misplaced_in_tables(folder, text):
    """Yield the paths in tables that do not exist: `room/` in the first cell, then the files."""
    room = ""
    for line in text.splitlines():
        if not line.startswith("|"):
            room = ""
            continue
        cells = line.split("|")[1:-2]  # without the description
        found = re.search(r"`(\w+/)`", cells[0]) if cells else None
        if found or len(cells) == 1:
            room = found[1] if found else ""
        for name in re.findall(r"`([\w/]+\.py)`", " ".join(cells)):
            if not (folder / room / name).exists():
                yield f"{room}{name}"


@pytest.mark.parametrize(
    "readme", readmes_of_packages(), ids=lambda path: str(path.relative_to(ROOT))
)
def test_every_file_that_a_readme_names_exists(readme):
    folder = readme.parent
    text = readme.read_text(encoding="utf-8")
    names = re.findall(r"`([\w/]+\.py)`", text)
    assert [
        name for name in names if not (ROOT / name).exists() and not any(folder.glob(f"**/{name}"))
    ] == []
    # A README whose tables name no rooms is about files anywhere below it.
    if re.search(r"^\| `\w+/", text, re.MULTILINE):
        assert [*misplaced_in_tables(folder, text)] == []


def test_thorough_tests_exist_and_are_listed_with_their_reasons():
    listed = re.findall(
        r"^\| `([\w/.]+?)/?` \| (.+) \|$",
        (ROOT / "tests/README.md").read_text(encoding="utf-8").partition("## What runs when")[2],
        re.MULTILINE,
    )
    assert {name: why for name, why in listed if name in THOROUGH} == THOROUGH
    assert [name for name in THOROUGH if not (ROOT / "tests" / name).exists()] == []
