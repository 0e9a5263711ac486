"""Options that are made from the table of settings."""

from __future__ import annotations

import click
import pytest
from click.shell_completion import ShellComplete

from weft.deploy.cli.command import weft as command
from weft.protocol.errors import ConfigError
from weft.protocol.settings.table import ALL


def completed(*words: str) -> list[tuple[str, str]]:
    shell = ShellComplete(command, {}, "weft", "_WEFT_COMPLETE")
    *before, last = words
    return [(item.value, item.type) for item in shell.get_completions(before, last)]


def test_a_shell_completes_choices_files_and_folders():
    assert completed("scheduler", "--protocol", "t") == [("tcp", "plain"), ("tls", "plain")]
    assert completed("worker", "--connection-file", "a")[-1] == ("a", "file")
    assert completed("worker", "--local-directory", "a") == [("a", "dir")]
    assert completed("worker", "--nthreads", "") == []


@pytest.mark.parametrize("setting", [s for s in ALL if s.section in ("scheduler", "worker")])
def test_each_setting_of_a_command_is_one_of_its_options(setting):
    found = command.get_command(click.Context(command), setting.section)
    assert found is not None
    names = {text for p in found.params for text in (*p.opts, *p.secondary_opts)}
    assert setting.has_option == (set(setting.option.split("/")) <= names)


def test_a_path_of_the_wrong_kind_is_refused_before_anything_is_started(tmp_path):
    (tmp_path / "file").touch()
    worker = command.get_command(click.Context(command), "worker")
    assert worker is not None
    for arguments, words in (
        (["--connection-file", str(tmp_path)], "is a folder, and a file is needed"),
        (["--local-directory", str(tmp_path / "file")], "is a file, and a folder is needed"),
    ):
        with pytest.raises(ConfigError, match=words):
            worker.make_context("worker", arguments, parent=click.Context(command))
