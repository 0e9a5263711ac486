"""The process kubelet does what weft's chart expects of a kubelet."""

from __future__ import annotations

import urllib.request

import psutil
import pytest

from tests.kube.nodes import is_ready
from tests.kube.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources, pytest.mark.usefixtures("plane")]

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


def pod(name, script, *, image="weft:test", **spec):
    """A pod that runs a script of the shell; what is given under `container` is the container's."""
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", script],
        "securityContext": RESTRICTED,
        **spec.pop("container", {}),
    }
    return {
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


class Pods:
    """Pods of one namespace."""

    def __init__(self, plane, nodes, namespace):
        self.plane, self.nodes, self.namespace = plane, nodes, namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, *arguments, **spec):
        made = self.plane.api.create(self.path, pod(*arguments, **spec))
        return made["metadata"]["name"]

    def get(self, name):
        return self.plane.api.get(f"{self.path}/{name}")

    def wait(self, name, condition, what):
        def holds():
            self.nodes.check()
            found = self.get(name)
            return found if condition(found) else None

        try:
            return wait_until(holds, 60, f"{name}: {what}")
        except AssertionError as error:
            text = (self.nodes.folder / "kubelet.log").read_text(encoding="utf-8")
            found = [self.get(name)["status"], self.events(name), text]
            raise AssertionError("\n".join(map(str, [error, *found]))) from None

    def wait_phase(self, name, phase):
        return self.wait(name, lambda found: found["status"].get("phase") == phase, phase)

    def logs(self, name, *options):
        return self.plane.run("kubectl", "logs", "-n", self.namespace, name, *options).stdout

    def events(self, name):
        found = self.plane.api.get(f"/api/v1/namespaces/{self.namespace}/events")["items"]
        return [(e["reason"], e["message"]) for e in found if e["involvedObject"]["name"] == name]


@pytest.fixture
def pods(plane, nodes, namespace):
    return Pods(plane, nodes, namespace)


def main_of(found):
    """Return the status of the container; {} if there is none yet."""
    return found["status"].get("containerStatuses", [{}])[0]


def state_of(found):
    return main_of(found).get("state", {})


def test_a_pod_runs_as_its_user_with_its_environment_and_volumes(plane, pods):
    secrets = f"/api/v1/namespaces/{pods.namespace}/secrets"
    plane.api.create(
        secrets, {"metadata": {"name": "auth"}, "stringData": {"token": "abc", "other": "x"}}
    )
    script = """
        echo id=$(id -u):$(id -g); echo cpus=$CPUS memory=$MEMORY ip=$IP both=$BOTH token=$TOKEN
        stat -L -c 'file=%a:%u:%g' /auth/token; readlink /auth/token; cat /auth/token; echo
        ls /auth; touch /scratch/x && echo scratch; touch /x 2>&1; hostname; sh -c 'echo pid=$PPID'
        getent hosts $(hostname)
    """
    name = pods.create(
        "all",
        script,
        restartPolicy="Never",
        container={
            "env": [
                {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "BOTH", "value": "$(IP)/$(NONE)/$$"},
                {"name": "CPUS", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                {
                    "name": "MEMORY",
                    "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}},
                },
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "auth", "key": "token"}}},
            ],
            "resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}},
            "volumeMounts": [
                {"name": "auth", "mountPath": "/auth", "readOnly": True},
                {"name": "scratch", "mountPath": "/scratch"},
            ],
        },
        volumes=[
            {
                "name": "auth",
                "secret": {"secretName": "auth", "items": [{"key": "token", "path": "token"}]},
            },
            {"name": "scratch", "emptyDir": {}},
        ],
    )
    address = pods.wait_phase(name, "Succeeded")["status"]["podIP"]
    assert pods.logs(name).splitlines() == [
        "id=1001:1001",
        f"cpus=2 memory={64 << 20} ip={address} both={address}/$(NONE)/$ token=abc",
        "file=644:0:0",
        "..data/token",
        "abc",
        "token",
        "scratch",
        "touch: cannot touch '/x': Read-only file system",
        "all",
        "pid=1",
        f"{address:<15} all",
    ]


def test_a_pod_is_asked_to_end_and_killed_after_its_grace_period(pods):
    polite = pods.create("polite", "trap 'echo bye; exit 3' TERM; echo up; sleep 60 & wait")
    # Process 1 of a container ignores the signals for which it has no handler.
    rude = pods.create("rude", "echo up; sleep 61", terminationGracePeriodSeconds=1)
    for name in (polite, rude):
        pods.wait(name, is_ready, "ready")
        wait_until(lambda name=name: "up" in pods.logs(name), 30)
    for name in (polite, rude):
        pods.plane.api.delete(f"{pods.path}/{name}")
    wait_until(lambda: not pods.plane.pods(pods.namespace), 60, "both are gone")


def test_a_container_that_ends_is_started_again_and_a_job_is_not(pods):
    again = pods.create("again", "echo one; exit 4")
    found = pods.wait(again, lambda p: main_of(p).get("restartCount", 0) >= 2, "restarted")
    assert main_of(found)["lastState"]["terminated"]["exitCode"] == 4
    assert "one" in pods.logs(again, "--previous")
    once = pods.create("once", "exit 5", restartPolicy="Never")
    assert state_of(pods.wait_phase(once, "Failed"))["terminated"]["exitCode"] == 5


def test_probes_decide_about_readiness_and_restarts(pods):
    script = "cd /scratch; echo ok > healthz; exec python -m http.server 8000"
    probe = {"httpGet": {"path": "/healthz", "port": "web"}, "periodSeconds": 1}
    name = pods.create(
        "probed",
        script,
        container={
            "ports": [{"name": "web", "containerPort": 8000}],
            "startupProbe": {**probe, "failureThreshold": 60},
            "livenessProbe": {**probe, "failureThreshold": 1},
            "readinessProbe": {
                "exec": {"command": ["test", "-e", "/scratch/ready"]},
                "periodSeconds": 1,
                "failureThreshold": 1,
            },
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        },
        terminationGracePeriodSeconds=0,
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
    found = pods.wait(name, lambda p: state_of(p).get("running"), "runs")
    uid = found["metadata"]["uid"]
    started = pods.wait(name, lambda p: main_of(p).get("started"), "its startup probe passed")
    assert not is_ready(started)
    scratch = pods.nodes.folder / "pods" / uid / "volumes" / "scratch"
    (scratch / "ready").touch()
    pods.wait(name, is_ready, "ready")
    (scratch / "healthz").unlink()
    pods.wait(name, lambda p: main_of(p).get("restartCount", 0) == 1, "restarted")
    reasons = [reason for reason, _ in pods.events(name)]
    assert {"Started", "Unhealthy", "Killing"} <= {*reasons}


def test_services_lead_to_ready_pods_by_name_from_other_pods(plane, pods):
    for i in range(2):
        pods.create(f"web-{i}", f"mkdir /tmp/w; cd /tmp/w; echo {i} > i; "
                    "exec python -m http.server 8000",
                    container={"securityContext": RESTRICTED | {"readOnlyRootFilesystem": False}},
                    hostname=f"web-{i}", subdomain="all")  # fmt: skip
        plane.run("kubectl", "label", "-n", pods.namespace, "pod", f"web-{i}", "web=yes")
    ports = [{"port": 80, "targetPort": 8000}]
    services = f"/api/v1/namespaces/{pods.namespace}/services"
    spec = {"selector": {"web": "yes"}, "ports": ports}
    plane.api.create(services, {"metadata": {"name": "web"}, "spec": spec})
    plane.api.create(services, {"metadata": {"name": "all"}, "spec": {**spec, "clusterIP": "None"}})
    for i in range(2):
        pods.wait(f"web-{i}", is_ready, "ready")
    script = """
import os, time, urllib.request

def get(url):
    for attempt in range(100):
        try:
            return urllib.request.urlopen(url, timeout=5).read().decode().strip()
        except OSError:  # the addresses reach this pod a moment later
            time.sleep(0.1)  # workload

print(get("http://web-1.all:8000/i"), *sorted({get("http://web/i") for _ in range(64)}))
print(os.environ["WEB_SERVICE_HOST"])
"""
    command = {"command": ["python", "-c", script]}
    name = pods.create("asking", "", restartPolicy="Never", container=command)
    pods.wait_phase(name, "Succeeded")
    address = plane.api.get(f"{services}/web")["spec"]["clusterIP"]
    assert pods.logs(name).split() == ["1", "0", "1", address]


def test_kubectl_forwards_ports_to_pods_and_says_why_it_cannot(plane, pods):
    script = "cd /scratch; head -c 3000000 /dev/zero > zeros; exec python -m http.server 8000"
    probe = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    name = pods.create(
        "served",
        script,
        container={
            "readinessProbe": probe,
            "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        },
        terminationGracePeriodSeconds=0,
        volumes=[{"name": "scratch", "emptyDir": {}}],
    )
    pods.wait(name, is_ready, "ready")
    for port, expected in ((8000, 3_000_000), (9999, None)):
        with plane.started(
            "kubectl", "-n", pods.namespace, "port-forward", f"pod/{name}", f":{port}"
        ) as process:
            line = process.stdout.readline()
            local = int(line.split(":")[1].split()[0])
            url = f"http://127.0.0.1:{local}/zeros"
            if expected is None:
                with pytest.raises(OSError, match=r"closed|reset|refused"):
                    urllib.request.urlopen(url, timeout=30)
            for _ in range(3 if expected else 0):
                with urllib.request.urlopen(url, timeout=30) as response:
                    assert len(response.read()) == expected
    assert "port 9999 of pod served" in process.rest


def test_an_unknown_image_and_a_missing_secret_are_in_status_and_events(pods):
    name = pods.create("typo", "true", image="registry.example/wfet:1")
    found = pods.wait(
        name,
        lambda p: state_of(p).get("waiting", {}).get("reason") == "ImagePullBackOff",
        "its image is missing",
    )
    assert found["status"]["phase"] == "Pending"
    assert ("Failed", 'Failed to pull image "registry.example/wfet:1": not found') in pods.events(
        name
    )
    volumes = [{"name": "auth", "secret": {"secretName": "none"}}]
    name = pods.create("secretless", "true", volumes=volumes)
    text = 'MountVolume.SetUp failed: secret "none" not found'
    wait_until(lambda: ("FailedMount", text) in pods.events(name), 30)


def test_pods_of_a_drained_node_move_to_the_other(plane, nodes, pods):
    deployment = {
        "metadata": {"name": "many"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "many"}},
            "template": pod("many", "trap 'exit 0' TERM; sleep 60 & wait"),
        },
    }
    del deployment["spec"]["template"]["metadata"]["name"]
    plane.api.create(f"/apis/apps/v1/namespaces/{pods.namespace}/deployments", deployment)

    def ready():
        found = [p for p in plane.pods(pods.namespace, "app=many") if is_ready(p)]
        return found if len(found) == 3 else None

    wait_until(ready, 60, "three pods")
    first, second = nodes.names
    plane.run("kubectl", "drain", first, "--pod-selector=app=many")
    try:
        there = {p["spec"]["nodeName"] for p in wait_until(ready, 60, "three pods elsewhere")}
        assert there == {second}
    finally:
        plane.run("kubectl", "uncordon", first)


def test_a_pod_that_is_removed_by_force_is_killed(plane, pods):
    name = pods.create("stays", "sleep 3600")
    found = pods.wait(name, is_ready, "ready")
    pid = pods.nodes.pid_of(found, "main")
    wait_until(lambda: psutil.Process(pid).cmdline()[-1] == "sleep 3600", 30)
    plane.api.delete(f"{pods.path}/{name}", grace_s=0)
    wait_until(lambda: not psutil.pid_exists(pid), 30)
    assert plane.pods(pods.namespace) == []
