"""`weft connect` with a kubectl that answers from files; tests/kube has the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.deploy.daemons import environment
from tests.deploy.kubernetes.test_release import SERVICES, encoded
from tests.leaks import wait_until

KUBECTL = """#!/bin/sh
cd "$(dirname "$0")"
case "$*" in
*get*services*) cat services ;;
*get*secret*) cat secret ;;
*port-forward*)
    echo $$ > pid
    echo "Forwarding from 127.0.0.1:40001 -> 8786"
    echo "Forwarding from 127.0.0.1:40002 -> 8787"
    exec sleep 600 ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    (tmp_path / "services").write_text(json.dumps({"items": SERVICES}))
    return tmp_path


@pytest.fixture
def connect(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """`weft connect`, with a Secret that has no id of the cluster."""
    (folder / "secret").write_text(json.dumps({"data": encoded(client_token="t" * 43)}))
    path = f"{folder}:{os.environ['PATH']}"
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "weft", "connect", "k8s/sim"],
        env=environment(folder / "home", PATH=path),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process
        process.kill()


def test_kubectl_ends_with_weft_connect_even_if_that_is_killed(connect, folder):
    assert connect.stdout is not None
    lines = [connect.stdout.readline() for _ in range(4)]
    assert "at tls://127.0.0.1:40001, until Ctrl-C" in lines[0]
    # Without the cluster's id there is no connection file, and the text says what to do.
    assert "Secret mine has no cluster-id; copy it there" in lines[1]
    assert "WEFT_TOKEN_FILE=FILE" in lines[2]
    kubectl = psutil.Process(int((folder / "pid").read_text()))
    assert kubectl.is_running()
    connect.kill()
    wait_until(lambda: not kubectl.is_running(), 30, "the end of kubectl")
