"""A metrics adapter: serves a number as an external metric, from which an HPA scales.

It does what prometheus-adapter does between Prometheus and the API server, for one metric.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.kube.containers.nodes import CENTRE
from tests.kube.control_plane import ControlPlane
from tests.kube.waiting import wait_until

GROUP = "external.metrics.k8s.io"
_ROOT = f"/apis/{GROUP}/v1beta1"
#: Namespace and name of the Service by which the API server finds it.
_PLACE = {"namespace": "kube-system", "name": "adapter"}


@contextmanager
def adapter(
    plane: ControlPlane, folder: Path, read: Callable[[str, str], int | None]
) -> Iterator[None]:
    """Serve `read(name of the metric, label selector)`; None = there is no such metric."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if url.path == _ROOT:
                resource = {"name": "*", "namespaced": True, "verbs": ["get"], "singularName": ""}
                resource["kind"] = "ExternalMetricValueList"
                versions = {"kind": "APIResourceList", "apiVersion": "v1"}
                self._send(
                    {**versions, "groupVersion": f"{GROUP}/v1beta1", "resources": [resource]}
                )
                return
            name = url.path.rpartition("/")[2]
            value = None
            if url.path.startswith(f"{_ROOT}/namespaces/"):
                value = read(name, parse_qs(url.query).get("labelSelector", [""])[0])
            if value is None:
                self.send_error(404)
                return
            now = dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(value)}
            kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/v1beta1"}
            self._send({**kind, "metadata": {}, "items": [item]})

        def _send(self, content: object) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_certificate(folder))
    with ThreadingHTTPServer((CENTRE, 0), Handler) as server:
        server.daemon_threads = False
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            _register(plane, server.server_port)
            yield
        finally:
            plane.api.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.{GROUP}")
            server.shutdown()
            thread.join()


def _certificate(folder: Path) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "adapter")])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(CENTRE))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / "adapter.pem"
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    path.write_bytes(
        key.private_bytes(*form, serialization.NoEncryption())
        + made.public_bytes(serialization.Encoding.PEM)
    )
    path.chmod(0o600)
    return path


def _register(plane: ControlPlane, port: int) -> None:
    services = "/api/v1/namespaces/kube-system/services"
    ports = [{"name": "https", "port": 443, "targetPort": port}]
    plane.api.create(services, {"metadata": {"name": "adapter"}, "spec": {"ports": ports}})
    slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
    plane.api.create(
        slices,
        {
            "metadata": {"name": "adapter", "labels": {"kubernetes.io/service-name": "adapter"}},
            "addressType": "IPv4",
            "ports": [{"name": "https", "port": port}],
            "endpoints": [{"addresses": [CENTRE], "conditions": {"ready": True}}],
        },
    )
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    spec = {
        "group": GROUP,
        "version": "v1beta1",
        "service": {**_PLACE, "port": 443},
        "insecureSkipTLSVerify": True,
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    plane.api.create(path, {"metadata": {"name": f"v1beta1.{GROUP}"}, "spec": spec})

    def is_available() -> bool:
        found = plane.api.get(f"{path}/v1beta1.{GROUP}").get("status", {}).get("conditions", [])
        return any(one["type"] == "Available" and one["status"] == "True" for one in found)

    wait_until(is_available, 120, "the adapter's API is available")
