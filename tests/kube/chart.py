"""Releases of weft's chart on a control plane."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.kube.api import Object
from tests.kube.control_plane import ControlPlane
from tests.kube.nodes import is_ready
from tests.kube.waiting import wait_until

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "weft"


class Release:
    """A release; `sim` is its name, and so `sim-weft-...` are those of its objects."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        """Keep where it is."""
        self.plane, self.namespace = plane, namespace
        self.name = "sim-weft"

    def helm(self, verb: str, *options: str, check: bool = True) -> str:
        """Run `helm VERB sim CHART`; return what it printed, errors included."""
        chart = [str(CHART)] if verb in {"install", "upgrade"} else []
        done = self.plane.run(
            "helm", verb, "sim", *chart, "-n", self.namespace, *options, check=check
        )
        return str(done.stdout + done.stderr)

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        """Run kubectl in the namespace; return what it printed."""
        done = self.plane.run("kubectl", "-n", self.namespace, *arguments, check=check)
        return str(done.stdout + done.stderr)

    def secret(self, name: str = "auth") -> dict[str, str]:
        """Return the data of one of its Secrets, in base64."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{self.name}-{name}"
        return dict(self.plane.api.get(path)["data"])

    def pods(self, component: str = "") -> list[Object]:
        """Return its pods, those that are ending included."""
        selector = "app.kubernetes.io/instance=sim"
        if component:
            selector += f",app.kubernetes.io/component={component}"
        return self.plane.pods(self.namespace, selector)

    def running(self, component: str = "") -> list[Object]:
        """Return the pods that are ready and not ending."""
        return [
            pod
            for pod in self.pods(component)
            if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")
        ]

    def wait_running(self, component: str, n: int) -> list[Object]:
        """Wait for exactly `n` ready pods of a component."""

        def found() -> list[Object] | None:
            pods = self.running(component)
            return pods if len(pods) == n else None

        return wait_until(found, 120, f"{n} pods of the {component}") or []


@contextmanager
def release(plane: ControlPlane, namespace: str, *options: str) -> Iterator[Release]:
    """Install the chart, and remove it at the end."""
    made = Release(plane, namespace)
    made.helm("install", "--wait", "--timeout=120s", *options)
    yield made
    made.helm("uninstall", "--wait", "--timeout=120s", check=False)
