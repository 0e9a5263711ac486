"""A pod that is a client of the chart's cluster, as its notes describe it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from tests.kube.api import Object
from tests.kube.chart import Release
from tests.kube.nodes import ProcessNodes
from tests.kube.waiting import wait_until

#: Seconds for one step of a client; generous, since the machine may have much else to do.
_LIMIT_S = 240.0
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}


class ClientPod:
    """A pod on a process node that runs a command with the connection file of the release."""

    def __init__(
        self, release: Release, nodes: ProcessNodes, name: str, command: list[str]
    ) -> None:
        """Prepare it; the block of `with` has it."""
        self.release, self.nodes, self.name, self.command = release, nodes, name, command
        self._path = f"/api/v1/namespaces/{release.namespace}/pods"
        self.uid = ""
        self.last_log = ""

    def spec(self) -> Object:
        """Return the pod."""
        environment = {
            "HOME": "/home/weft",
            "WEFT_TRUST_MOUNTED_SECRETS": "1",
            "WEFT_CONNECTION_FILE": "/etc/weft/client.json",
        }
        container = {
            "name": "main",
            "image": "weft:test",
            "command": self.command,
            "env": [{"name": name, "value": text} for name, text in environment.items()],
            "securityContext": RESTRICTED,
            "volumeMounts": [
                {"name": "weft", "mountPath": "/etc/weft", "readOnly": True},
                {"name": "control", "mountPath": "/control"},
                {"name": "home", "mountPath": "/home/weft"},
                {"name": "tmp", "mountPath": "/tmp"},
            ],
        }
        secret = {"secretName": f"{self.release.name}-client"}
        return {
            "metadata": {"name": self.name, "labels": {"weft.io/client": "true"}},
            "spec": {
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 1001,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "automountServiceAccountToken": False,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
                "containers": [container],
                "volumes": [
                    {"name": "weft", "secret": secret},
                    *({"name": name, "emptyDir": {}} for name in ("control", "home", "tmp")),
                ],
            },
        }

    def __enter__(self) -> ClientPod:
        """Create it."""
        self.uid = self.release.plane.api.create(self._path, self.spec())["metadata"]["uid"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove it, and keep its log as `last_log`."""
        self.last_log = self.log()
        self.release.plane.api.delete(f"{self._path}/{self.name}", grace_s=0)

    @property
    def _folder(self) -> Path:
        return self.nodes.folder / "pods" / self.uid

    @property
    def control(self) -> Path:
        """The pod's volume /control, as a folder of this machine."""
        return self._folder / "volumes" / "control"

    def log(self) -> str:
        """Return what it has printed."""
        path = self._folder / "main.0.log"
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def phase(self) -> str:
        """Return the phase of the pod."""
        found = self.release.plane.api.get(f"{self._path}/{self.name}")
        return str(found["status"].get("phase"))

    def wait_until(self, condition: Callable[[], object], what: str) -> None:
        """Wait; a pod that ends before that is an error."""

        def holds() -> bool:
            self.nodes.check()
            if condition():
                return True
            if "Traceback" in self.log():
                raise AssertionError(f"the client failed before {what}:\n{self.log()[-3000:]}")
            return False

        wait_until(holds, _LIMIT_S, what)

    def wait_for(self, text: str) -> None:
        """Wait until it has printed `text`."""
        self.wait_until(lambda: text in self.log(), repr(text))

    def wait_end(self) -> None:
        """Wait until it has ended with 0."""
        self.wait_until(lambda: self.phase() == "Succeeded", "the end of the client")
