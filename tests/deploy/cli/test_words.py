"""The help, the exit codes and the completion of all commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from tests.deploy.daemons import address_of, daemon, file_of, run, scheduler
from tests.docs.exit_table import exit_table
from weft.deploy.cli import exits, status_text
from weft.deploy.cli.command import weft
from weft.deploy.cli.exits import (
    EXIT_CODES,
    EXIT_USAGE,
    exit_code_of,
    exit_codes_of,
)
from weft.deploy.overview.wording import describe_end
from weft.protocol.errors import NotPermitted, TakenOver
from weft.protocol.host.exits import EXIT_TAKEN_OVER
from weft.worker.family import exits as worker_exits

ROOT = Path(__file__).resolve().parent.parent.parent.parent
COMMANDS = sorted(weft.commands)


def help_of(name: str) -> str:
    command = weft.commands[name]
    with click.Context(command, info_name=f"weft {name}") as ctx:
        return command.get_help(ctx)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_has_examples_that_are_accepted(name):
    text = help_of(name)
    _, found, rest = text.partition("Examples:\n")
    assert found, f"weft {name} --help has no example"
    examples = [line.strip() for line in rest.split("\n\n")[0].splitlines()]
    assert examples
    for example in examples:
        words = shlex.split(re.split(r" (\||>+) ", example)[0])
        assert words[:2] == ["weft", name], example
        try:
            weft.commands[name].make_context(name, words[2:])
        except click.exceptions.Exit:  # --help
            continue


def test_a_scheduler_that_was_taken_over_is_not_started_again():
    assert exits.exit_code_of(TakenOver("another one runs")) == EXIT_TAKEN_OVER


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_one_line_in_the_list(name):
    short = weft.commands[name].get_short_help_str(200)
    assert short.endswith(".")
    assert len(short) <= 70


def test_exit_codes_stand_in_the_readme_as_the_code_has_them():
    text = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    assert exit_table() in text, f"deploy/README.md should have:\n{exit_table()}"


def test_every_exit_code_of_the_code_is_in_the_table():
    known = {row.code for row in EXIT_CODES}
    codes = [
        value
        for module in (worker_exits, status_text, exits)
        for name, value in vars(module).items()
        # EXIT_CONFIG is between a worker and its supervisor: the command ends with 2.
        if name.startswith("EXIT_") and isinstance(value, int) and name != "EXIT_CONFIG"
    ]
    assert {*codes, EXIT_TAKEN_OVER} <= known
    for row in EXIT_CODES:
        for name in filter(None, row.commands.split(", ")):
            assert name.split()[0] in weft.commands, name


@pytest.mark.parametrize("name", COMMANDS)
def test_exit_codes_of_a_help_are_those_of_the_table(name):
    _, found, rest = help_of(name).partition("Exit codes:")
    codes = {int(code) for code in re.findall(r"(\d+) = ", " ".join(rest.split()))}
    known = {row.code for row in EXIT_CODES if row.commands in ("", name) or name in row.commands}
    assert codes <= known, name
    assert bool(codes) is bool(found)


@pytest.mark.parametrize("name", ["retire", "scale", "stop"])
def test_a_help_has_all_exit_codes_of_a_command_that_asks_the_scheduler(name):
    text = " ".join(help_of(name).partition("Exit codes:")[2].split())
    for code, meaning in exit_codes_of(name).items():
        assert f"{code} = {meaning}" in text
    assert {0, 1, 2, 69, 77} <= set(exit_codes_of(name))
    assert "`" not in text


def test_a_role_that_is_too_low_is_a_fault_of_the_configuration():
    assert exit_code_of(NotPermitted("retire", "client", "view")) == EXIT_USAGE


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ({"end": "left", "n_recomputed": 0}, "w has left"),
        ({"end": "left", "n_recomputed": 1}, "w has left; 1 result is computed again"),
        ({"end": "lost", "n_recomputed": 3}, "w has died before it could leave; 3 results are"),
        ({"end": "kept", "reason": "it has the only copy", "n_recomputed": 0}, "w was kept: it"),
    ],
)
def test_the_end_of_a_worker_is_one_line(end, expected):
    assert describe_end({"name": "w", "reason": "", **end}).startswith(expected)


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_the_script_that_completes(shell, tmp_path):
    done = run("completion", shell, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_WEFT_COMPLETE={shell}_complete" in done.stdout


def complete(words: str, folder: Path) -> list[str]:
    """Return what bash completes for the last word."""
    n = len(words.split(" ")) - 1
    env = {"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(n)}
    done = run(folder=folder, **env)
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.split()]


@pytest.mark.slow
def test_names_of_commands_workers_and_connections_are_completed(tmp_path):
    assert "selftest" in complete("weft se", tmp_path)
    found = complete("weft config work", tmp_path)
    assert {"worker", "worker.nthreads"} <= set(found)
    assert complete("weft config scheduler.por", tmp_path) == ["scheduler.port"]
    assert complete("weft logs --worker ", tmp_path) == []
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--name", "node", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 2)
        assert complete("weft logs --worker ", tmp_path) == ["node-0", "node-1"]
        assert complete("weft retire node-1", tmp_path) == ["node-1"]
        assert complete("weft status tcp", tmp_path) == [address_of(started)]
        found = complete("weft doctor --connection-file ", tmp_path)
        assert str(file_of(started)) in found


@pytest.mark.slow
def test_workers_that_are_retired_leave_and_those_that_stay_go_on(tmp_path):
    done = run("retire", folder=tmp_path)
    assert done.returncode == 2
    assert "name the workers" in done.stderr
    with (
        scheduler(folder=tmp_path),
        daemon("worker", "--nworkers", "3", "--name", "w", folder=tmp_path) as workers,
    ):
        workers.wait_for("registered", 3)
        done = run("retire", "w-1", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "w-1 has left\n"
        assert "2 running" in run("status", folder=tmp_path).stdout
        done = run("retire", "w-1", folder=tmp_path)
        assert done.returncode == 1
        assert "no connected worker has the name" in done.stderr
        done = run("retire", "--keep", "1", "--json", folder=tmp_path)
        assert done.returncode == 0
        assert done.stdout.count('"end": "left"') == 1
        done = run("retire", "--keep", "1", folder=tmp_path)
        assert done.stdout == "no worker has to leave\n"
        view = str(tmp_path / "view.json")
        assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
        done = run("retire", "-n", "1", "--connection-file", view, folder=tmp_path)
        assert done.returncode == 2
        assert "needs a token of role client" in done.stderr


@pytest.mark.slow
def test_a_cluster_has_the_number_of_workers_that_is_asked_for(tmp_path):
    with scheduler(folder=tmp_path):
        done = run("scale", "2", folder=tmp_path)
        assert done.returncode == 1
        assert "no supervisor is connected that could start 2 more workers" in done.stderr
        with daemon("worker", "--nworkers", "1", "--name", "w", folder=tmp_path) as workers:
            workers.wait_for("registered")
            done = run("scale", "3", "--wait", folder=tmp_path)
            assert (done.returncode, done.stdout) == (0, "3 workers are there\n")
            assert "3 running" in run("status", folder=tmp_path).stdout
            done = run("scale", "99999", folder=tmp_path)
            assert done.returncode == 1
            assert "99999 workers are more than the limit of " in done.stderr
            done = run("scale", "1", "--wait", folder=tmp_path)
            assert (done.returncode, done.stdout) == (0, "1 worker is there; 2 have to leave\n")
            client = str(tmp_path / "client.json")
            option = ("--role", "client", "--output", client)
            assert run("token", *option, folder=tmp_path).returncode == 0
            done = run("scale", "1", "--connection-file", client, folder=tmp_path)
            assert done.returncode == 2
            assert "needs a token of role admin" in done.stderr
