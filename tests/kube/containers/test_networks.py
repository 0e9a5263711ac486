"""The chart's NetworkPolicies, enforced."""

from __future__ import annotations

import pytest

from tests.kube.chart import release
from tests.kube.containers.client import ContainerClient
from tests.kube.containers.nodes import CENTRE
from tests.kube.containers.test_release import OPTIONS, outside
from tests.kube.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources, pytest.mark.usefixtures("nodes")]

#: Prints "open" or "closed" for each address of the file /control/addresses, again and again.
PROBE = """
import pathlib, socket, sys, time
n = 0
while True:
    n += 1
    for address in sys.argv[1:]:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=3).close()
            print(n, address, "open", flush=True)
        except OSError as error:
            print(n, address, "closed", repr(error), flush=True)
    time.sleep(0.5)  # workload
"""


@pytest.fixture(scope="module")
def sim(plane, nodes):
    namespace = plane.make_namespace("walls")
    with release(plane, namespace, *OPTIONS) as made:
        yield made


class Probe(ContainerClient):
    """A pod that tries to connect, with or without the label of clients."""

    def __init__(self, sim, nodes, name, labels, *addresses):
        super().__init__(sim, nodes, name, ["python", "-c", PROBE, *addresses])
        self.labels = labels

    def spec(self):
        made = super().spec()
        made["metadata"]["labels"] = self.labels
        return made

    def wait_for_three(self, address, state):
        """Wait for three of this state in a row."""

        def found():
            last = [line.split() for line in self.log().splitlines() if address in line][-3:]
            return len(last) == 3 and all(words[2] == state for words in last)

        self.wait_until(found, f"{address} {state} for {self.name}:\n{self.log()[-500:]}")


def test_only_pods_with_the_label_of_clients_reach_scheduler_and_workers(sim, nodes):
    scheduler = f"sim-weft-scheduler.{sim.namespace}.svc:8786"
    pages = f"sim-weft-scheduler.{sim.namespace}.svc:8787"
    worker = sim.wait_running("worker", 2)[0]
    probe = f"{worker['status']['podIP']}:{listening_port(nodes, worker)}"
    addresses = (scheduler, pages, probe)
    label = {"weft.io/client": "true"}
    with (
        Probe(sim, nodes, "friend", label, *addresses) as friend,
        Probe(sim, nodes, "stranger", {}, *addresses) as stranger,
    ):
        for address in addresses:
            friend.wait_for_three(address, "open")
            stranger.wait_for_three(address, "closed")
        # It is the policies that keep the other one out.
        sim.kubectl("delete", "networkpolicies", "--all")
        for address in addresses:
            stranger.wait_for_three(address, "open")


def listening_port(nodes, pod):
    """Return a port of the pod at which its worker listens."""
    state, local = 3, 1
    for line in nodes.read_in_pod(pod, "/proc/net/tcp").splitlines()[1:]:
        words = line.split()
        if words[state] == "0A" and not words[local].startswith("0100007F"):
            return int(words[local].split(":")[1], 16)
    raise AssertionError("the worker listens nowhere")


def test_tasks_reach_only_their_cluster_with_restricted_egress(sim):
    port = sim.plane.port

    def reach():
        import socket

        try:
            socket.create_connection((CENTRE, port), timeout=5).close()
        except OSError:
            return False
        return True

    sim.wait_running("worker", 2)
    with outside(sim) as client:
        assert client.submit(reach, pure=False).result() is True
    restrict = "--set=networkPolicy.egress.restrict=true"
    sim.helm("upgrade", *OPTIONS, restrict, "--wait", "--timeout=120s")
    with outside(sim) as client:
        wait_until(lambda: client.submit(reach, pure=False).result() is False, 60, "it is closed")
        parts = client.map(lambda n: bytes(1 << 20), range(8), pure=False)
        assert client.submit(lambda parts: sum(map(len, parts)), parts).result() == 8 << 20
