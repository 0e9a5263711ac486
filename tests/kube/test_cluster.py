"""`KubeCluster` on a release whose pods run: used and scaled with the rights of a user."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import urllib.request

import pytest

import weft
from tests.kube.chart import Release, release
from tests.leaks import wait_until
from weft.deploy.kubernetes.cluster import KubeCluster
from weft.deploy.kubernetes.errors import KubernetesError, PodsNotReady
from weft.protocol.errors import ConfigError

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.usefixtures("nodes"),
]


@pytest.fixture(scope="module")
def sim(plane, nodes):
    namespace = plane.make_namespace("cluster")
    with release(plane, namespace, "--set", "workers.default.replicas=1") as made:
        yield made


def cluster_of(sim: Release, **options: object) -> KubeCluster:
    return KubeCluster("sim", sim.namespace, kubeconfig=str(sim.plane.kubeconfig), **options)


def square(x: int) -> int:
    return x * x


def test_a_release_is_used_and_scaled_from_outside(sim):
    with cluster_of(sim) as cluster, weft.Client(cluster, timeout=60) as client:
        assert client.cluster is cluster
        assert cluster.n_workers == 1
        assert client.gather(client.map(square, range(100))) == [x * x for x in range(100)]
        cluster.scale(3)
        cluster.wait_for_workers(timeout=120)
        assert len(client.nthreads()) == 3
        cluster.scale(1)
        wait_until(lambda: len(client.nthreads()) == 1, 60, "two workers have left")
        assert client.submit(square, 7).result(timeout=60) == 49
        marks = [pod["metadata"].get("annotations", {}) for pod in sim.running("worker")]
        assert not any("pod-deletion-cost" in name for names in marks for name in names)
        logs = cluster.get_logs()
        assert "joined" in logs["sim-weft-scheduler-0"]
        assert "sim" in repr(cluster)


def test_the_status_page_is_reached_by_a_forwarded_port_and_signs_in(sim):
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE  # as a user does by hand
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=trust), urllib.request.HTTPCookieProcessor()
    )
    with cluster_of(sim) as cluster:
        link = cluster.dashboard_link
        assert link.startswith("https://127.0.0.1:")
        opener.open(link, timeout=60).close()  # leaves a cookie
        with opener.open("/".join(link.split("/")[:3]), timeout=60) as page:
            text = page.read().decode()
        assert "sim-weft-worker-default" in text


def test_a_release_with_secrets_of_its_users_own_is_used(plane, nodes, namespace, tmp_path):
    """Such a Secret has a token and an id, and no connection file."""
    arguments = ["secret", "mine", "--client-secret", "users"]
    printed = subprocess.run(
        [sys.executable, "-m", "weft", *arguments], capture_output=True, text=True, check=True
    )
    plane.run("kubectl", "-n", namespace, "apply", "--filename=-", stdin=printed.stdout)
    options = ["--set", "auth.existingSecret=mine", "--set", "auth.existingClientSecret=users"]
    with release(plane, namespace, *options, "--set", "workers.default.replicas=1") as made:
        with cluster_of(made) as cluster, weft.Client(cluster, timeout=60) as client:
            assert client.submit(square, 9).result(timeout=60) == 81
        with pytest.raises(KubernetesError, match=r"secrets/nothing.*404"):
            cluster_of(made, secret="nothing")


def test_a_release_adapts_to_the_work(sim):
    with cluster_of(sim) as cluster, weft.Client(cluster, timeout=60) as client:
        adaptation = cluster.adapt(0, 2, interval="200ms", wait_up="0s", wait_down="1s")
        wait_until(lambda: not client.nthreads(), 60, "no work, no workers")
        assert client.submit(square, 3).result(timeout=120) == 9
        assert adaptation.is_running
        cluster.scale(1)
        cluster.wait_for_workers(1, timeout=120)


def test_an_asynchronous_cluster_is_awaited(sim):
    async def main() -> list[int]:
        async with (
            cluster_of(sim, asynchronous=True) as cluster,
            weft.Client(cluster, asynchronous=True, timeout=60) as client,
        ):
            await cluster.wait_for_workers(1, timeout=120)
            return await client.gather(client.map(square, range(3)))

    assert asyncio.run(main()) == [0, 1, 4]


def test_the_reason_why_pods_do_not_run_is_in_the_error(plane, nodes, namespace):
    options = ["--set", "workers.default.resources.limits.cpu=100"]
    made = Release(plane, namespace)
    made.helm("install", *options)
    try:
        made.wait_running("scheduler", 1)
        wait_until(
            lambda: any(
                condition.get("reason") == "Unschedulable"
                for pod in made.pods("worker")
                for condition in pod["status"].get("conditions", [])
            ),
            60,
            "a pod that cannot be placed",
        )
        with cluster_of(made) as cluster:
            with pytest.raises(PodsNotReady) as caught:
                cluster.wait_for_workers(1, timeout=1)
            assert "Unschedulable" in str(caught.value)
            assert "Insufficient cpu" in str(caught.value)
    finally:
        made.helm("uninstall", "--wait", "--timeout=120s", check=False)


def test_a_quota_that_refuses_pods_is_among_the_problems(sim):
    plane, namespace = sim.plane, sim.namespace
    path = f"/api/v1/namespaces/{namespace}/resourcequotas"
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few"},
        "spec": {"hard": {"pods": "2"}},
    }
    plane.api.create(path, quota)
    try:
        with cluster_of(sim) as cluster:
            cluster.scale(6)
            wait_until(lambda: any("quota" in p for p in cluster.problems()), 60, "a refused pod")
            cluster.scale(1)
    finally:
        plane.api.delete(f"{path}/few")


def test_an_unknown_release_and_pool_are_errors_with_those_that_there_are(sim):
    path = str(sim.plane.kubeconfig)
    with pytest.raises(ConfigError, match="releases there: sim"):
        KubeCluster("simm", sim.namespace, kubeconfig=path)
    with pytest.raises(ConfigError, match="its pools: default"):
        cluster_of(sim, pool="gpu")
    with pytest.raises(ConfigError, match="kubeconfig"):
        KubeCluster("sim", kubeconfig="/nowhere")
    with pytest.raises(ConfigError, match="context"):
        KubeCluster("sim", kubeconfig=path, context="nowhere")


def test_a_missing_right_is_named(sim):
    options = {"kubeconfig": str(sim.plane.kubeconfig_of("user"))}
    with pytest.raises(KubernetesError, match="you may not list services") as caught:
        KubeCluster("sim", sim.namespace, **options)
    assert "a rule for verb 'list' of resource 'services'" in str(caught.value)
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{sim.namespace}"
    rules = [
        {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods", "services"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get"]},
        {
            "apiGroups": [""],
            "resources": ["secrets"],
            "resourceNames": ["sim-weft-client"],
            "verbs": ["get"],
        },
    ]
    metadata = {"name": "users"}
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata}
    sim.plane.api.create(f"{base}/roles", {**role, "kind": "Role", "rules": rules})
    sim.plane.api.create(
        f"{base}/rolebindings",
        {
            **role,
            "kind": "RoleBinding",
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "users"},
            "subjects": [{"kind": "User", "name": "user", "apiGroup": "rbac.authorization.k8s.io"}],
        },
    )
    with (
        KubeCluster("sim", sim.namespace, **options) as cluster,
        weft.Client(cluster, timeout=60) as client,
    ):
        assert client.submit(square, 5).result(timeout=60) == 25
        with pytest.raises(KubernetesError, match="you may not patch deployments/scale"):
            cluster.scale(4)
        with pytest.raises(KubernetesError, match="you may not list events"):
            cluster.problems()
