"""`weft bundle`: one file about tasks of a real cluster, without arguments and secrets."""

from __future__ import annotations

import json
import logging
import threading
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import weft
from tests.deploy.daemons import daemon, file_of, run, scheduler
from weft.deploy.cli.bundle import without_secrets
from weft.deploy.cli.command import weft as command
from weft.protocol.errors import ConfigError


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Give their keys, or --failed"),
        (["key", "--failed"], "Give their keys, or --failed"),
        ([f"key-{i}" for i in range(21)], "at most 20 tasks, not 21"),
    ],
)
def test_a_bundle_is_of_some_tasks_or_of_those_that_failed(arguments, text):
    done = CliRunner().invoke(command, ["bundle", *arguments])
    assert done.exit_code == 2
    assert text in done.output


def test_a_folder_that_is_not_there_is_an_error_before_anything_is_asked():
    done = CliRunner().invoke(command, ["bundle", "key", "-o", "/no/such/b.zip"])
    assert isinstance(done.exception, ConfigError)
    assert "does not exist" in str(done.exception)


def test_a_bundle_has_neither_the_token_nor_passwords_of_urls():
    text = "token abc, postgresql://ann:geheim@db/x, http://ann@host:80/a@b, tcp://h:8786"
    assert without_secrets(text, "abc") == text.replace("abc", "***").replace("geheim", "***")


def broken(token):
    logging.getLogger("mine").warning("at postgresql://ann:geheim@db/x with %s", token)
    raise ValueError("it is broken")


@pytest.mark.slow
def test_a_bundle_has_what_is_known_of_failed_and_of_waiting_tasks(tmp_path):
    with (
        scheduler(folder=tmp_path) as started,
        daemon("worker", "--nworkers", "1", "--name", "w", folder=tmp_path),
        weft.Client(connection_file=file_of(started)) as client,
    ):
        token = json.loads(Path(file_of(started)).read_text())["token"]
        failed = client.submit(broken, token)
        assert isinstance(failed.exception(), ValueError)
        blocked = client.submit(threading.Event, resources={"GPU": 1})
        done = run("bundle", "--failed", folder=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "written: weft-bundle.zip, with 1 task\n"
        found = parts_of(tmp_path / "weft-bundle.zip")
        assert not any(token in text or "geheim" in text for text in found.values())
        task = json.loads(found["tasks/1.json"])
        assert (task["key"], task["state"]) == (failed.key, "erred")
        assert task["attempts"] == [["w", "raised ValueError: it is broken"]]
        assert "call" not in task
        assert "in broken" in found["tasks/1.txt"]
        assert "mine WARNING: at postgresql://ann:***@db/x with ***" in found["logs.txt"]
        assert failed.key in found["README.txt"]
        assert json.loads(found["settings.json"])["worker.nthreads"]["source"]
        assert "worker-joined" in found["events.json"]
        assert run("bundle", blocked.key, "-o", "b.zip", folder=tmp_path).returncode == 0
        assert "no worker offers GPU: 1" in parts_of(tmp_path / "b.zip")["tasks/1.txt"]
        done = run("bundle", "nothing", "-o", "c.zip", folder=tmp_path)
        assert done.returncode == 1
        assert "knows no task 'nothing'" in done.stderr
        view = str(tmp_path / "view.json")
        assert run("token", "--role", "view", "--output", view, folder=tmp_path).returncode == 0
        done = run("bundle", "--failed", "--connection-file", view, folder=tmp_path)
        assert done.returncode == 2
        assert "weft bundle" in done.stderr
        assert not [*tmp_path.glob("*.part"), *tmp_path.glob("c.zip")]


def parts_of(path):
    with zipfile.ZipFile(path) as file:
        return {n.partition("/")[2]: file.read(n).decode() for n in file.namelist()}
