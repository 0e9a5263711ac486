"""The pods' network: one namespace for the nodes, one for each pod, and rules for Services.

All addresses are inside namespaces that this process makes, and that vanish with it; the machine's
own network is not changed. A pod has one cable to the nodes' namespace, which routes between pods,
and translates the addresses of Services into those of ready pods, as kube-proxy does with nftables.
Names are in each pod's /etc/hosts, which is written again when a Service changes: there is no DNS.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kube.api import Object
from tests.tools.find import find

_CLONE_NEWNET = 0x40000000
_GATEWAY = "169.254.1.1"
POD_RANGE = "10.244"
DOMAIN = "cluster.local"

_libc = ctypes.CDLL(None, use_errno=True)


def _check(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class Namespace:
    """A network namespace, which lasts as long as this object is open, or something is in it."""

    def __init__(self) -> None:
        """Make one; a thread that ends at once enters it for that."""
        self._file = -1
        failed: list[OSError] = []

        def make() -> None:
            try:
                _check(_libc.unshare(_CLONE_NEWNET))
                self._file = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            except OSError as error:
                failed.append(error)

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    @property
    def path(self) -> str:
        """A path by which other processes can open it while this one lives."""
        return f"/proc/{os.getpid()}/fd/{self._file}"

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Have this thread in it within the block: for sockets, which then stay in it."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            _check(_libc.setns(self._file, _CLONE_NEWNET))
            try:
                yield
            finally:
                _check(_libc.setns(before, _CLONE_NEWNET))
        finally:
            os.close(before)

    def run(self, *command: str, stdin: str = "") -> None:
        """Run a program in it."""
        with self.entered():
            done = subprocess.run(
                command, input=stdin, capture_output=True, text=True, check=False, timeout=60
            )
        if done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr}\n{stdin}")

    def set(self, name: str, value: str) -> None:
        """Set a kernel parameter of it."""
        with self.entered():
            Path("/proc/sys/net", name).write_text(value, encoding="ascii")

    def connect(self, host: str, port: int, timeout_s: float) -> socket.socket:
        """Connect from it."""
        with self.entered():
            return socket.create_connection((host, port), timeout_s)

    def close(self) -> None:
        """Let it vanish with the last process in it."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class Network:
    """The nodes' namespace, and what is known of Services."""

    def __init__(self) -> None:
        """Make the namespace; needs root."""
        programs = {name: find(name) for name in ("ip", "nft")}
        missing = [name for name, path in programs.items() if path is None]
        if missing:
            raise OSError(f"{', '.join(missing)} missing: make tools ARGS=nftables")
        self._ip, self._nft = (str(programs[name]) for name in ("ip", "nft"))
        self.nodes = Namespace()
        self.nodes.run(self._ip, "link", "set", "lo", "up")
        self.nodes.set("ipv4/ip_forward", "1")
        self._lock = threading.Lock()
        self._n_pods = 0
        self._services: dict[tuple[str, str], Object] = {}
        #: (namespace, name of the slice) -> EndpointSlice
        self._slices: dict[tuple[str, str], Object] = {}
        #: path of a pod's hosts file -> (namespace, its own line)
        self._hosts: dict[Path, tuple[str, str]] = {}
        self._rules = ""

    def add_pod(self) -> tuple[Namespace, str, str]:
        """Return a pod's namespace, its address, and the name of its cable."""
        with self._lock:
            self._n_pods += 1
            n = self._n_pods
        # .0 and .255 are addresses as any other here, but look like a mistake.
        address = f"{POD_RANGE}.{n // 250}.{n % 250 + 2}"
        cable = f"pod{n}"
        pod = Namespace()
        self.nodes.run(
            self._ip,
            "-batch",
            "-",
            stdin=f"link add {cable} type veth peer name eth0 netns {pod.path}\n"
            f"addr add {_GATEWAY}/32 dev {cable}\n"
            f"link set {cable} up\n"
            f"route add {address}/32 dev {cable}\n",
        )
        pod.run(
            self._ip,
            "-batch",
            "-",
            stdin="link set lo up\n"
            f"addr add {address}/32 dev eth0\n"
            "link set eth0 up\n"
            f"route add {_GATEWAY} dev eth0 scope link\n"
            f"route add default via {_GATEWAY}\n",
        )
        return pod, address, cable

    def remove_pod(self, pod: Namespace, hosts: Path) -> None:
        """Forget a pod; its cable goes with its namespace."""
        with self._lock:
            self._hosts.pop(hosts, None)
        pod.close()

    def add_hosts(self, path: Path, namespace: str, own_line: str) -> None:
        """Keep a pod's hosts file up to date."""
        with self._lock:
            self._hosts[path] = (namespace, own_line)
            self._write_hosts(path)

    def service_changed(self, kind: str, service: Object) -> None:
        """Note an event of a watch of Services."""
        with self._lock:
            _note(self._services, kind, service)
            self._update()

    def slice_changed(self, kind: str, found: Object) -> None:
        """Note an event of a watch of EndpointSlices."""
        with self._lock:
            _note(self._slices, kind, found)
            self._update()

    def services_of(self, namespace: str) -> list[Object]:
        """Return the Services of a namespace, for the environment of its pods."""
        with self._lock:
            return [service for (there, _), service in self._services.items() if there == namespace]

    def _update(self) -> None:
        rules = nft_rules(self._services.values(), self._slices.values())
        if rules != self._rules:
            self.nodes.run(self._nft, "-f", "-", stdin=rules)
            self._rules = rules
        for path in self._hosts:
            self._write_hosts(path)

    def _write_hosts(self, path: Path) -> None:
        namespace, own_line = self._hosts[path]
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost", own_line]
        for service in self._services.values():
            lines += hosts_lines(service, self._slices.values(), namespace)
        text = "\n".join([*lines, ""]).encode()
        # The same file: it is mounted in containers. One write, so that readers see no half of it.
        file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.write(file, text)
            os.ftruncate(file, len(text))
        finally:
            os.close(file)


def _note(known: dict[tuple[str, str], Object], kind: str, found: Object) -> None:
    metadata = found["metadata"]
    key = (metadata["namespace"], metadata["name"])
    if kind == "DELETED":
        known.pop(key, None)
    else:
        known[key] = found


def _slices_of(service: Object, slices: Any) -> Iterator[Object]:
    own = service["metadata"]
    for found in slices:
        metadata = found["metadata"]
        label = metadata.get("labels", {}).get("kubernetes.io/service-name")
        if metadata["namespace"] == own["namespace"] and label == own["name"]:
            yield found


def _usable(found: Object, wanted: Callable[[Object], bool]) -> list[Object]:
    return [e for e in found.get("endpoints") or [] if wanted(e.get("conditions", {}))]


def _is_ready(conditions: Object) -> bool:
    return conditions.get("ready", True)


def _is_serving(conditions: Object) -> bool:
    return conditions.get("serving", True)


def nft_rules(services: Any, slices: Any) -> str:
    """Return the whole table of Services: pure, for `nft -f`."""
    chains, jumps = [], []
    slices = [*slices]
    for service in services:
        address = service["spec"].get("clusterIP")
        if not address or address == "None":
            continue
        own = [*_slices_of(service, slices)]
        # As kube-proxy: pods that are about to end, if there are no others.
        wanted = _is_ready if any(_usable(s, _is_ready) for s in own) else _is_serving
        for port in service["spec"].get("ports", []):
            targets = [
                f"{endpoint['addresses'][0]}:{target['port']}"
                for found in own
                for target in found.get("ports") or []
                if target.get("name", "") == port.get("name", "")
                for endpoint in _usable(found, wanted)
            ]
            if not targets:
                continue
            name = f"to_{address.replace('.', '_')}_{port['port']}"
            each = ", ".join(f"{i} : goto {name}_{i}" for i in range(len(targets)))
            for i, target in enumerate(targets):
                chains.append(f"chain {name}_{i} {{ meta l4proto tcp dnat to {target}; }}")
            jumps.append(
                f"ip daddr {address} tcp dport {port['port']} "
                f"numgen random mod {len(targets)} vmap {{ {each} }}"
            )
    body = "\n".join(jumps)
    return f"""add table ip services
flush table ip services
delete table ip services
table ip services {{
{chr(10).join(chains)}
chain before {{ type nat hook prerouting priority -100; policy accept;
{body}
}}
chain local {{ type nat hook output priority -100; policy accept;
{body}
}}
chain unserved {{ type filter hook prerouting priority 0; policy accept;
ip daddr 10.96.0.0/16 reject with icmp type port-unreachable
}}
}}
"""


def hosts_lines(service: Object, slices: Any, namespace: str) -> list[str]:
    """Return the lines of a Service in the hosts file of a pod in `namespace`: pure."""
    metadata, spec = service["metadata"], service["spec"]
    full = f"{metadata['name']}.{metadata['namespace']}"
    names = [f"{full}.svc.{DOMAIN}", f"{full}.svc", full]
    if metadata["namespace"] == namespace:
        names.append(metadata["name"])
    address = spec.get("clusterIP")
    if address and address != "None":
        return [f"{address} {' '.join(names)}"]
    lines = []
    for found in _slices_of(service, slices):
        for endpoint in _usable(found, _is_ready):
            own = names
            if "hostname" in endpoint:
                own = own + [f"{endpoint['hostname']}.{name}" for name in names]
            lines.append(f"{endpoint['addresses'][0]} {' '.join(own)}")
    return lines
