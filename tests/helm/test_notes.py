"""The text after `helm install`: its commands are those that connect to the cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Any

import pytest

from tests.deploy.test_units import options_of
from tests.helm.rendering import CHART, render

pytestmark = pytest.mark.slow


@pytest.fixture
def notes(tmp_path):
    """A function that returns the notes, which `helm template` leaves out."""
    chart = tmp_path / "weft"
    shutil.copytree(CHART, chart)
    (chart / "templates" / "notes.yaml").write_text(
        "apiVersion: v1\nkind: Notes\nmetadata: {name: notes}\n"
        'text: {{ include (print .Template.BasePath "/NOTES.txt") . | toJson }}\n'
    )

    def made(values: dict[str, Any] | None = None) -> str:
        return str(render(values, chart=chart).one("Notes")["text"])

    return made


def test_the_notes_forward_the_port_and_read_the_token_of_role_client(notes, tmp_path):
    text = notes()
    assert "weft connect k8s/sim --namespace lab\n" in text
    assert options_of(["weft", "connect", "k8s/sim", "--namespace", "lab"])["namespace"] == "lab"
    assert "kubectl -n lab port-forward service/sim-weft-scheduler 8786:8786" in text
    command, view = re.findall(r"^  (.*kubectl -n lab get secret .*)$", text, re.MULTILINE)
    assert '"view-token"' in view
    assert "sim-weft-client" in command
    # A kubectl that prints its last argument shows what the shell makes of the command.
    fake = tmp_path / "bin" / "kubectl"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nfor last; do :; done\nprintf %s "$last"\n')
    fake.chmod(0o755)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    subprocess.run(["sh", "-c", command], check=True, env=env, timeout=20)
    file = tmp_path / ".weft-sim"
    assert file.read_text() == 'go-template={{index .data "client-token" | base64decode}}'
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_notes_name_the_connection_file_or_the_token_of_a_given_secret(notes):
    assert "WEFT_CONNECTION_FILE=/run/secrets/weft/client.json" in notes()
    given = notes({"auth.existingSecret": "mine", "auth.existingClientSecret": "users"})
    assert "get secret users" in given
    assert 'weft.Client("tls://sim-weft-scheduler.lab.svc:8786")' in given
    assert "WEFT_TOKEN_FILE=/run/secrets/weft/client-token" in given
    assert "get secret mine" in notes({"auth.existingSecret": "mine"})


def test_a_pool_of_0_replicas_is_a_warning_with_the_command_that_scales_it(notes):
    assert "WARNING" not in notes()
    warned = notes({"workers.gpu.replicas": 0})
    assert "WARNING: the pool gpu has 0 replicas" in warned
    assert "scale deployment/sim-weft-worker-gpu --replicas=2" in warned
    assert "WARNING" not in notes({"workers.default.replicas": 0, "autoscaling.mode": "keda"})
    assert "WARNING: networkPolicy.enabled is false" in notes({"networkPolicy.enabled": False})
    nowhere = notes({"workers.default.enabled": False})
    assert "WARNING: no pool of workers is enabled" in nowhere


def test_a_service_for_clients_outside_that_no_policy_lets_in_is_a_warning(notes):
    outside = {"scheduler.service.type": "LoadBalancer"}
    warned = notes(outside)
    assert "type LoadBalancer, and networkPolicy.clients is empty" in warned
    assert "every network" not in warned
    network = [{"ipBlock": {"cidr": "203.0.113.0/24"}}]
    assert "WARNING" not in notes({**outside, "networkPolicy.clients": network})
    unguarded = notes({**outside, "networkPolicy.enabled": False})
    assert "networkPolicy.clients is empty" not in unguarded
    assert "WARNING: the load balancer lets every network in" in unguarded
