"""The group of all commands: its help, and how each command is given a scheduler's address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from weft.deploy.cli.addressing import SchedulerArgument
from weft.deploy.cli.command import weft
from weft.deploy.cli.hints import COMMANDS
from weft.protocol.errors import ConfigError
from weft.protocol.host.exits import EXIT_NO_SCHEDULER

ONE, OTHER = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"
#: The commands that find a scheduler.
ADDRESSED = [
    name
    for name, command in weft.commands.items()
    if any(isinstance(one, SchedulerArgument) for one in command.params)
]
#: {command: words that it needs, or takes, beside an address}
OTHERS = {
    "block": ["node1", "tcp://127.0.0.1:3"],
    "bundle": ["key-1", "key-2"],
    "cancel": ["key-1", "key-2"],
    "events": ["topic"],
    "explain": ["key"],
    "forget": ["key-1", "key-2"],
    "info": ["key"],
    "output": ["key"],
    "pause": ["nightly"],
    "resume": ["nightly"],
    "retire": ["node1", "tcp://127.0.0.1:3"],
    "retry": ["key-1", "key-2"],
    "scale": ["3"],
    "submit": ["program", "--", "-x"],
    "token": ["--role", "view"],
    "unblock": ["node1", "tcp://127.0.0.1:3"],
    "wait": ["key-1", "key-2"],
}


def test_the_help_lists_each_command_once_by_its_purpose():
    assert sorted(name for names in COMMANDS.values() for name in names) == sorted(weft.commands)
    text = CliRunner().invoke(weft, ["--help"]).output
    places = [text.index(f"\n{title}:\n") for title in COMMANDS]
    assert places == sorted(places)
    for name in weft.commands:
        assert len(re.findall(rf"^  {name} +[A-Z]", text, re.MULTILINE)) == 1, name


@pytest.mark.parametrize(
    "name", [name for name in ADDRESSED if name not in ("retire", "block", "unblock")]
)
def test_two_addresses_of_a_scheduler_are_refused(name):
    found = CliRunner().invoke(weft, [name, ONE, "--scheduler", OTHER, *OTHERS.get(name, [])])
    assert found.exit_code == 2
    assert f"two schedulers: {ONE}, and {OTHER} by --scheduler" in found.output


def test_each_command_that_finds_a_scheduler_takes_the_same_option():
    without = {
        name
        for name, command in weft.commands.items()
        if "--scheduler" not in [option for one in command.params for option in one.opts]
    }
    assert without == {
        "scheduler",
        "config",
        "compare",
        "completion",
        "connect",
        "journal",
        "secret",
    }


@pytest.mark.parametrize("given", [[ONE], ["--scheduler", ONE], [ONE, "--scheduler", ONE]])
def test_an_address_is_an_argument_or_an_option(given):
    found = CliRunner().invoke(weft, ["status", *given])
    assert (found.exit_code, ONE in found.output) == (EXIT_NO_SCHEDULER, True)


@pytest.mark.parametrize("name", ADDRESSED)
def test_each_command_takes_an_address_as_its_first_word(name):
    command, others = weft.commands[name], OTHERS.get(name, [])
    without = command.make_context(name, [*others]).params
    assert without["address"] is None
    assert command.make_context(name, [ONE, *others]).params == {**without, "address": ONE}
    if others and not others[0].startswith("-"):
        # Options may come before it.
        words = ["--connection-file", "file.json", ONE, *others]
        params = command.make_context(name, words).params
        assert params == {**without, "address": ONE, "connection_file": Path("file.json")}


@pytest.mark.parametrize("name", ADDRESSED)
def test_the_help_of_each_command_shows_the_address_first(name):
    text = CliRunner().invoke(weft, [name, "--help"]).output
    usage = " ".join(text.partition("\n\n")[0].split())
    assert usage.startswith(f"Usage: weft {name} [OPTIONS] [ADDRESS]")
    assert "--scheduler ADDRESS" in text


@pytest.mark.parametrize("name", [name for name in ADDRESSED if name not in OTHERS])
def test_the_only_word_of_a_command_is_an_address_whatever_it_looks_like(name):
    assert weft.commands[name].make_context(name, ["node1"]).params["address"] == "node1"


def test_a_word_that_is_no_address_is_one_of_the_other_arguments():
    context = weft.commands["explain"].make_context("explain", ["s3://bucket/object"])
    assert context.params["address"] is None
    assert context.params["arguments"] == ("s3://bucket/object",)
    for words in (["--", "run", ONE], ["--", ONE], ["run", ONE]):
        context = weft.commands["submit"].make_context("submit", [*words])
        assert context.params["address"] is None
        assert context.params["command"] == tuple(word for word in words if word != "--")


@pytest.mark.parametrize("name", ["retire", "block", "unblock"])
def test_addresses_of_workers_come_after_that_of_the_scheduler(name, monkeypatch):
    found: list[tuple[Any, ...]] = []

    def find(*how: Any) -> None:
        found.append(how)
        raise ConfigError("seen")

    monkeypatch.setattr("weft.deploy.finding.find_scheduler", find)
    for words in ([ONE, OTHER], ["--scheduler", ONE, OTHER], [ONE, OTHER, "--scheduler", ONE]):
        done = CliRunner().invoke(weft, [name, *words])
        assert "seen" in str(done.exception)
        assert found.pop() == (None, ONE)
    done = CliRunner().invoke(weft, [name, ONE])
    assert done.exit_code == 2
    assert "workers" in done.output


def test_a_shell_completes_addresses_and_the_other_arguments():
    command = weft.commands["config"]
    assert not command.is_addressed
    context = weft.commands["retire"].make_context("retire", [ONE], resilient_parsing=True)
    names = [one.name for one in weft.commands["retire"].get_params(context)]
    assert "address" not in names
