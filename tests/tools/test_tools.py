from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools import install
from tests.tools.find import find, folder, home_of, tool
from tests.tools.table import TOOLS, GoFiles, Tool, row_of


@pytest.fixture
def tools_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_TOOLS", str(tmp_path / "tools"))
    return tmp_path / "tools"


def test_names_of_rows_and_programs_are_unique():
    names = [name for row in TOOLS for name in {row.name, *row.provides}]
    assert len(names) == len({*names})


def test_a_row_is_found_by_its_name_and_by_each_program():
    assert row_of("kubernetes") is row_of("kubectl") is row_of("kube-apiserver")
    with pytest.raises(KeyError, match=r"no tool 'helmm' .* helm,"):
        row_of("helmm")


def test_a_missing_tool_skips_the_test_with_the_command_that_installs_it(tools_folder):
    assert folder() == tools_folder
    assert find("kubectl") is None
    with pytest.raises(pytest.skip.Exception, match="kubectl is missing: make tools ARGS=kubernet"):
        tool("kubectl")


def test_an_installed_tool_is_found_below_its_version(tools_folder):
    helm = tools_folder / f"helm-{row_of('helm').version}" / "helm"
    helm.parent.mkdir(parents=True)
    helm.touch()
    assert tool("helm") == helm


def test_an_interrupted_installation_leaves_nothing_that_is_found(tools_folder):
    row = Tool("broken", "v1", 0.1, GoFiles("example.org/none", {}), ("broken",))

    def interrupted():
        with install._whole(home_of(row)) as there:
            (there / "broken").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [*tools_folder.iterdir()] == []


def test_a_tool_whose_program_is_missing_here_is_reported_and_the_others_go_on(
    tools_folder, monkeypatch, capsys
):
    monkeypatch.setenv("PATH", str(tools_folder))
    assert not install.installed(row_of("helm"))
    assert "tools: helm: needs the command go, which is not in PATH" in capsys.readouterr().out


def test_the_command_lists_the_table_and_refuses_unknown_names():
    command = [sys.executable, "-m", "tests.tools.install"]
    done = subprocess.run([*command, "--list"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()] == [row.name for row in TOOLS]
    done = subprocess.run([*command, "kubectrl"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no tool 'kubectrl' in tests/tools/table.py; there are: " in done.stderr


def test_a_row_that_is_named_twice_is_installed_once(monkeypatch):
    asked = []
    monkeypatch.setattr(install, "installed", lambda row: asked.append(row.name) or True)
    monkeypatch.setattr("sys.argv", ["make tools", "kwok-stages", "stages", "helm"])
    assert install.main() == 0
    assert asked == ["kwok-stages", "helm"]


def test_each_row_of_the_table_is_used():
    """What none uses still takes minutes of each new machine."""
    tests = Path(__file__).parents[1]
    texts = [
        path.read_text(encoding="utf-8")
        for folder in (tests, tests.parent / "benchmarks")
        for path in folder.rglob("*.py")
        if path.name != "table.py"
    ]
    unused = [
        row.name
        for row in TOOLS
        if not any(f'"{name}"' in text for name in row.provides for text in texts)
    ]
    assert unused == []
