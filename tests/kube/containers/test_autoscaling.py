"""A HorizontalPodAutoscaler follows the number that the scheduler desires."""

from __future__ import annotations

import subprocess
import sys
import time
from base64 import b64decode

import pytest

from tests.kube.chart import release
from tests.kube.containers.adapter import adapter
from tests.kube.containers.test_release import LIMIT_S, OPTIONS, outside
from tests.kube.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources, pytest.mark.usefixtures("nodes")]

METRIC = "weft_scheduler_desired_workers"
#: Reads the page of a pod, from its node, with the token that comes on standard input.
READ = """
import ssl, sys, urllib.request
trust = ssl.create_default_context()
trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
token = {"Authorization": f"Bearer {sys.stdin.read()}", "Host": sys.argv[2]}
request = urllib.request.Request(f"https://{sys.argv[1]}:8787/metrics", headers=token)
print(urllib.request.urlopen(request, timeout=20, context=trust).read().decode())
"""


def desired(sim, nodes):
    """Return the value of the metric on the scheduler's page, as Prometheus would."""
    (pod,) = sim.wait_running("scheduler", 1)
    command = [sys.executable, "-c", READ, pod["status"]["podIP"], "sim-weft-scheduler"]
    page = subprocess.run(
        [*nodes.network_of(pod), *command],
        input=b64decode(sim.secret()["view-token"]).decode(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (line,) = [line for line in page.splitlines() if line.startswith(METRIC)]
    return int(float(line.split()[-1]))


def test_an_autoscaler_starts_pods_for_the_work_and_stops_them_after_it(plane, nodes, tmp_path):
    def slow(n):
        time.sleep(0.5)  # workload
        return n

    namespace = plane.make_namespace("scaled")
    options = ("--set=autoscaling.mode=hpa", "--set=autoscaling.maxReplicas=3")
    soon = "--set=autoscaling.scaleDownStabilizationSeconds=0"
    asked = []

    def read(name, selector):
        asked.append((name, selector))
        return desired(sim, nodes)

    with (
        release(plane, namespace, *OPTIONS, *options, soon) as sim,
        adapter(plane, tmp_path, read),
        outside(sim) as client,
    ):
        wait_until(lambda: len(sim.pods("worker")) == 1, LIMIT_S, "no work, one pod")
        results = client.map(slow, range(200), pure=False)
        # 200 tasks of 0.5 s are 100 s of work: more than three workers would be worth it.
        wait_until(lambda: len(sim.running("worker")) == 3, LIMIT_S, "work, three pods")
        assert client.gather(results, timeout=LIMIT_S) == [*range(200)]
        del results
        wait_until(lambda: len(sim.pods("worker")) == 1, LIMIT_S, "no work, one pod again")
    assert {*asked} == {(METRIC, f"cluster={namespace}.sim")}
