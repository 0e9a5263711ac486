"""The chart's cluster with pods that run: work goes on while Kubernetes stops and moves them."""

from __future__ import annotations

import base64
import os
import random
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import weft
from benchmarks.helm_install import install_once
from tests.kube.api import ApiError
from tests.kube.chart import release
from tests.kube.client_pod import ClientPod
from tests.kube.connecting import connected, permit, run_connect
from tests.kube.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.usefixtures("nodes"),
]


@pytest.fixture(scope="module")
def sim(plane, nodes):
    namespace = plane.make_namespace("release")
    options = ["--set", "workers.default.replicas=3"]
    # A signal that meets the first process of a container in its first moments is lost.
    options += ["--set", "workers.default.terminationGracePeriodSeconds=30"]
    with release(plane, namespace, *options) as made:
        yield made


def plus_one(x):
    return x + 1


def slow_plus_one(x):
    time.sleep(3)  # workload
    return x + 1


def test_a_client_outside_reaches_the_cluster_by_a_forwarded_port(sim, tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_bytes(base64.b64decode(sim.secret("client")["client-token"]))
    token.chmod(0o600)
    monkeypatch.setenv("WEFT_TOKEN_FILE", str(token))
    command = ["kubectl", "-n", sim.namespace, "port-forward", "service/sim-weft-scheduler"]
    with sim.plane.started(*command, ":8786") as process:
        port = int(process.stdout.readline().split(":")[1].split()[0])
        with weft.Client(f"tls://127.0.0.1:{port}", timeout=60) as client:
            assert client.gather(client.map(plus_one, range(1000))) == [*range(1, 1001)]


def test_weft_connect_says_what_keeps_it_from_a_cluster(sim, tmp_path):
    refused = run_connect(sim, tmp_path, "k8s/sim", "--namespace", sim.namespace)
    assert refused.returncode == 2
    assert 'User "user" cannot list resource "services"' in refused.stderr
    permit(sim, "sim-weft-client")
    unknown = run_connect(sim, tmp_path, "k8s/sin", "--namespace", sim.namespace)
    assert unknown.returncode == 2
    place = f"namespace {sim.namespace!r}; releases there: sim."
    words = f"there is no release 'sin' of weft's chart in {place}"
    assert words in unknown.stderr
    assert "'sim' is not k8s/RELEASE" in run_connect(sim, tmp_path, "sim").stderr


def test_weft_connect_leads_clients_to_the_next_pod_of_the_scheduler(sim, tmp_path):
    out, err = tmp_path / "out", tmp_path / "err"
    with connected(sim, tmp_path, "k8s/sim", "--namespace", sim.namespace) as process:
        wait_until(lambda: "status page" in out.read_text() or process.poll(), 60)
        assert process.poll() is None, err.read_text()
        lines = out.read_text().splitlines()
        (path,) = [Path(line.split()[-1]) for line in lines if "connection file" in line]
        with weft.Client(connection_file=path, timeout=60, reconnect_timeout=120) as client:
            assert client.submit(plus_one, 1, pure=False).result(timeout=60) == 2
            future = client.submit(slow_plus_one, 2, pure=False)
            (pod,) = sim.wait_running("scheduler", 1)
            name = pod["metadata"]["name"]
            sim.plane.api.delete(f"/api/v1/namespaces/{sim.namespace}/pods/{name}", grace_s=0)
            assert future.result(timeout=120) == 3
            assert "connected to service/sim-weft-scheduler again" in err.read_text()
    assert process.returncode == 0
    assert not path.exists()


def make_trouble(kind, sim, nodes, choice):
    """Do one thing to the cluster; return what, for the report."""
    try:
        return TROUBLES[kind][1](sim, nodes, choice, kind)
    except (ApiError, ProcessLookupError, FileNotFoundError) as error:
        if isinstance(error, ApiError) and error.code != 404:
            raise
        return f"{kind}: its pod was gone already"  # by another trouble at the same time


def change_scale(sim, nodes, choice, kind):
    path = f"/apis/apps/v1/namespaces/{sim.namespace}/deployments/sim-weft-worker-default"
    present = sim.plane.api.get(path)["spec"]["replicas"]
    n = choice.choice([n for n in range(1, 5) if n != present])
    sim.kubectl("scale", "deployment/sim-weft-worker-default", f"--replicas={n}")
    return f"scale from {present} to {n}"


def drain(sim, nodes, choice, kind):
    node = choice.choice(nodes.names)
    selector = "--pod-selector=app.kubernetes.io/instance=sim"
    try:
        sim.kubectl("drain", node, selector, "--delete-emptydir-data", "--timeout=120s")
    finally:
        sim.kubectl("uncordon", node)
    return f"drain {node}"


def remove_pod(sim, nodes, choice, kind):
    if kind in {"restart", "kill"}:
        (pod,) = sim.wait_running("scheduler", 1)
    else:
        found = wait_until(lambda: sim.running("worker"), 60, "a worker")
        pod = choice.choice(sorted(found, key=lambda pod: pod["metadata"]["name"]))
    name = pod["metadata"]["name"]
    if kind == "crash":
        os.kill(nodes.pid_of(pod, "worker"), signal.SIGKILL)
    else:
        grace_s = 0 if kind in {"force", "kill"} else None
        sim.plane.api.delete(f"/api/v1/namespaces/{sim.namespace}/pods/{name}", grace_s)
    return f"{kind} {name}"


#: What happens to the cluster, each so many times, in the order of a seed.
TROUBLES = {
    "force": (4, remove_pod),  # a pod of a worker is removed without notice
    "crash": (4, remove_pod),  # the first process of such a pod is killed
    "delete": (3, remove_pod),  # a pod gets SIGTERM and its grace period
    "scale": (5, change_scale),  # another number of pods
    "drain": (2, drain),  # all pods of a node have to leave it
    "restart": (1, remove_pod),  # the scheduler's pod is replaced
    "kill": (1, remove_pod),  # the scheduler's pod is removed without notice
}


def groups_of(choice):
    """Return the troubles in an order by chance, in groups of those that happen at the same time.

    Two drains at a time would leave no node.
    """
    left = [kind for kind, (n, _) in TROUBLES.items() for _ in range(n)]
    choice.shuffle(left)
    groups = []
    while left:
        n = choice.randint(1, 4)
        group, left = left[:n], left[n:]
        if group.count("drain") > 1:
            group.remove("drain")
            left.append("drain")
        groups.append(group)
    return groups


def test_troubles_are_made_as_often_as_the_table_says():
    for seed in range(200):
        groups = groups_of(random.Random(seed))
        made = [kind for group in groups for kind in group]
        assert {kind: made.count(kind) for kind in TROUBLES} == {
            kind: n for kind, (n, _) in TROUBLES.items()
        }
        assert all(group.count("drain") <= 1 for group in groups)
        assert any(len(group) > 1 for group in groups)


def test_the_time_from_install_to_the_first_result_is_measured(plane, nodes):
    seconds = install_once(plane, nodes, 0)
    assert 0 < seconds["helm"] < seconds["first result"]


def test_the_test_of_the_chart_succeeds(sim):
    assert "Succeeded" in sim.helm("test", "--timeout=120s")


def test_a_map_goes_on_while_pods_are_killed_drained_and_scaled(sim, nodes, request):
    seed = request.config.getoption("--kube-seed")
    choice = random.Random(seed)
    story, begun_s = [], time.monotonic()
    with (
        ClientPod(sim, nodes, "busy", ["python", "-m", "tests.kube.busy", "/control"]) as busy,
        ThreadPoolExecutor(4) as threads,
    ):
        busy.wait_for("round 0")
        try:
            for group in groups_of(choice):
                n_rounds = busy.log().count("round")
                # A choice of its own for each: the order in which they run is not the seed's.
                made = [
                    threads.submit(make_trouble, kind, sim, nodes, random.Random(choice.random()))
                    for kind in group
                ]
                story.append(" | ".join(one.result() for one in made))
                story[-1] = f"{time.monotonic() - begun_s:.0f} s: {story[-1]}"
                print(story[-1])
                # Two more: calls that were pending at that time have come back.
                busy.wait_until(
                    lambda n=n_rounds: busy.log().count("round") >= n + 2, f"work after {story[-1]}"
                )
            (busy.control / "stop").touch()
            busy.wait_end()
        except Exception as error:
            pods = sim.kubectl("get", "pods", "-o", "wide")
            logs = sim.kubectl("logs", "sim-weft-scheduler-0", "--tail=40", check=False)
            told = "\n".join([f"--kube-seed={seed}", *story, pods, logs, busy.log()[-2000:]])
            raise AssertionError(f"{error}\n{told}") from error
    assert "results were right" in busy.last_log
