"""The examples for service managers: their commands exist, and their times fit each other."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from weft.deploy.cli.command import weft as command
from weft.worker.family.exits import EXIT_REFUSED

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def read_unit(path: Path) -> dict[str, str]:
    """Return the settings of a unit; each is there once."""
    settings: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            assert name not in settings
            settings[name] = value
    return settings


def options_of(words: list[str]) -> dict[str, object]:
    """Let click check a command with its options, and return them."""
    program, name, *arguments = words
    assert Path(program).name == "weft"
    with click.Context(command) as parent:
        found = command.get_command(parent, name)
        assert found is not None
        return found.make_context(name, arguments, parent=parent).params


def test_the_folder_of_units_is_not_empty():
    assert [path.stem for path in UNITS] == ["weft-scheduler", "weft-worker"]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_a_command_that_exists_and_gives_it_time_to_end(path):
    unit = read_unit(path)
    options = options_of(shlex.split(unit["ExecStart"]))
    assert unit["KillMode"] == "mixed"
    assert unit["Restart"] == "on-failure"
    final = unit["RestartPreventExitStatus"].split()
    assert "2" in final
    if path.stem == "weft-worker":
        assert str(EXIT_REFUSED) in final
        grace_period = options["grace_period"]
        assert isinstance(grace_period, float)
        assert float(unit["TimeoutStopSec"]) > grace_period + 5


@pytest.mark.slow
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_understands_a_unit(path, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is missing: apt-get install systemd")
    # The program is at another place, and the user is not there.
    text = path.read_text().replace("/opt/weft/bin/weft", "/bin/true").replace("User=weft\n", "")
    copy = tmp_path / path.name
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert path.name not in done.stderr, done.stderr
