"""The compose file: what containers run with the image of deploy/docker is run without them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.daemons import address_of, daemon, run
from tests.deploy.test_docker import last_stage
from tests.deploy.test_units import options_of

yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install pyyaml")

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "compose"
CONTENT: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, Any] = CONTENT["services"]


def command_line(service: dict[str, Any], stage: dict[str, str]) -> list[str]:
    """Return what a container of this service runs, with an image that ends in this stage.

    `entrypoint` replaces that of the image and drops its CMD; `command` replaces CMD only.
    """
    if "entrypoint" in service:
        return [*service["entrypoint"], *service.get("command", [])]
    return [*json.loads(stage["ENTRYPOINT"]), *service.get("command", json.loads(stage["CMD"]))]


def of_image(name: str) -> list[str]:
    return command_line(SERVICES[name], dict(last_stage()))


def test_a_command_comes_after_the_entry_point_of_the_image_and_replaces_its_arguments():
    stage = {"ENTRYPOINT": '["weft"]', "CMD": '["--help"]'}
    assert command_line({}, stage) == ["weft", "--help"]
    assert command_line({"command": ["weft", "top"]}, stage) == ["weft", "weft", "top"]
    assert command_line({"entrypoint": ["sh"]}, stage) == ["sh"]


def test_the_containers_start_commands_that_exist_also_in_an_image_without_an_entry_point():
    assert sorted(SERVICES) == ["scheduler", "worker"]
    for name, service in SERVICES.items():
        assert options_of(of_image(name))
        assert command_line(service, {"ENTRYPOINT": "[]", "CMD": "[]"}) == of_image(name)


def test_the_workers_have_time_to_end():
    grace_period = options_of(of_image("worker"))["grace_period"]
    assert isinstance(grace_period, float)
    stop_s = float(SERVICES["worker"]["stop_grace_period"].removesuffix("s"))
    assert stop_s > grace_period + 5


def test_the_steps_give_each_mounted_secret_to_the_user_of_the_image():
    readme = (FOLDER / "README.md").read_text()
    (chown,) = re.findall(r"--entrypoint chown weft (\S+) (.+)", readme)
    user, files = chown
    assert user == dict(last_stage())["USER"]
    mounted = {CONTENT["secrets"][name]["file"] for s in SERVICES.values() for name in s["secrets"]}
    assert {f"./{Path(file).name}" for file in files.split()} == mounted


def secrets_of(folder: Path) -> None:
    """Make the files of the secrets, by the commands of the README."""
    readme = (FOLDER / "README.md").read_text()
    (make,) = re.findall(r"^    python3 -c '(.+)' > token;", readme, re.MULTILINE)
    token = folder / "token"
    token.write_text(run(code=make, folder=folder).stdout)
    token.chmod(0o600)
    commands = re.findall(r"^    weft (token .+)$", readme, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        done = run(*command.split(), folder=folder)
        assert done.returncode == 0, done.stderr


def arguments_here(name: str, folder: Path, scheduler: str = "") -> list[str]:
    """Return what a container would run, with this folder in the place of its volumes."""
    first, *arguments = of_image(name)
    assert first == "weft"
    files = {f"/run/secrets/{key}": folder / row["file"] for key, row in CONTENT["secrets"].items()}
    (volume,) = SERVICES["scheduler"]["volumes"]
    files[volume.split(":")[1]] = folder / "volume"
    text = json.dumps(arguments)
    for there, here in files.items():
        text = re.sub(rf"{re.escape(there)}(?=[/\"])", str(here), text)
    text = text.replace("tls://scheduler:8786", scheduler)
    assert "/run/" not in text.replace(str(folder), "")
    return json.loads(text)


def environment_here(name: str, folder: Path) -> dict[str, str]:
    mounted = "/run/secrets/"
    return {
        key: str(folder / CONTENT["secrets"][value.removeprefix(mounted)]["file"])
        if value.startswith(mounted)
        else value
        for key, value in SERVICES[name]["environment"].items()
    }


@pytest.mark.slow
def test_the_commands_of_the_containers_make_a_cluster(tmp_path):
    secrets_of(tmp_path)
    (tmp_path / "volume").mkdir()
    scheduler = [*arguments_here("scheduler", tmp_path), "--port=0"]
    of_scheduler = environment_here("scheduler", tmp_path)
    with daemon(*scheduler, folder=tmp_path, **of_scheduler) as started:
        started.wait_for("connect ")
        port = address_of(started).rpartition(":")[2]
        address = f"tls://127.0.0.1:{port}"
        worker = [*arguments_here("worker", tmp_path, address), "--nworkers=2", "--nthreads=1"]
        of_worker = environment_here("worker", tmp_path)
        with daemon(*worker, folder=tmp_path, **of_worker) as workers:
            workers.wait_for("registered")
            env = {"WEFT_TOKEN_FILE": str(tmp_path / "client-token")}
            done = run("selftest", address, "--workers=2", folder=tmp_path, timeout=120, **env)
            assert done.returncode == 0, done.stdout + done.stderr
            assert workers.stop() == 0
        assert started.stop() == 0
