"""The image: what its steps install is installed here, without a builder, and started."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leaks import wait_until

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile, with their arguments."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line]
    pairs = [line.partition(" ") for line in lines]
    return [(name, rest.strip()) for name, _, rest in pairs]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    (*_, begin) = (n for n, (name, _) in enumerate(found) if name == "FROM")
    return found[begin:]


def allowed() -> list[str]:
    """Return the names at the top of the checkout that the builder gets."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert rules[-1] == "**/__pycache__"
    assert all(rule.startswith("!") for rule in rules[1:-1])
    return [rule[1:] for rule in rules[1:-1]]


def test_the_image_runs_weft_as_its_first_process_and_not_as_root():
    stage = dict(last_stage())
    assert json.loads(stage["ENTRYPOINT"]) == ["weft"]  # the exec form: no shell in between
    assert isinstance(json.loads(stage["CMD"]), list)
    user, _, group = stage["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    names = [name for name, _ in instructions()]
    assert "HEALTHCHECK" not in names
    assert names.count("FROM") == 2


def test_each_step_is_one_of_the_script():
    for name, rest in instructions():
        if name == "RUN":
            assert re.search(r"install\.sh (packages|user) ", rest), rest
        if name == "COPY" and "/source/" in rest:
            there = rest.split("/source/")[1].split()[0]
            assert (ROOT / there).exists()


def test_the_user_of_the_image_is_that_of_the_chart(tmp_path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is missing: pip install pyyaml")
    values = yaml.safe_load((ROOT / "deploy/helm/weft/values.yaml").read_text())
    context = values["podSecurityContext"]
    user = f"{context['runAsUser']}:{context['runAsGroup']}"
    assert dict(last_stage())["USER"] == user
    step = [str(DOCKER / "install.sh"), "user", str(tmp_path)]
    subprocess.run(step, check=True, timeout=30)
    assert f"weft:x:{user}:" in (tmp_path / "etc" / "passwd").read_text()
    for folder in ("home/weft", "var/lib/weft"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_wrong_arguments_of_the_script_are_one_line(tmp_path):
    for arguments, words in (
        (["packages"], "give packages PREFIX, or user ROOT"),
        (["pakages", "x"], "unknown step pakages"),
        (["packages", str(tmp_path)], "exists; remove it"),
    ):
        command = [str(DOCKER / "install.sh"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert words in done.stderr


@pytest.mark.slow
def test_the_packages_that_the_steps_install_run_a_cluster(tmp_path):
    source, prefix = tmp_path / "source", tmp_path / "opt"
    source.mkdir()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    (source / ".git").mkdir()
    (source / ".git" / "HEAD").write_text("0123456789abcdef" * 2 + "01234567\n")
    for name in allowed():
        if name.startswith(".git/"):
            continue  # the names of commits, as written above
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / name)
    step = [str(source / "deploy" / "docker" / "install.sh"), "packages", str(prefix)]
    # The image that builds has no git.
    git = tmp_path / "bin" / "git"
    git.parent.mkdir()
    git.write_text("#!/bin/sh\nexit 127\n")
    git.chmod(0o755)
    done = subprocess.run(
        step,
        env=os.environ
        | {
            "PYTHON": sys.executable,
            "PATH": f"{git.parent}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.match(r"weft \d[\w.]*\+g012345678 ", done.stdout)
    shutil.rmtree(source)  # nothing is needed of it
    assert not list(prefix.rglob("pip")), "the image needs no pip"
    assert (prefix / "lib").exists()
    weft = str(prefix / "bin" / "weft")
    # Nothing of this checkout's own environment.
    (tmp_path / "home").mkdir(mode=0o700)
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    log = tmp_path / "log"
    with log.open("wb") as out:
        processes = [
            subprocess.Popen(command, env=env, cwd=tmp_path, stdout=out, stderr=out)
            for command in (
                [weft, "scheduler", "--port=0", "--no-dashboard", "--no-restart"],
                [weft, "worker", "--nworkers=2", "--nthreads=1", "--connect-timeout=60"],
            )
        ]
    try:
        wait_until(lambda: log.read_text().count("registered") == 2, 60, "two workers")
        test = [weft, "selftest", "--workers=2"]
        done = subprocess.run(
            test, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr + log.read_text()
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(60) for process in processes]
    assert codes == [0, 0], log.read_text()
