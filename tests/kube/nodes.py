"""Nodes for a control plane: of kwok, where pods only seem to run, and of process kubelets."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kube.api import Api, ApiError, Object
from tests.kube.control_plane import TOKENS, ControlPlane
from tests.kube.waiting import wait_until
from tests.tools.find import find, tool

ROOT = Path(__file__).resolve().parents[2]


def is_ready(found: Object) -> bool:
    """Return whether a pod or node is ready."""
    conditions = found.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@contextmanager
def kwok_nodes(plane: ControlPlane, n: int = 2) -> Iterator[list[str]]:
    """Make nodes on which pods get the status of running ones, and nothing runs."""
    stages = sorted(tool("stages").glob("*/*.yaml"))
    plane.start_program(
        "kwok",
        f"--kubeconfig={plane.kubeconfig}",
        "--manage-all-nodes=false",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--cidr=10.0.0.1/24",
        "--node-ip=10.0.0.1",
        *(f"--config={path}" for path in stages if not path.name.startswith("kustomization")),
    )
    names = [f"kwok-{i}" for i in range(n)]
    resources = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    for name in names:
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{name}"}
        metadata = {
            "name": name,
            "labels": labels,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        }
        status = {"capacity": resources, "allocatable": resources}
        plane.api.create("/api/v1/nodes", {"metadata": metadata, "status": status})
    try:
        _wait_ready(plane.api, names)
        yield names
    finally:
        plane.stop_program("kwok")
        _remove(plane.api, names)


class ProcessNodes:
    """A running process kubelet and its nodes."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, names: list[str]) -> None:
        """Keep them."""
        self.process, self.folder, self.names = process, folder, names

    def check(self) -> None:
        """Raise if the kubelet has failed: no test need wait for it."""
        if self.process.poll() is not None:
            text = (self.folder / "kubelet.log").read_text(encoding="utf-8")
            raise RuntimeError(f"the kubelet ended with {self.process.returncode}:\n{text}")

    def pid_of(self, pod: Object, container: str) -> int:
        """Return the pid of a container's process 1."""
        path = self.folder / "pods" / pod["metadata"]["uid"] / f"{container}.pid"
        return int(path.read_text(encoding="ascii"))

    def in_network_of(self, pod: Object, container: str) -> list[str]:
        """Return the beginning of a command line that runs the rest in a pod's network."""
        return ["nsenter", f"--net=/proc/{self.pid_of(pod, container)}/ns/net", "--"]


def skip_without_namespaces() -> None:
    """Skip the test where a process kubelet cannot make its namespaces."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("a process kubelet needs root, for namespaces")
    tool("nft")
    tool("ip")
    if (
        find("nft")
        and subprocess.run(
            ["unshare", "--net", "--mount", "--pid", "--fork", str(find("nft")), "list", "ruleset"],
            capture_output=True,
            check=False,
        ).returncode
    ):
        pytest.skip("this machine makes no namespaces, or its kernel has no nftables")


@contextmanager
def process_nodes(plane: ControlPlane, n: int = 2) -> Iterator[ProcessNodes]:
    """Make nodes whose pods are local processes; all end with the block."""
    skip_without_namespaces()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="weft-kubelet-", dir=memory))
    folder.chmod(0o755)
    names = [f"process-{i}" for i in range(n)]
    nodes = [f"--node={name}" for name in names]
    log = folder / "kubelet.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.kube.kubelet", f"--port={plane.port}"),
                *(f"--ca={plane.api.ca}", f"--folder={folder}", *nodes),
            ],
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env={**os.environ, "KUBELET_TOKEN": TOKENS["admin"]},
        )
    try:
        started = ProcessNodes(process, folder, names)

        def is_up() -> bool:
            started.check()
            return "kubelet: ready" in log.read_text(encoding="utf-8")

        wait_until(is_up, 60, "the kubelet is up")
        _wait_ready(plane.api, names)
        yield started
        started.check()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(30)
        _remove(plane.api, names)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_ready(api: Api, names: list[str]) -> None:
    def are_ready() -> bool:
        nodes = [api.get(f"/api/v1/nodes/{name}") for name in names]
        return all(is_ready(node) and not node["spec"].get("taints") for node in nodes)

    wait_until(are_ready, 60, "the nodes are ready")


def _remove(api: Api, names: list[str]) -> None:
    """Remove nodes, and the pods on them, which no kubelet will report as ended."""
    for name in names:
        api.delete(f"/api/v1/nodes/{name}")
        pods = api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={name}")["items"]
        for pod in pods:
            metadata = pod["metadata"]
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
            try:
                api.delete(path, grace_s=0)
            except ApiError as error:
                if error.code != 404:
                    raise
