"""`weft timeline`: its options, saved recordings, and a real cluster that is recorded."""

from __future__ import annotations

import errno
import json
import xml.etree.ElementTree as ET

import click
import pytest
from click.testing import CliRunner

import weft
from tests.client.recordings import recording
from tests.deploy.daemons import daemon, file_of, run, scheduler
from tests.deploy.terminal import terminal
from weft.client.display.transactions import COLUMNS
from weft.client.insight import recording_files
from weft.deploy.cli.command import weft as command
from weft.deploy.cli.timeline import described
from weft.protocol.errors import ConfigError

OUTPUTS = ("--chrome", "run.json", "--svg", "run.svg", "--transactions", "run.log")


def invoke(*arguments):
    return CliRunner().invoke(command, ["timeline", *arguments])


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """A saved recording in the current folder."""
    monkeypatch.chdir(tmp_path)
    recording_files.save(recording(), "old.jsonl.gz")
    return "old.jsonl.gz"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "what to write?"),
        (["--svg", "a", "--follow", "--seconds", "3"], "give one"),
        (["--svg", "-"], "--svg takes a file"),
        (["--svg", "a", "--chrome", "./a"], "are the same file"),
        (["--svg", "a", "--from", "a"], "are the same file"),
        (["--svg", "a", "--from", "b", "--seconds", "3"], "--from reads a file"),
        (["--svg", "a", "--from", "b", "tcp://127.0.0.1:1"], "--from reads a file"),
    ],
)
def test_options_that_contradict_each_other_are_one_error(tmp_path, monkeypatch, arguments, text):
    monkeypatch.chdir(tmp_path)
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert text in done.output


def test_a_folder_that_is_not_there_is_an_error_before_anything_is_recorded(tmp_path):
    done = invoke("--svg", str(tmp_path / "none" / "a.svg"), "tcp://127.0.0.1:1")
    assert isinstance(done.exception, ConfigError)
    assert f"the folder {tmp_path / 'none'} does not exist" in str(done.exception)


def test_a_saved_recording_is_written_as_all_that_there_is(saved, tmp_path):
    done = invoke("--from", saved, *OUTPUTS, "--save", "again.jsonl")
    assert (done.exit_code, done.stderr) == (0, "")
    text = "3 attempts (1 raised) on 2 workers in 2 s: run.json, run.svg, run.log, again.jsonl\n"
    assert done.stdout == text
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 4
    assert ET.parse(tmp_path / "run.svg").getroot().tag.endswith("}svg")
    log = invoke("--from", "again.jsonl", "--transactions", "-")
    assert log.stdout == (tmp_path / "run.log").read_text()
    assert log.stderr == "3 attempts (1 raised) on 2 workers in 2 s\n"
    assert {len(line.split(" ")) for line in log.stdout.splitlines()} == {len(COLUMNS)}


@pytest.mark.parametrize("name", ["absent.jsonl", "other.jsonl"])
def test_a_file_that_is_no_recording_is_one_error_with_its_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.jsonl").write_text("{}\n")
    done = invoke("--from", name, "--svg", "a.svg")
    assert isinstance(done.exception, ConfigError)
    assert name in str(done.exception)
    assert not (tmp_path / "a.svg").exists()


def test_a_file_that_cannot_be_written_is_one_line_and_code_1(saved, monkeypatch):
    def full(path, parts):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(recording_files, "write_lines", full)
    done = invoke("--from", saved, "--svg", "a.svg")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "weft timeline: a.svg cannot be written: No space left on device\n"


def test_a_description_counts_attempts_and_workers():
    assert described(recording()) == "3 attempts (1 raised) on 2 workers in 2 s"


def test_the_scheduler_is_an_argument_like_that_of_other_commands():
    with click.Context(command):
        made = command.commands["timeline"].make_context("timeline", ["tcp://h:1", "--svg", "a"])
    assert made.params["address"] == "tcp://h:1"


def triple(x):
    return 3 * x


def refuse(x):
    raise ValueError(x)


@pytest.mark.slow
def test_a_cluster_is_recorded_until_ctrl_c_and_what_there_is_by_then_is_written(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "2", "--name", "w", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        options = ("--follow", *OUTPUTS)
        with terminal("timeline", *options, folder=tmp_path, columns=100, lines=10) as shown:
            shown.wait_for("0 attempts ended; Ctrl-C writes what there is")
            with weft.span("night"):
                futures = client.map(triple, range(20))
            client.gather(futures)
            assert client.submit(refuse, 1).exception(60) is not None
            client.retire_workers(n=1)
            shown.wait_for("21 attempts ended")
            shown.press("\x03")
            assert shown.wait() == 0
            (line,) = [one for one in shown.read().splitlines() if "run.svg" in one]
        assert line.strip().startswith("21 attempts (1 raised) on 2 workers")
        rows = [one.split(" ") for one in (tmp_path / "run.log").read_text().splitlines()]
        changes = [(row[1], row[3]) for row in rows[1:]]
        assert changes.count(("task", "queued")) == 21
        assert changes.count(("task", "finished")) == 20
        assert [row[8] != "-" for row in rows if row[3] == "finished"] == [True] * 20
        for change in ("present", "leaving", "gone"):
            assert ("worker", change) in changes
        assert rows[-1][-1] == "complete"
        events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
        found = [event for event in events if event["ph"] == "X"]
        assert {event["cat"] for event in found} == {"night", "refuse"}
        assert "night" in (tmp_path / "run.svg").read_text()
        # Without a terminal there is no line about how far it is.
        done = run("timeline", "--seconds", "0", "--svg", "none.svg", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "No task ended in this time" in (tmp_path / "none.svg").read_text()


@pytest.mark.slow
def test_a_recording_takes_the_token_of_a_client(tmp_path):
    with scheduler(folder=tmp_path):
        view = str(tmp_path / "view.json")
        assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
        done = run("timeline", "--svg", "a", "--connection-file", view, folder=tmp_path)
        assert done.returncode == 2
        assert "weft timeline" in done.stderr
