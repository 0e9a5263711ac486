"""Releases of weft's Helm chart: their Service, and the Secret with which users connect."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import ConfigError
from ...protocol.trust.connection_file import ConnectionFile
from .kubectl import Kubectl

__all__ = ["ChartRelease", "find_release"]

_SCHEDULERS = "app.kubernetes.io/part-of=weft,app.kubernetes.io/component=scheduler"
#: The annotation of the Service, with the name of the Secret.
_CLIENT_SECRET = "weft.io/client-secret"


@dataclass(frozen=True)
class ChartRelease:
    """A release as its Service describes it."""

    name: str
    namespace: str
    service: str
    secret: str
    #: Of the scheduler and of its pages.
    ports: tuple[int, int]

    def connection(self, kubectl: Kubectl, address: str) -> ConnectionFile:
        """Return a connection file with the token of role client, for a client at `address`.

        Raises:
            ConfigError: the Secret cannot be read, or is not one of weft.
        """
        data = kubectl.get("secret", self.secret).get("data") or {}
        where = f"Secret {self.secret} in namespace {self.namespace}"
        try:
            if "client.json" in data:
                content = json.loads(base64.b64decode(data["client.json"]))
                file = ConnectionFile.from_plain(content, where)
            else:
                token = base64.b64decode(data["client-token"]).decode()
                cluster = base64.b64decode(data.get("cluster-id", "")).decode()
                file = ConnectionFile(cluster_id=cluster, addresses=(address,), token=token)
        except (KeyError, ValueError, binascii.Error):
            raise ConfigError(
                f"{where} has no client.json or client-token that can be read; compare it with the "
                "Secret that 'weft secret' prints"
            ) from None
        return dataclasses.replace(file, addresses=(address,))


def find_release(kubectl: Kubectl, name: str) -> ChartRelease:
    """Find the release called `name` in kubectl's namespace.

    Raises:
        ConfigError: there is none; the text has those that there are.
    """
    services = [
        service
        for service in kubectl.get("services", f"--selector={_SCHEDULERS}")["items"]
        if _CLIENT_SECRET in service["metadata"].get("annotations", {})
    ]
    for service in services:
        if _release_of(service) == name:
            metadata = service["metadata"]
            ports = {port["name"]: int(port["port"]) for port in service["spec"]["ports"]}
            return ChartRelease(
                name,
                metadata["namespace"],
                metadata["name"],
                metadata["annotations"][_CLIENT_SECRET],
                (ports["tls-weft"], ports["https-pages"]),
            )
    known = ", ".join(sorted(map(_release_of, services))) or "none"
    place = f"namespace {kubectl.namespace}" if kubectl.namespace else "the namespace of kubectl"
    raise ConfigError(
        f"there is no release {name!r} of weft in {place}; there: {known}. "
        "'helm list --all-namespaces' lists all; choose with --namespace and --context"
    )


def _release_of(service: dict[str, Any]) -> str:
    return str(service["metadata"]["labels"].get("app.kubernetes.io/instance", ""))
