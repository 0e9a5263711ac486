"""Two nodes of Kubernetes that run containers: containerd, runc, kubelet, kube-proxy, policies.

Each node has a network of its own, as a machine would; all are joined by a bridge, where the
control plane and the cluster's DNS are. From there no way leads to the pods, so a client that runs
beside the control plane is one from outside. This runs within an enclosure (enclosure.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kube.api import ApiError, Object
from tests.kube.containers.enclosure import VARIABLE, hierarchies
from tests.kube.containers.image import IMAGE, PAUSE, archive
from tests.kube.control_plane import SERVICE_RANGE, TOKENS, ControlPlane
from tests.kube.nodes import is_ready
from tests.kube.waiting import wait_until
from tests.tools.find import tool

#: The bridge's address: that of the API server and of the DNS.
CENTRE = "192.168.77.1"
PODS = "10.88.0.0/16"
DOMAIN = "cluster.local"
#: The API server is reached by the nodes, too; the HPA looks every 2 s, not every 15.
PLANE_OPTIONS = {
    "kube-apiserver": ("--bind-address=0.0.0.0", "--enable-aggregator-routing=true"),
    "kube-controller-manager": ("--horizontal-pod-autoscaler-sync-period=2s",),
}
_BRIDGE = "nodes"
_LIMIT_S = 300.0


@dataclass(frozen=True)
class Node:
    """One node: its name, address, range of pods, and folder."""

    number: int
    folder: Path

    @property
    def name(self) -> str:
        """Name of the node, of its network, and of its cgroup."""
        return f"node-{self.number}"

    @property
    def address(self) -> str:
        """Address of the node."""
        return f"192.168.77.{10 + self.number}"

    @property
    def pods(self) -> str:
        """Addresses of its pods."""
        return f"10.88.{self.number}.0/24"

    @property
    def socket(self) -> str:
        """The socket of its containerd."""
        return f"/run/{self.name}/containerd.sock"


class ContainerNodes:
    """The running nodes."""

    def __init__(self, plane: ControlPlane, folder: Path, n: int) -> None:
        """Start them; `folder` has the archives of the images."""
        self.plane, self.folder = plane, folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.nodes = [Node(i, folder / f"node-{i}") for i in range(1, n + 1)]
        self.names = [node.name for node in self.nodes]
        self.kubeconfig = self._write_kubeconfig()
        _ip(f"link add {_BRIDGE} type bridge", f"addr add {CENTRE}/24 dev {_BRIDGE}")
        _ip(f"link set {_BRIDGE} up")
        self._start_dns()
        for node in self.nodes:
            node.folder.mkdir()
            Path(node.socket).parent.mkdir()
            self._connect(node)
            self._start_containerd(node)
            self._start_kubelet(node)
        for node in self.nodes:
            wait_until(lambda node=node: self._find(node), _LIMIT_S, f"{node.name} is known")
            self._start_network(node)
        wait_until(self._are_ready, _LIMIT_S, "the nodes are ready")

    def _connect(self, node: Node) -> None:
        name = node.name
        _ip(f"netns add {name}", f"link add {name} type veth peer name eth0 netns {name}")
        _ip(f"link set {name} master {_BRIDGE} up")
        _ip(
            "link set lo up",
            f"addr add {node.address}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {CENTRE}",
            *(
                f"route add {other.pods} via {other.address}"
                for other in self.nodes
                if other is not node
            ),
            namespace=name,
        )
        # Packets between two pods of a node pass its rules, too.
        settings = ("net/ipv4/ip_forward", "net/bridge/bridge-nf-call-iptables")
        for setting in settings:
            _within(node, "sh", "-c", f"echo 1 > /proc/sys/{setting}")
        away = f"ip saddr {PODS} ip daddr != {{ {PODS}, {SERVICE_RANGE} }} oifname eth0 masquerade"
        hook = "type nat hook postrouting priority srcnat"
        rules = f"table ip weft_tests {{\nchain out {{\n{hook};\n{away}\n}}\n}}\n"
        _within(node, str(tool("nft")), "-f", "-", given=rules)

    def _start_containerd(self, node: Node) -> None:
        bridge = {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(node.folder / "addresses"),
                "ranges": [[{"subnet": node.pods}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        networks = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
        _write(node.folder / "cni" / "pods.conflist", networks)
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        config = node.folder / "containerd.toml"
        config.write_text(
            f"""
            version = 2
            root = "{node.folder}/containerd"
            state = "/run/{node.name}/containerd"
            disabled_plugins = ["io.containerd.internal.v1.opt"]
            [grpc]
            address = "{node.socket}"
            [{cri}]
            restrict_oom_score_adj = true
            sandbox_image = "docker.io/library/{PAUSE}"
            [{cri}.cni]
            bin_dir = "{_plugins_folder()}"
            conf_dir = "{node.folder}/cni"
            [{cri}.containerd]
            snapshotter = "overlayfs"
            """,
            encoding="utf-8",
        )
        self._run(node, "containerd", f"--config={config}")
        wait_until(lambda: self._answers(node), _LIMIT_S, "containerd answers")
        for name in (IMAGE, PAUSE):
            self.ctr(node, "images", "import", str(archive(self.folder, name)))

    def _answers(self, node: Node) -> bool:
        self.check()
        command = [tool("ctr"), f"--address={node.socket}", "version"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _start_kubelet(self, node: Node) -> None:
        resolve = node.folder / "resolv.conf"
        resolve.write_text(f"nameserver {CENTRE}\n", encoding="ascii")
        configuration = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": node.address,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{os.environ[VARIABLE]}/{node.name}",
            "clusterDNS": [CENTRE],
            "clusterDomain": DOMAIN,
            "containerRuntimeEndpoint": f"unix://{node.socket}",
            "evictionHard": {"memory.available": "100Mi"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": 0,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "makeIPTablesUtilChains": False,
            "podLogsDir": str(node.folder / "logs"),
            "resolvConf": str(resolve),
            "volumePluginDir": str(node.folder / "plugins"),
        }
        for hierarchy in _hierarchies_of_pods():
            _make_cgroup(hierarchy / node.name)
        path = _write(node.folder / "kubelet.json", configuration)
        self._run(
            node,
            "kubelet",
            f"--config={path}",
            f"--kubeconfig={self.kubeconfig}",
            f"--root-dir={node.folder / 'kubelet'}",
            f"--cert-dir={node.folder / 'certs'}",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
        )

    def _start_network(self, node: Node) -> None:
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "clusterCIDR": PODS,
            "hostnameOverride": node.name,
            "mode": "nftables",
            # Limits of the whole machine, which are not ours to set.
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpCloseWaitTimeout": "0s",
                "tcpEstablishedTimeout": "0s",
            },
        }
        path = _write(node.folder / "kube-proxy.json", configuration)
        self._run(node, "kube-proxy", f"--config={path}")
        self._run(node, "policies", str(self.kubeconfig), node.name, SERVICE_RANGE)

    def _start_dns(self) -> None:
        path = self.folder / "Corefile"
        # Names that do not exist yet are asked for again soon.
        path.write_text(
            f".:53 {{\n bind {CENTRE}\n errors\n"
            f" kubernetes {DOMAIN} {{\n kubeconfig {self.kubeconfig}\n ttl 1\n }}\n}}\n",
            encoding="utf-8",
        )
        self._run(None, "dns", f"-conf={path}")

    def _write_kubeconfig(self) -> Path:
        """Write one with which programs of the nodes reach the API server at the bridge."""
        admin = json.loads(self.plane.kubeconfig.read_text(encoding="utf-8"))
        cluster = admin["clusters"][0]["cluster"]
        cluster["server"] = f"https://{CENTRE}:{self.plane.port}"
        cluster["tls-server-name"] = "127.0.0.1"
        assert admin["users"][0]["user"]["token"] == TOKENS["admin"]
        return _write(self.folder / "nodes.kubeconfig", admin)

    def _run(self, node: Node | None, name: str, *arguments: str) -> None:
        folder = node.folder if node else self.folder
        where = _network(node) if node else []
        label = f"{name} of {node.name}" if node else name
        path = f"{tool('iptables').parent}:{tool('runc').parent}:{os.environ['PATH']}"
        with (folder / f"{name}.log").open("wb") as file:
            self.processes[label] = subprocess.Popen(
                [*where, "setpriv", "--pdeathsig=KILL", str(tool(name)), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": path, "NODE_NAME": node.name if node else ""},
                cwd=folder,
            )

    def _find(self, node: Node) -> Object | None:
        self.check()
        try:
            return self.plane.api.get(f"/api/v1/nodes/{node.name}")
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _are_ready(self) -> bool:
        found = [self._find(node) for node in self.nodes]
        return all(one and is_ready(one) and not one["spec"].get("taints") for one in found)

    # --- what tests do --------------------------------------------------------------------------

    def check(self) -> None:
        """Raise if a program of a node has ended: no test need wait for it."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}; see {self.folder}")

    def node_of(self, pod: Object) -> Node:
        """Return the node that a pod is on."""
        return self.nodes[self.names.index(pod["spec"]["nodeName"])]

    def ctr(self, node: Node, *arguments: str) -> str:
        """Run containerd's own client on a node; return what it printed."""
        command = [tool("ctr"), f"--address={node.socket}", "--namespace=k8s.io", *arguments]
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout

    def kill(self, pod: Object) -> None:
        """Kill the first process of a pod's first container."""
        identity = pod["status"]["containerStatuses"][0]["containerID"].removeprefix(
            "containerd://"
        )
        self.ctr(self.node_of(pod), "tasks", "kill", "--signal=SIGKILL", identity)

    def cgroup_of(self, pod: Object, controller: str) -> Path:
        """Return the cgroup of a pod."""
        (found,) = [
            path
            for hierarchy in _hierarchies_of_pods()
            if controller in hierarchy.parent.name.split(",")
            for path in hierarchy.rglob(f"pod{pod['metadata']['uid']}")
        ]
        return found

    def network_of(self, pod: Object) -> list[str]:
        """Return the beginning of a command line that runs the rest in the network of its node."""
        return _network(self.node_of(pod))

    def volume(self, pod: Object, name: str) -> Path:
        """Return the folder of a pod's emptyDir."""
        volumes = self.node_of(pod).folder / "kubelet" / "pods" / pod["metadata"]["uid"] / "volumes"
        return volumes / "kubernetes.io~empty-dir" / name

    def size_of_volume(self, pod: Object, name: str) -> int:
        """Return the bytes of the files in a pod's emptyDir."""
        files = [path for path in self.volume(pod, name).rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files)

    def read_in_pod(self, pod: Object, path: str) -> str:
        """Return the text of a file that shows the network of a pod, as /proc/net/tcp."""
        identity = pod["status"]["containerStatuses"][0]["containerID"].removeprefix(
            "containerd://"
        )
        listed = self.ctr(self.node_of(pod), "tasks", "list").splitlines()
        (pid,) = [line.split()[1] for line in listed if line.startswith(identity)]
        return Path(f"/proc/{pid}/net/{Path(path).name}").read_text(encoding="ascii")

    def close(self) -> None:
        """End the programs; containers that are left end with the enclosure."""
        for process in reversed(self.processes.values()):
            process.kill()
        for process in self.processes.values():
            process.wait()


@contextmanager
def container_nodes(plane: ControlPlane, folder: Path, n: int = 2) -> Iterator[ContainerNodes]:
    """Start nodes; end them with the block."""
    made = ContainerNodes(plane, folder, n)
    try:
        yield made
        made.check()
    finally:
        made.close()


def _plugins_folder() -> str:
    for path in ("/usr/lib/cni", "/opt/cni/bin"):
        if Path(path, "bridge").exists():
            return path
    raise RuntimeError("the plugins of containernetworking are missing: make tools ARGS=containers")


def _hierarchies_of_pods() -> list[Path]:
    return [path / os.environ[VARIABLE] for path in hierarchies()]


def _make_cgroup(path: Path) -> None:
    path.mkdir()
    for setting in ("cpuset.cpus", "cpuset.mems"):
        if (path / setting).exists():
            (path / setting).write_text((path.parent / setting).read_text())


def _network(node: Node) -> list[str]:
    return ["nsenter", f"--net=/run/netns/{node.name}", "--"]


def _within(node: Node, *command: str, given: str = "") -> None:
    subprocess.run([*_network(node), *command], input=given, text=True, check=True)


def _ip(*commands: str, namespace: str = "") -> None:
    where = ["-n", namespace] if namespace else []
    for command in commands:
        subprocess.run([str(tool("ip")), *where, *command.split()], check=True)


def _write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    path.chmod(0o600)
    return path
