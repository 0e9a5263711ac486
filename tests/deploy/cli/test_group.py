"""The group of all commands."""

from __future__ import annotations

import re

from click.testing import CliRunner

from weft.deploy.cli.command import weft
from weft.deploy.cli.hints import COMMANDS


def test_the_help_lists_each_command_once_by_its_purpose():
    assert sorted(name for names in COMMANDS.values() for name in names) == sorted(weft.commands)
    text = CliRunner().invoke(weft, ["--help"]).output
    places = [text.index(f"\n{title}:\n") for title in COMMANDS]
    assert places == sorted(places)
    for name in weft.commands:
        assert len(re.findall(rf"^  {name} +[A-Z]", text, re.MULTILINE)) == 1, name
