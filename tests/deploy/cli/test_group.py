"""The group of all commands: its help, and how each command is given a scheduler's address."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from weft.deploy.cli.command import weft
from weft.deploy.cli.group import split_address
from weft.deploy.cli.hints import COMMANDS
from weft.protocol.host.exits import EXIT_NO_SCHEDULER

ONE, OTHER = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


def test_the_help_lists_each_command_once_by_its_purpose():
    assert sorted(name for names in COMMANDS.values() for name in names) == sorted(weft.commands)
    text = CliRunner().invoke(weft, ["--help"]).output
    places = [text.index(f"\n{title}:\n") for title in COMMANDS]
    assert places == sorted(places)
    for name in weft.commands:
        assert len(re.findall(rf"^  {name} +[A-Z]", text, re.MULTILINE)) == 1, name


@pytest.mark.parametrize(
    "words",
    [
        *([name] for name in ("status", "top", "logs", "doctor", "selftest", "stop", "worker")),
        *(["info"], ["info", "key"], ["explain", "key"], ["scale", "3"], ["token"]),
    ],
    ids=" ".join,
)
def test_two_addresses_of_a_scheduler_are_refused(words):
    name, *others = words
    others = ["--role", "view", "--bare"] if name == "token" else others
    found = CliRunner().invoke(weft, [name, ONE, *others, "--scheduler", OTHER])
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


def test_an_address_comes_before_the_other_arguments():
    assert split_address(["tls://node1:8786", "key"], None) == ("tls://node1:8786", ["key"])
    assert split_address(["node1:8786", "8"], None) == ("node1:8786", ["8"])
    assert split_address(["key"], ONE) == (ONE, ["key"])
    assert split_address([], None) == (None, [])
