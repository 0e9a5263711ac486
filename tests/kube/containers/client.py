"""A client in a pod of a node that runs containers."""

from __future__ import annotations

from pathlib import Path

from tests.kube.client_pod import ClientPod
from tests.kube.containers.nodes import ContainerNodes


class ContainerClient(ClientPod):
    """As `ClientPod`; its volumes are where a kubelet has them."""

    nodes: ContainerNodes

    @property
    def control(self) -> Path:
        """The pod's volume /control, as a folder of this machine."""
        path = f"{self._path}/{self.name}"
        node = self.nodes.node_of(self.release.plane.api.get(path))
        volumes = node.folder / "kubelet" / "pods" / self.uid / "volumes"
        return volumes / "kubernetes.io~empty-dir" / "control"

    def log(self) -> str:
        """Return what it has printed."""
        return self.release.kubectl("logs", self.name, check=False)
