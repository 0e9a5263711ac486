"""docs/cluster.md shows what its commands print."""

from __future__ import annotations

import shlex

import click
import pytest

from tests.docs.cluster_page import MARK, PAGE, blocks, commands, masked, scene
from tests.docs.exit_table import exit_table
from weft.deploy.cli.command import weft

TEXT = PAGE.read_text(encoding="utf-8")
JOBS = (PAGE.parent / "jobs.md").read_text(encoding="utf-8")


def outputs() -> list[tuple[str, str]]:
    """Return the commands of the page, each with its output there."""
    found = []
    for block in blocks(TEXT):
        for part in block.split("$ weft ")[1:]:
            command, _, output = part.partition("\n")
            found.append((f"weft {command}", output))
    return found


@pytest.mark.slow
def test_the_outputs_on_the_page_are_those_of_the_commands():
    with scene() as cluster:
        for command, shown in outputs():
            fresh = masked(command, cluster.output_of(command))
            assert masked(command, shown) == fresh, f"python -m tests.docs.cluster_page: {command}"


def test_the_page_has_the_exit_codes_of_the_code():
    assert TEXT.partition(MARK)[2].strip() == exit_table().strip(), "tests.docs.cluster_page"


def test_the_page_names_every_command_that_looks_at_a_cluster_or_changes_it():
    words = {shlex.split(command)[1] for block in blocks(TEXT) for command in commands(block)}
    others = {"bundle", "compare", "config", "connect", "dashboard", "secret", "ssh", "token"}
    others.add("completion")
    # On a page of their own.
    of_jobs = {"queue", "wait", "output", "cancel", "retry", "forget", "journal", "pause", "resume"}
    assert words | others | of_jobs >= set(weft.commands)
    assert all(f"`weft {name}" in JOBS for name in of_jobs)
    named = ("bundle", "compare", "completion", "connect", "dashboard", "ssh")
    assert all(f"weft {name}" in TEXT for name in named)


@pytest.mark.parametrize("command", [one for one, _ in outputs()])
def test_a_command_of_the_page_is_accepted(command):
    _, name, *arguments = shlex.split(command)
    with click.Context(weft):
        weft.commands[name].make_context(name, arguments)


def test_masks_leave_what_a_command_means():
    shown = "up 3.5 s, 12 % of 4 GiB, 0% busy\n  ok   well\n"
    assert " ".join(masked("weft status", shown)) == "up # , # of # , # busy"
    assert masked("weft doctor", "x\n  ok        round trip  3 ms\n") == ["round trip"]
