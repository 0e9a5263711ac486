"""Renders the chart as helm does, for tests that look at its objects.

The tests are Python over `helm template`, not helm-unittest's YAML: so they can compare the chart
with weft itself, which derives its tokens, reads its certificates and parses its commands.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.tools.find import tool

#: Why a test of schemas is skipped.
NEEDS_SCHEMAS = "kubernetes-validate is missing: pip install kubernetes-validate"
CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "weft"
#: The one in C is ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
RELEASE = "sim"
NAMESPACE = "lab"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm; the test is skipped without it."""
    return subprocess.run(
        [tool("helm"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def render(values: dict[str, Any] | None = None, *more: str, chart: Path = CHART) -> Rendered:
    """Render the chart with these values.

    Raises:
        AssertionError: helm refuses; its text is the error's.
    """
    done = template(values, *more, chart=chart)
    assert done.returncode == 0, done.stderr
    return Rendered([object_ for object_ in yaml.load_all(done.stdout, LOADER) if object_])


def refusal(values: dict[str, Any]) -> str:
    """Return the lines with which helm refuses these values, without the usual ones."""
    done = template(values)
    assert done.returncode != 0, "helm accepts them"
    always = ("", "weft:", "Use --debug flag to render out invalid YAML")
    lines = [line for line in done.stderr.splitlines() if line not in always]
    return "\n".join(line for line in lines if not line.startswith("Error: values don't meet"))


def template(
    values: dict[str, Any] | None = None, *more: str, chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    """Run `helm template` with these values."""
    sets = [f"--set-json={key}={json.dumps(value)}" for key, value in (values or {}).items()]
    return helm("template", RELEASE, str(chart), f"--namespace={NAMESPACE}", *sets, *more)


@dataclass
class Rendered:
    """The objects that the chart makes."""

    objects: list[dict[str, Any]]

    def one(self, kind: str, name: str = "") -> dict[str, Any]:
        """Return the only object of this kind, or the one of it with this name."""
        found = [
            object_
            for object_ in self.objects
            if object_["kind"] == kind and name in ("", object_["metadata"]["name"])
        ]
        (one,) = found
        return one

    def kinds(self) -> list[str]:
        """Return all kinds, sorted, each as often as it is there."""
        return sorted(object_["kind"] for object_ in self.objects)

    def secret(self, name: str) -> dict[str, str]:
        """Return the decoded data of a Secret."""
        data = self.one("Secret", name)["data"]
        return {key: base64.b64decode(value).decode() for key, value in data.items()}

    def pods(self) -> dict[str, dict[str, Any]]:
        """Return {name of the pod or of its controller: the specification of the pod}."""
        found = {}
        for object_ in self.objects:
            if object_["kind"] in ("StatefulSet", "Deployment"):
                found[object_["metadata"]["name"]] = object_["spec"]["template"]["spec"]
            elif object_["kind"] == "Pod":
                found[object_["metadata"]["name"]] = object_["spec"]
        return found


def container(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the only container of a pod."""
    (one,) = pod["containers"]
    assert isinstance(one, dict)
    return one


def options(pod: dict[str, Any]) -> dict[str, str]:
    """Return {option: value} of a pod's command."""
    words = container(pod)["args"]
    pairs = (word.partition("=") for word in words if word.startswith("--"))
    return {name: value for name, _, value in pairs}


def variables(pod: dict[str, Any]) -> dict[str, str]:
    """Return {name: value} of a pod's environment, without what the kubelet fills in."""
    return {one["name"]: one["value"] for one in container(pod)["env"] if "value" in one}
