"""Mistakes of operators and users of the chart: what they see, and that mending it is enough."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.kube.chart import Release, release
from tests.kube.client_pod import ClientPod
from tests.kube.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.usefixtures("nodes"),
]
ONE = ("--set", "workers.default.replicas=1")


def warnings(sim, name):
    """Return the warnings about a pod."""
    events = sim.plane.api.get(f"/api/v1/namespaces/{sim.namespace}/events")["items"]
    return [e["message"] for e in events if e["involvedObject"]["name"] == name]


def runs(sim, nodes, name):
    """Run a call from a pod of a client."""
    code = "import weft; print(weft.Client().submit(sum, [1, 2]).result(60))"
    with ClientPod(sim, nodes, name, ["python", "-c", code]) as client:
        client.wait_end()
    return client.last_log == "3\n"


def secret(*arguments):
    """Run `weft secret`."""
    command = [sys.executable, "-m", "weft", "secret", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_a_release_with_a_wrong_image_is_mended_by_the_next_one(plane, nodes, namespace):
    with release(plane, namespace, *ONE) as sim:
        sim.helm("upgrade", *ONE, "--set", "image.repository=missing")
        name = f"{sim.name}-scheduler-0"
        wait_until(lambda: any("missing:" in text for text in warnings(sim, name)), 60, "an event")
        sim.helm("upgrade", *ONE, "--wait", "--timeout=120s")
        assert runs(sim, nodes, "client")


def test_a_missing_secret_is_named_in_the_events_and_making_it_is_enough(plane, nodes, namespace):
    sim = Release(plane, namespace)
    given = "--set=auth.existingSecret=mine,auth.existingClientSecret=sim-weft-client"
    sim.helm("install", *ONE, given)
    name = f"{sim.name}-scheduler-0"
    wait_until(
        lambda: any('secret "mine" not found' in text for text in warnings(sim, name)),
        60,
        "an event",
    )
    # As docs/kubernetes.md has it for GitOps; the pod of a client reads the second one.
    manifests = secret("mine", "--client-secret=sim-weft-client", f"--namespace={namespace}")
    plane.run("kubectl", "apply", "--filename=-", stdin=manifests)
    sim.wait_running("scheduler", 1)
    assert "Succeeded" in sim.helm("test", "--timeout=120s")
    sim.helm("uninstall", "--wait", "--timeout=120s")


def test_pages_refuse_wrong_tokens_and_foreign_names_with_a_line_for_the_user(
    plane, nodes, namespace
):
    names = "--set=scheduler.pagesHostNames={weft.example.org}"
    # As with monitoring.podMonitor.enabled, which would need the Prometheus operator.
    pages = "--set=workerDefaults.extraArgs={--metrics-address=0.0.0.0:9100}"
    with release(plane, namespace, *ONE, names, pages) as sim:
        (worker,) = sim.wait_running("worker", 1)
        url = f"https://{sim.name}-scheduler.{namespace}.svc:8787"
        command = ["python", "-m", "tests.kube.asking", url, "weft.example.org"]
        command.append(f"https://{worker['status']['podIP']}:9100/metrics")
        with ClientPod(sim, nodes, "asking", command) as asking:
            asking.wait_end()
    answers = dict(line.split(": ", 1) for line in asking.last_log.splitlines())
    for title in ("health", "ready", "view token", "known name", "worker"):
        assert answers[title].startswith("200 "), answers
    # KEDA reads this.
    status, _, text = answers["scale"].partition(" ")
    assert status == "200"
    assert type(json.loads(text)["desired_workers"]) is int
    for title in ("no token", "wrong token", "worker without token"):
        assert answers[title].startswith("401 401 the cluster's view token is needed"), answers
    assert "pages take the view token only, this one is of role client" in answers["client's token"]
    assert answers["foreign name"].startswith("421 421 "), answers
    assert "--dashboard-host-name" in answers["foreign name"]


def test_new_secrets_replace_the_pods_and_old_ones_are_refused(plane, nodes, namespace):
    with release(plane, namespace, *ONE) as sim:
        before = sim.secret()
        sim.kubectl("delete", "secret", f"{sim.name}-auth", f"{sim.name}-client")
        sim.helm("upgrade", *ONE, "--wait", "--timeout=120s")
        after = sim.secret()
        assert before.keys() == after.keys()
        assert not {*before.values()} & {*after.values()}
        sim.wait_running("worker", 1)
        assert runs(sim, nodes, "new")
        old = {"client.json": None, "client-token": before["client-token"]}
        path = f"/api/v1/namespaces/{namespace}/secrets/{sim.name}-client"
        plane.api.patch(path, {"data": old})
        code = (
            "import os, weft; os.environ['WEFT_TOKEN_FILE'] = '/etc/weft/client-token'; "
            "del os.environ['WEFT_CONNECTION_FILE']\n"
            f"try: weft.Client('tls://{sim.name}-scheduler.{namespace}.svc:8786')\n"
            "except weft.WeftError as error: print(type(error).__name__, error)"
        )
        with ClientPod(sim, nodes, "old", ["python", "-c", code]) as client:
            client.wait_end()
        assert client.last_log.startswith("WrongToken "), client.last_log
