"""Each command of Ray is one of weft's, or is refused with what to use instead."""

from __future__ import annotations

import re

import click
import pytest

from weft.deploy.cli.command import weft as command

COMMANDS = [
    "attach",
    "dashboard",
    "debug",
    "down",
    "drain-node",
    "exec",
    "get",
    "get-auth-token",
    "get-head-ip",
    "get-worker-ips",
    "health-check",
    "job",
    "kill-actor",
    "list",
    "logs",
    "memory",
    "metrics",
    "microbenchmark",
    "rsync-down",
    "rsync-up",
    "stack",
    "start",
    "status",
    "stop",
    "submit",
    "summary",
    "symmetric-run",
    "timeline",
    "up",
]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_of_ray_is_here_or_leads_to_one_that_is(name):
    if name not in command.commands:
        context = click.Context(command, info_name="weft")
        with pytest.raises(click.UsageError) as caught:
            command.resolve_command(context, [name])
        text = caught.value.message
        assert text.startswith(f"there is no command '{name}'; ")
        assert not re.search("did you mean|--help", text)
        assert {*re.findall(r"'weft ([a-z]+)", text)} <= command.commands.keys()
