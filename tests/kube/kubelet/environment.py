"""The environment and the command of a container: pure, but for Secrets and ConfigMaps."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from fractions import Fraction

from tests.kube.api import Api, ApiError, Object
from tests.kube.kubelet.volumes import VolumeError, field_of

_UNITS = {
    "": 1, "m": Fraction(1, 1000), "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip


def quantity(text: str) -> Fraction:
    """Return the number that a quantity such as 500m or 2Gi means."""
    match = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", text)
    if match is None or match[2] not in _UNITS:
        raise ValueError(f"not a quantity: {text!r}")
    return Fraction(match[1]) * _UNITS[match[2]]


def resource_of(pod: Object, container: Object, ref: Object, node: dict[str, str]) -> str:
    """Return a resource of the downward API; a limit that is missing is the node's amount."""
    name = ref.get("containerName")
    if name:
        container = next(c for c in pod["spec"]["containers"] if c["name"] == name)
    kind, _, resource = ref["resource"].partition(".")
    resources = container.get("resources", {})
    given = resources.get(kind, {}).get(resource)
    if given is None and kind == "limits":
        given = node.get(resource, "0")
    divisor = quantity(ref.get("divisor") or "1") or Fraction(1)
    return str(math.ceil(quantity(given or "0") / divisor))


def expand(text: str, known: dict[str, str]) -> str:
    """Replace $(NAME) by its value, as Kubernetes does; $$ is a dollar."""

    def replaced(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return known.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replaced, text)


def service_links(services: list[Object]) -> dict[str, str]:
    """Return the variables that pods get for each Service of their namespace."""
    env = {}
    for service in services:
        address = service["spec"].get("clusterIP")
        if not address or address == "None":
            continue
        prefix = service["metadata"]["name"].upper().replace("-", "_")
        ports = service["spec"].get("ports", [])
        env[f"{prefix}_SERVICE_HOST"] = address
        env[f"{prefix}_SERVICE_PORT"] = str(ports[0]["port"])
        env[f"{prefix}_PORT"] = f"tcp://{address}:{ports[0]['port']}"
        for port in ports:
            if port.get("name"):
                name = port["name"].upper().replace("-", "_")
                env[f"{prefix}_SERVICE_PORT_{name}"] = str(port["port"])
            base = f"{prefix}_PORT_{port['port']}_TCP"
            env[base] = f"tcp://{address}:{port['port']}"
            env |= {f"{base}_PROTO": "tcp", f"{base}_PORT": str(port["port"])}
            env[f"{base}_ADDR"] = address
    return env


def environment_of(
    api: Api,
    pod: Object,
    container: Object,
    status: Object,
    node: dict[str, str],
    services: list[Object],
) -> dict[str, str]:
    """Return the variables of a container; raise VolumeError for one that cannot be had."""
    env = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    if pod["spec"].get("enableServiceLinks", True):
        env |= service_links(services)
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom", []):
        for kind, key in (("secrets", "secretRef"), ("configmaps", "configMapRef")):
            if key in source:
                found = _data(api, namespace, kind, source[key])
                env |= {source.get("prefix", "") + name: text for name, text in found.items()}
    for variable in container.get("env", []):
        name, source = variable["name"], variable.get("valueFrom")
        if source is None:
            env[name] = expand(variable.get("value", ""), env)
        elif "fieldRef" in source:
            env[name] = field_of(pod, source["fieldRef"]["fieldPath"], status)
        elif "resourceFieldRef" in source:
            env[name] = resource_of(pod, container, source["resourceFieldRef"], node)
        else:
            secret = "secretKeyRef" in source
            ref = source["secretKeyRef"] if secret else source["configMapKeyRef"]
            data = _data(api, namespace, "secrets" if secret else "configmaps", ref)
            if ref["key"] in data:
                env[name] = data[ref["key"]]
            elif not ref.get("optional"):
                raise VolumeError(f"couldn't find key {ref['key']} in {namespace}/{ref['name']}")
    return env


def _data(api: Api, namespace: str, kind: str, ref: Object) -> dict[str, str]:
    try:
        found = api.get(f"/api/v1/namespaces/{namespace}/{kind}/{ref['name']}").get("data") or {}
    except ApiError as error:
        if error.code == 404 and ref.get("optional"):
            return {}
        if error.code == 404:
            raise VolumeError(f'{kind[:-1]} "{ref["name"]}" not found') from None
        raise
    if kind == "secrets":
        return {name: b64decode(text).decode() for name, text in found.items()}
    return dict(found)
