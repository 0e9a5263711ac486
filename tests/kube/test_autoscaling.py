"""The chart's objects for KEDA are followed: workers come with the work, and leave after it."""

from __future__ import annotations

import json
import subprocess
import sys
from base64 import b64decode
from math import ceil

import pytest

from tests.kube.chart import CHART, release
from tests.kube.client_pod import ClientPod
from tests.leaks import wait_until
from tests.tools.find import tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.shares_resources,
    pytest.mark.usefixtures("nodes"),
]

WORK = """
import time, weft
def square(n):
    time.sleep(0.5)  # workload
    return n * n
client = weft.Client()
print("submitted", flush=True)
assert client.gather(client.map(square, range(60))) == [n * n for n in range(60)]
print("right", flush=True)
client.close()
"""


@pytest.fixture(scope="module")
def definitions(plane):
    """The resources of KEDA that the chart makes."""
    names = ("keda.sh_scaledobjects.yaml", "keda.sh_triggerauthentications.yaml")
    files = [f"--filename={tool('keda-crds') / name}" for name in names]
    plane.run("kubectl", "apply", "--server-side", *files)
    plane.run("kubectl", "wait", "--for=condition=Established", "--timeout=60s", *files)
    yield
    plane.run("kubectl", "delete", *files)


class Scaler:
    """Does once what KEDA does again and again."""

    def __init__(self, sim, nodes, pool="default"):
        self.sim, self.nodes = sim, nodes
        folder = f"/apis/keda.sh/v1alpha1/namespaces/{sim.namespace}"
        found = sim.plane.api.get(f"{folder}/scaledobjects/{sim.name}-worker-{pool}")
        self.spec = found["spec"]
        (self.trigger,) = self.spec["triggers"]
        name = self.trigger["authenticationRef"]["name"]
        found = sim.plane.api.get(f"{folder}/triggerauthentications/{name}")
        self.references = found["spec"]["secretTargetRef"]

    def parameters(self):
        """Return what the authentication refers to."""
        made = {}
        for one in self.references:
            path = f"/api/v1/namespaces/{self.sim.namespace}/secrets/{one['name']}"
            data = self.sim.plane.api.get(path)["data"]
            made[one["parameter"]] = b64decode(data[one["key"]]).decode()
        return made

    def desired(self):
        """Return the value of the metric, asked for from within the pods' network."""
        (pod,) = self.sim.wait_running("scheduler", 1)
        command = [sys.executable, "-m", "tests.kube.trigger", pod["status"]["podIP"]]
        given = {"metadata": self.trigger["metadata"], "parameters": self.parameters()}
        done = subprocess.run(
            [*self.nodes.in_network_of(pod, "scheduler"), *command],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def scale(self):
        """Set the number of pods; return it."""
        target = int(self.trigger["metadata"]["targetValue"])
        low, high = self.spec["minReplicaCount"], self.spec["maxReplicaCount"]
        n = min(max(ceil(self.desired() / target), low), high)
        name = self.spec["scaleTargetRef"]["name"]
        self.sim.kubectl("scale", f"deployment/{name}", f"--replicas={n}")
        return n


def test_a_pool_grows_from_no_worker_with_the_work_and_shrinks_to_none_after_it(
    plane, nodes, namespace, definitions
):
    values = f"--values={CHART / 'ci' / 'autoscaling-keda-values.yaml'}"
    with release(plane, namespace, values, "--set", "autoscaling.maxReplicas=4") as sim:
        scaler = Scaler(sim, nodes)
        assert scaler.scale() == 0
        wait_until(lambda: not sim.pods("worker"), 60, "the last worker is gone")
        seen = [0]
        with ClientPod(sim, nodes, "work", ["python", "-c", WORK]) as client:
            client.wait_for("submitted")

            def is_done():
                seen.append(scaler.scale())
                return "right" in client.log()

            client.wait_until(is_done, "the results")
            client.wait_end()
        # 60 tasks of 0.5 s are 30 s of work: more than one worker is worth it.
        assert 1 < max(seen) <= 4, seen
        wait_until(lambda: scaler.scale() == 0, 120, "no more workers are desired")
        wait_until(lambda: not sim.pods("worker"), 60, "the last worker is gone")


def test_a_pool_starts_for_the_tasks_that_request_its_resources_and_no_other_does(
    plane, nodes, namespace, definitions
):
    work = WORK.replace("range(60))", "range(60), resources={'GPU': 1})", 1)
    values = f"--values={CHART / 'ci' / 'autoscaling-pools-values.yaml'}"
    anywhere = "--set-json=workers.gpu.resources={}"  # no node here has a GPU
    bounds = ("--set=autoscaling.pools.gpu.maxReplicas=2", "--set=autoscaling.minReplicas=1")
    with release(plane, namespace, values, anywhere, *bounds) as sim:
        plain, gpu = Scaler(sim, nodes), Scaler(sim, nodes, "gpu")
        assert (plain.scale(), gpu.scale()) == (1, 0)
        sim.wait_running("worker", 1)
        seen = []
        with ClientPod(sim, nodes, "work", ["python", "-c", work]) as client:
            client.wait_for("submitted")

            def is_done():
                seen.append((plain.scale(), gpu.scale()))
                return "right" in client.log()

            client.wait_until(is_done, "the results")
            client.wait_end()
        assert {n for n, _ in seen} == {1}, seen
        assert {n for _, n in seen} >= {2}, seen
        wait_until(lambda: gpu.scale() == 0, 120, "no more workers are desired")
