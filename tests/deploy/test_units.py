"""The examples for service managers: their commands exist, and their times fit each other."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest

from tests.tools.find import tool
from weft.deploy.cli.command import weft as command
from weft.protocol.host.exits import EXIT_REFUSED

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def read_unit(path: Path) -> dict[str, str]:
    """Return the settings of a unit; each is there once, but a filter may have further lines."""
    settings: dict[str, str] = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            assert name not in settings or name == "SystemCallFilter"
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
    # The program is at another place, and the user is not there.
    text = path.read_text().replace("/opt/weft/bin/weft", "/bin/true").replace("User=weft\n", "")
    copy = tmp_path / path.name
    copy.write_text(text)
    done = analyzed("verify", str(copy))
    assert path.name not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("weft-scheduler", 2.0), ("weft-worker", 3.0)])
def test_a_service_may_do_little_beyond_its_work(name, most):
    done = analyzed("security", "--offline=yes", str(DEPLOY / "systemd" / f"{name}.service"))
    if "unrecognized option" in done.stderr:
        pytest.skip(
            "systemd-analyze is older than 250, and rates no unit that is not loaded: install "
            "systemd of Debian 12, Ubuntu 22.04 or later"
        )
    rated = re.search(r"Overall exposure level for .*: ([0-9.]+) ", done.stdout)
    assert rated, done.stdout + done.stderr
    assert float(rated[1]) <= most, done.stdout


def test_settings_that_the_page_calls_left_out_are_not_in_the_workers_unit():
    page = (DEPLOY.parent / "docs" / "systemd.md").read_text()
    left_out = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert {"PrivateDevices", "ProtectClock", "MemoryDenyWriteExecute"} <= {*left_out}
    assert not {*left_out} & {*read_unit(DEPLOY / "systemd" / "weft-worker.service")}


def test_rules_of_both_units_are_at_least_as_strict_for_the_scheduler():
    scheduler, worker = map(read_unit, UNITS)
    limits = {name for name, value in worker.items() if value == "true"}
    assert len(limits) > 10
    assert {name for name in limits if scheduler.get(name) != "true"} == set()


def analyzed(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [tool("systemd-analyze"), "--no-pager", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
