"""`weft profile`: its options, and a real cluster that is sampled until Ctrl-C."""

from __future__ import annotations

import re
import threading

import pytest
from click.testing import CliRunner

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from tests.deploy.terminal import terminal
from weft.deploy.cli.command import weft as command
from weft.protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("file", "text"),
    [("p.svg", "ends neither with .html nor with .json"), ("none/p.html", "does not exist")],
)
def test_a_file_that_cannot_be_written_is_an_error_before_anything_is_sampled(
    tmp_path, monkeypatch, file, text
):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(command, ["profile", "tcp://127.0.0.1:1", "--output", file])
    assert isinstance(done.exception, ConfigError)
    assert text in str(done.exception)


def wait_for_the_end():
    threading.Event().wait(60)


@pytest.mark.slow
def test_a_cluster_is_sampled_until_ctrl_c_and_what_there_is_by_then_is_shown(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", "--name", "w", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        future = client.submit(wait_for_the_end)
        options = ("--seconds", "2h", "--function", "wait_for_the_end", "--output", "p.html")
        with terminal("profile", *options, folder=tmp_path, columns=100, lines=20) as shown:
            # The worker may join after the first look, and the task may begin after several.
            shown.wait_until(lambda screen: re.search(r" of 2 h, [1-9]", screen), "a sample")
            shown.press("\x03")
            assert shown.wait() == 0
            text = shown.read()
        assert "samples of 1 worker, wait_for_the_end, in" in text
        assert "function flameGraph" in (tmp_path / "p.html").read_text()
        view = str(tmp_path / "view.json")
        assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
        done = run("profile", "--connection-file", view, folder=tmp_path)
        assert done.returncode == 2
        assert "weft profile" in done.stderr
        future.cancel(running=True)
