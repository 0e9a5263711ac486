"""The chart on a real API server, with nodes on which nothing runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.kube.api import ApiError
from tests.kube.chart import CHART, Release, release
from tests.kube.waiting import wait_until
from tests.tools.find import tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.usefixtures("seeming_nodes"),
]
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))


@pytest.fixture(scope="module")
def definitions(plane, tmp_path_factory):
    """The resources of KEDA, the Prometheus operator and cert-manager that the chart makes."""
    files = [
        *tool("keda-crds").glob("keda.sh_scaledobjects.yaml"),
        *tool("keda-crds").glob("keda.sh_triggerauthentications.yaml"),
        *tool("prometheus-operator-crds").glob("*servicemonitorcrd.yaml"),
        *tool("prometheus-operator-crds").glob("*servicemonitors.yaml"),
        *tool("prometheus-operator-crds").glob("*podmonitors.yaml"),
        *tool("prometheus-operator-crds").glob("*prometheusrulecrd.yaml"),
        *tool("prometheus-operator-crds").glob("*prometheusrules.yaml"),
    ]
    assert len(files) == 5, files
    # A template of cert-manager's own chart, in labels only.
    text = (tool("cert-manager-crds") / "crd-certificates.yaml").read_text(encoding="utf-8")
    files.append(tmp_path_factory.mktemp("definitions") / "certificates.yaml")
    files[-1].write_text(re.sub(r"{{.*?}}", "any", text), encoding="utf-8")
    plane.run("kubectl", "apply", "--server-side", *(f"--filename={path}" for path in files))
    wait = ["wait", "--for=condition=Established", "--timeout=60s"]
    plane.run("kubectl", *wait, *(f"--filename={path}" for path in files))
    yield
    plane.run("kubectl", "delete", *(f"--filename={path}" for path in files))


def test_a_release_is_installed_upgraded_and_removed_and_keeps_its_secrets(plane, namespace):
    sim = Release(plane, namespace)
    notes = sim.helm("install", "--wait", "--timeout=120s")
    assert f"The weft cluster sim in namespace {namespace}." in notes
    secrets = [sim.secret(), sim.secret("client")]
    uids = {pod["metadata"]["uid"] for pod in sim.wait_running("scheduler", 1)}
    sim.helm("upgrade", "--set", "workers.default.replicas=3", "--wait", "--timeout=120s")
    sim.wait_running("worker", 3)
    assert [sim.secret(), sim.secret("client")] == secrets
    # The annotations with the sums of the secrets have not changed either.
    assert {pod["metadata"]["uid"] for pod in sim.running("scheduler")} == uids
    sim.helm("uninstall", "--wait", "--timeout=120s")
    sim.helm("install", "--wait", "--timeout=120s")
    assert [sim.secret(), sim.secret("client")] == secrets
    sim.helm("uninstall", "--wait", "--timeout=120s")


def test_a_drained_node_loses_its_workers_a_few_at_a_time_and_its_scheduler(
    plane, seeming_nodes, namespace
):
    with release(plane, namespace, "--set", "workers.default.replicas=8") as sim:
        (scheduler,) = sim.wait_running("scheduler", 1)
        node = scheduler["spec"]["nodeName"]
        before = {pod["metadata"]["name"] for pod in sim.wait_running("worker", 8)}
        try:
            sim.kubectl(
                "drain", node, "--pod-selector=app.kubernetes.io/instance=sim", "--timeout=120s",
                "--delete-emptydir-data",
            )  # fmt: skip
            (scheduler,) = sim.wait_running("scheduler", 1)
            workers = sim.wait_running("worker", 8)
        finally:
            plane.run("kubectl", "uncordon", node)
        assert {pod["spec"]["nodeName"] for pod in [scheduler, *workers]} == {*seeming_nodes} - {
            node
        }
        assert before != {pod["metadata"]["name"] for pod in workers}
        # A quarter of 8 may be missing: evictions beyond it were refused, and done later.
        budget = plane.api.get(
            f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/sim-weft-worker-default"
        )
        assert budget["status"]["disruptionsAllowed"] == 2


def test_a_misspelt_value_is_refused_before_anything_is_made(plane, namespace):
    sim = Release(plane, namespace)
    text = sim.helm("install", "--set", "scheduler.replcas=3", check=False)
    assert "'replcas' not allowed" in text
    assert sim.pods() == []


def test_pods_without_the_security_of_the_chart_are_refused_by_the_namespace(plane, namespace):
    sim = Release(plane, namespace)
    sim.helm("install", "--set-json", 'containerSecurityContext={"runAsUser": 0}')

    def refusals():
        events = plane.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        return [e["message"] for e in events if e["reason"] == "FailedCreate"]

    wait_until(refusals, 60, "the pods are refused")
    assert all('violates PodSecurity "restricted:latest"' in text for text in refusals())
    sim.helm("uninstall", "--wait", "--timeout=120s")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem.removesuffix("-values"))
def test_the_api_server_accepts_the_example_values(plane, namespace, definitions, path):
    text = Release(plane, namespace).helm(
        "install", "--dry-run=server", f"--values={path}", "--output=json"
    )
    manifest = json.loads(text)["manifest"]
    done = plane.run(
        *("kubectl", "apply", "--dry-run=server", "--namespace", namespace, "--filename=-"),
        stdin=manifest,
    )
    assert "StatefulSet" in manifest
    assert "statefulset.apps/" in done.stdout
    # Of a violation of Pod Security the server only warns here.
    assert "would violate" not in done.stderr


def test_a_secret_for_users_without_the_id_of_the_cluster_is_a_warning_with_a_remedy(
    plane, namespace, tmp_path
):
    keys = {"auth": ["cluster-id"], "users": ["client-token"], "whole": ["cluster-id"]}
    for name, own in keys.items():
        data = dict.fromkeys(own, "YWJj")
        secrets = f"/api/v1/namespaces/{namespace}/secrets"
        plane.api.create(secrets, {"metadata": {"name": name}, "data": data})

    def notes(users):
        names = ("--set=auth.existingSecret=auth", f"--set=auth.existingClientSecret={users}")
        return Release(plane, namespace).helm("install", "--dry-run=server", *names)

    assert "no key cluster-id" not in notes("whole")
    text = notes("users")
    assert "WARNING: Secret users has no key cluster-id" in text
    (command,) = [line for line in text.splitlines() if "patch secret users" in line]
    path = f"{tool('kubectl').parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(tmp_path)}
    subprocess.run(["sh", "-c", command], env=environment, check=True, timeout=60)
    assert "no key cluster-id" not in notes("users")


def test_wrong_values_of_objects_of_keda_are_refused_by_its_definition(
    plane, namespace, definitions
):
    values = f"--values={CHART / 'ci' / 'autoscaling-keda-values.yaml'}"
    with release(plane, namespace, values):
        objects = f"/apis/keda.sh/v1alpha1/namespaces/{namespace}/scaledobjects"
        (found,) = plane.api.get(objects)["items"]
        spec = found["spec"]
        assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 100)
        path = f"{objects}/{found['metadata']['name']}"
        with pytest.raises(ApiError, match="maxReplicaCount"):
            plane.api.patch(path, {"spec": {"maxReplicaCount": "many"}})


def test_a_pod_that_cannot_be_scheduled_is_pending_with_the_reason(plane, namespace):
    sim = Release(plane, namespace)
    sim.helm("install", "--set", "workers.default.resources.limits.cpu=100")

    def reasons():
        return [
            condition["message"]
            for pod in sim.pods("worker")
            for condition in pod["status"].get("conditions", [])
            if condition.get("reason") == "Unschedulable"
        ]

    wait_until(reasons, 60, "a pod is pending")
    assert "Insufficient cpu" in reasons()[0]
    sim.helm("uninstall", "--wait", "--timeout=120s")


def test_the_examples_were_found():
    assert len(EXAMPLES) >= 8
    assert all(isinstance(path, Path) for path in EXAMPLES)
