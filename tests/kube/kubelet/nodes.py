"""Nodes: registered, kept alive by leases, and the pods that are bound to them."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from tests.kube.api import Api, ApiError, Object
from tests.kube.kubelet.containers import image_binds
from tests.kube.kubelet.network import Network
from tests.kube.kubelet.pods import PodLife, now

#: What a node offers to the scheduler; nothing is limited.
RESOURCES = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
_LEASE_S = 10.0


class Kubelet:
    """Several nodes in one process, with one network."""

    def __init__(self, api: Api, nodes: list[str], images: set[str], folder: Path) -> None:
        """Make the network and prepare the image; `start` begins."""
        self._api, self.nodes, self._images, self._folder = api, nodes, images, folder
        self._pods_folder = folder / "pods"
        self._pods_folder.mkdir(mode=0o755)
        self._image = image_binds(folder)
        self.network = Network()
        self._lock = threading.Lock()
        #: uid -> pod
        self.pods: dict[str, PodLife] = {}
        #: Pods that have come and gone: a late event must not start them again.
        self._seen: set[str] = set()
        self.failed = threading.Event()

    def start(self, port: int) -> None:
        """Register the nodes and begin to watch; `port` is that of the kubelet's own API."""
        self._spawn(self._watch_services)
        self._spawn(self._watch_slices)
        for node in self.nodes:
            self._register(node, port)
            self._spawn(lambda node=node: self._watch_pods(node))  # type: ignore[misc]
        self._spawn(self._renew_leases)

    def pod(self, namespace: str, name: str) -> PodLife | None:
        """Return a pod that runs here, by its name."""
        with self._lock:
            for pod in self.pods.values():
                if (pod.namespace, pod.name) == (namespace, name):
                    return pod
        return None

    def _spawn(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception:
                # Half a kubelet would let tests wait in vain.
                traceback.print_exc()
                self.failed.set()

        threading.Thread(target=run, daemon=True).start()

    def _register(self, node: str, port: int) -> None:
        labels = {
            "kubernetes.io/hostname": node,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": f"zone-{node}",
            "weft.test/kubelet": "process",
        }
        body: Object = {"metadata": {"name": node, "labels": labels}}
        self._api.create("/api/v1/nodes", body)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "processes as containers",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": now(),
        }
        status = {
            "capacity": RESOURCES,
            "allocatable": RESOURCES,
            "conditions": [ready],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": node},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": {"kubeletVersion": "v1.34.4", "operatingSystem": "linux"},
        }
        self._api.patch(f"/api/v1/nodes/{node}/status", {"status": status})
        self._lease(node)

    def _lease(self, node: str) -> None:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        renewed = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renewed}
        try:
            self._api.patch(f"{path}/{node}", {"spec": spec})
        except ApiError as error:
            if error.code != 404:
                raise
            self._api.create(path, {"metadata": {"name": node}, "spec": spec})

    def _renew_leases(self) -> None:
        pause = threading.Event()
        while not pause.wait(_LEASE_S):
            for node in self.nodes:
                self._lease(node)

    def _watch_services(self) -> None:
        while True:
            for kind, found in self._api.watch("/api/v1/services"):
                if kind != "LISTED":
                    self.network.service_changed(kind, found)

    def _watch_slices(self) -> None:
        while True:
            for kind, found in self._api.watch("/apis/discovery.k8s.io/v1/endpointslices"):
                if kind != "LISTED":
                    self.network.slice_changed(kind, found)

    def _watch_pods(self, node: str) -> None:
        while True:
            for kind, pod in self._api.watch("/api/v1/pods", fieldSelector=f"spec.nodeName={node}"):
                if kind == "LISTED":
                    self._forget_all_but(node, {item["metadata"]["uid"] for item in pod["items"]})
                else:
                    self._pod_changed(kind, pod)

    def _pod_changed(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            life = self.pods.get(uid)
            if life is None:
                over = pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}
                if kind != "DELETED" and uid not in self._seen and not over:
                    self._seen.add(uid)
                    self.pods[uid] = PodLife(
                        pod,
                        api=self._api,
                        network=self.network,
                        folder=self._pods_folder,
                        image=self._image,
                        images=self._images,
                        node=RESOURCES,
                        ended=self._pod_ended,
                    )
                return
        if kind == "DELETED":
            life.removed()
        else:
            life.changed(pod)

    def _forget_all_but(self, node: str, there: set[str]) -> None:
        with self._lock:
            gone = [
                life
                for uid, life in self.pods.items()
                if uid not in there and life.pod["spec"]["nodeName"] == node
            ]
        for life in gone:
            life.removed()

    def _pod_ended(self, uid: str) -> None:
        with self._lock:
            self.pods.pop(uid, None)
