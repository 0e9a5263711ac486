"""A release whose pods are containers: what only a kubelet, a runtime and a network can show."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.kube import busy
from tests.kube.chart import release
from tests.kube.connecting import connected, permit
from tests.kube.containers.client import ContainerClient
from tests.kube.waiting import wait_until
from weft.deploy.kubernetes.cluster import KubeCluster

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources, pytest.mark.usefixtures("nodes")]

MEMORY = 512 << 20
#: What two nodes on a small machine have room for; a pod that ends gets a minute.
OPTIONS = (
    *("--set=image.tag=test", "--set=scheduler.resources.requests.cpu=100m"),
    *("--set=workerDefaults.resources.requests.cpu=100m",),
    *(f"--set-string=workerDefaults.resources.limits.memory={MEMORY}",),
    *("--set=workerDefaults.terminationGracePeriodSeconds=60",),
)
LIMIT_S = 240


@pytest.fixture(scope="module")
def sim(plane, nodes):
    namespace = plane.make_namespace("lab")
    with release(plane, namespace, *OPTIONS) as made:
        yield made


@contextmanager
def outside(sim):
    """A client on this side of a forwarded port, which reaches no pod."""
    options = {"kubeconfig": str(sim.plane.kubeconfig)}
    with (
        KubeCluster("sim", sim.namespace, **options) as cluster,
        weft.Client(cluster, timeout=LIMIT_S, reconnect_timeout=LIMIT_S) as client,
    ):
        yield client


def restarts(pods):
    """Return how often the containers of pods were started again."""
    return [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods]


def busy_client(sim, nodes):
    """Return a pod that maps and checks without a pause; the image has no tests."""
    command = ["python", "-c", Path(busy.__file__).read_text(encoding="utf-8"), "/control"]
    return ContainerClient(sim, nodes, "busy", command)


def test_the_pods_become_ready_and_pass_the_chart_s_own_test(sim):
    pods = [*sim.wait_running("scheduler", 1), *sim.wait_running("worker", 2)]
    assert restarts(pods) == [0, 0, 0]
    assert "Succeeded" in sim.helm("test", "--timeout=240s")


def test_containers_have_the_user_and_the_read_only_files_of_the_chart(sim):
    command = "id -u; touch /opt/weft/x || touch /tmp/x; ls /run/secrets/weft/auth"
    name = sim.wait_running("worker", 2)[0]["metadata"]["name"]
    user, secrets, refused = sim.kubectl("exec", name, "--", "sh", "-c", command).splitlines()
    assert (user, secrets) == ("1001", "worker-token")
    assert "/opt/weft/x': Read-only file system" in refused


def test_a_client_in_a_pod_computes_and_gets_results_from_the_workers(sim, nodes):
    script = """
import weft
with weft.Client() as client:
    parts = client.map(lambda n: bytes([n]) * (80 << 20), range(2), pure=False)
    print([len(part) for part in client.gather(parts)], flush=True)
"""  # more than what goes through the scheduler: 64 MiB
    with ContainerClient(sim, nodes, "reader", ["python", "-c", script]) as client:
        client.wait_for(str([80 << 20] * 2))
        client.wait_end()


def test_a_client_from_outside_computes_through_a_forwarded_port(sim):
    with outside(sim) as client:
        assert client.gather(client.map(lambda n: n * n, range(100))) == [n * n for n in range(100)]


def test_weft_connect_forwards_a_port_with_kubectl_and_the_rights_of_a_user(sim, tmp_path):
    permit(sim, "sim-weft-client")
    out, err = tmp_path / "out", tmp_path / "err"
    with connected(sim, tmp_path, "k8s/sim", "--namespace", sim.namespace) as process:
        wait_until(lambda: "status page" in out.read_text() or process.poll(), 60)
        assert process.poll() is None, err.read_text()
        lines = out.read_text().splitlines()
        (path,) = [Path(line.split()[-1]) for line in lines if "connection file" in line]
        with weft.Client(connection_file=path, timeout=60) as client:
            assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert process.returncode == 0


def test_a_map_loses_nothing_when_containers_are_killed_and_pods_removed(sim, nodes):
    with busy_client(sim, nodes) as client:
        client.wait_for("round 0")

        def goes_on(what):
            n_rounds = client.log().count("round")
            client.wait_until(lambda: client.log().count("round") >= n_rounds + 2, what)

        worker = sim.wait_running("worker", 2)[0]
        nodes.kill(worker)
        wait_until(lambda: 1 in restarts(sim.pods("worker")), LIMIT_S, "a container's restart")
        goes_on("work after a worker was killed")
        name = sim.wait_running("worker", 2)[0]["metadata"]["name"]
        sim.kubectl("delete", "pod", name, "--grace-period=0", "--force")
        goes_on("work after a worker's pod was removed")
        (scheduler,) = sim.wait_running("scheduler", 1)
        nodes.kill(scheduler)
        goes_on("work after the scheduler was killed")
        (client.control / "stop").touch()
        client.wait_end()
    assert "results were right" in client.last_log


def test_results_of_a_drained_node_move_and_none_is_computed_again(sim):
    def make(n):
        return os.urandom(1 << 20)

    def digest(data):
        return hashlib.sha256(data).hexdigest()

    def slow(n):
        time.sleep(0.2)  # workload
        return n

    sim.wait_running("worker", 2)
    (scheduler,) = sim.wait_running("scheduler", 1)
    places = {pod["spec"]["nodeName"] for pod in sim.running("worker")}
    (node,) = places - {scheduler["spec"]["nodeName"]}
    with outside(sim) as client:
        made = client.map(make, range(64), pure=False)
        before = client.gather(client.map(digest, made, pure=False))
        running = client.map(slow, range(100), pure=False)
        try:
            sim.kubectl(
                *("drain", node, "--pod-selector=app.kubernetes.io/instance=sim"),
                *("--delete-emptydir-data", "--timeout=200s"),
            )
            assert client.gather(client.map(digest, made, pure=False)) == before
            assert client.gather(running) == [*range(100)]
        finally:
            sim.kubectl("uncordon", node)
    sim.wait_running("worker", 2)


def test_results_beyond_the_memory_of_the_pods_go_to_disk_and_no_container_is_killed(sim, nodes):
    def make(n):
        return bytes([n]) * (10 << 20)

    pods = sim.wait_running("worker", 2)
    earlier = restarts(pods)
    for pod in pods:
        limit = nodes.cgroup_of(pod, "memory") / "memory.limit_in_bytes"
        assert int(limit.read_text()) == MEMORY
    with outside(sim) as client:
        made = client.map(make, range(150), pure=False)  # 1.5 GB, with 2 x 0.5 GB of memory
        assert client.gather(client.map(len, made)) == [10 << 20] * 150
        on_disk = sum(nodes.size_of_volume(pod, "temporary") for pod in pods)
        assert on_disk > (150 * 10 << 20) - 2 * MEMORY
        assert client.gather(client.map(lambda data: data[-1], made)) == [*range(150)]
    found = sim.wait_running("worker", 2)
    assert {pod["metadata"]["uid"] for pod in found} == {pod["metadata"]["uid"] for pod in pods}
    assert sorted(restarts(found)) == sorted(earlier)


def test_a_task_that_takes_more_than_the_pod_s_limit_is_reported_and_others_go_on(sim):
    def greedy():
        return len(bytearray(2 * MEMORY))

    with outside(sim) as client:
        future = client.submit(greedy, pure=False)
        other = client.map(lambda n: n + 1, range(50), pure=False)
        with pytest.raises(weft.WorkerDied):
            future.result(timeout=LIMIT_S)
        assert client.gather(other) == [*range(1, 51)]
    sim.wait_running("worker", 2)
