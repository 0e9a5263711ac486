"""Requests to Kubernetes with the user's own rights, by the official client of Python.

Each request is a method; a refusal becomes a `KubernetesError` that names the verb and the
resource. All of them block.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from ...protocol.errors import ConfigError
from ...protocol.wording import how_to_install
from .errors import KubernetesError
from .forwarding import PodPort
from .release import DELETION_COST

_TIMEOUT_S: Final = 30.0
_NO_LIBRARY: Final = (
    "KubeCluster needs the Python package kubernetes, which is not installed: "
    + how_to_install("kubernetes")
)


def library(name: str) -> Any:
    """Return a module of the official client.

    Raises:
        ConfigError: the package is not installed.
    """
    try:
        return import_module(f"kubernetes.{name}")
    except ImportError as error:
        raise ConfigError(_NO_LIBRARY) from error


class Kube:
    """The API server of one context, and one namespace of it."""

    def __init__(
        self,
        namespace: str | None = None,
        context: str | None = None,
        kubeconfig: str | None = None,
    ) -> None:
        """Read the kubeconfig, or the service account of the pod that this runs in.

        Raises:
            ConfigError: there is neither, or the context is unknown; or the package is missing.
        """
        client, config = library("client"), library("config")
        refused = config.config_exception.ConfigException
        self.is_inside = False
        found = "default"
        try:
            self._settings = client.Configuration()
            config.load_kube_config(kubeconfig, context, client_configuration=self._settings)
            _, active = config.list_kube_config_contexts(kubeconfig)
            if context is not None:
                contexts, _ = config.list_kube_config_contexts(kubeconfig)
                (active,) = [one for one in contexts if one["name"] == context]
            found = active["context"].get("namespace") or found
        except (refused, OSError) as error:
            if kubeconfig is not None or context is not None:
                raise ConfigError(
                    f"the kubeconfig cannot be used: {error}", "kubeconfig"
                ) from error
            try:
                config.load_incluster_config(client_configuration=self._settings)
            except refused:
                raise ConfigError(
                    f"no Kubernetes cluster is configured: {error}. Set $KUBECONFIG, or run this "
                    "in a pod whose service account has a token",
                    "kubeconfig",
                ) from error
            self.is_inside = True
            path = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
            with open(path, encoding="utf-8") as file:
                found = file.read().strip()
        self.namespace = namespace or found
        self._settings.retries = 2
        self._api = client.ApiClient(self._settings)
        self.core = client.CoreV1Api(self._api)
        self.apps = client.AppsV1Api(self._api)

    def close(self) -> None:
        """Close the connections."""
        self._api.close()
        self._api.rest_client.pool_manager.clear()

    def open_port(self, pod: str, port: int) -> PodPort:
        """Open a connection to a port of a pod.

        Raises:
            KubernetesError: it was refused.
        """
        client, stream = library("client"), library("stream").stream
        # An API object of its own: `stream` replaces parts of it.
        core = client.CoreV1Api(client.ApiClient(self._settings))
        call = core.connect_get_namespaced_pod_portforward
        try:
            # Not its `portforward`, which runs a thread that fails when the connection ends.
            where = call, pod, self.namespace
            how = {"ports": str(port), "_preload_content": False}
            opened = self._call("get", "pods/portforward", stream, *where, **how)
        except BaseException:
            core.api_client.close()
            raise

        def close() -> None:
            opened.sock.shutdown()  # at once; `close` waits for an answer
            core.api_client.close()

        return PodPort(opened.sock.sock, close)

    def _call(
        self, verb: str, resource: str, request: Callable[..., Any], *what: Any, **how: Any
    ) -> Any:
        """Make a request: call `request`, a method of the client, with these arguments.

        Raises:
            KubernetesError: it was refused, or there was no answer.
        """
        from urllib3.exceptions import HTTPError

        refused = library("client.exceptions").ApiException
        try:
            return request(*what, **how)
        except refused as error:
            # The library reports a refused websocket as status 0; its cause has the status.
            status = error.status or getattr(error.__context__, "status_code", None) or 0
            text = self._refusal(verb, resource, status, error.reason)
            raise KubernetesError(text, status) from error
        except HTTPError as error:
            raise KubernetesError(
                f"the API server of Kubernetes at {self._settings.host} does not answer ({error}); "
                "check the context of your kubeconfig and the network"
            ) from error

    def _do(
        self, verb: str, resource: str, request: Callable[..., Any], *names: str, **how: Any
    ) -> Any:
        """Make a request about objects of the namespace, within a time."""
        how |= {"_request_timeout": _TIMEOUT_S}
        return self._call(verb, resource, request, *names, self.namespace, **how)

    def _refusal(self, verb: str, resource: str, status: int, reason: object) -> str:
        where = f"in namespace {self.namespace!r}"
        if status in (401, 403):
            return (
                f"you may not {verb} {resource} {where}: a Role with a rule for verb {verb!r} of "
                f"resource {resource!r} is missing for you; ask the administrator of the namespace"
            )
        return f"Kubernetes refused to {verb} {resource} {where} ({status} {reason})"

    def plain(self, found: Any) -> Any:
        """Return what was answered as plain dicts, with the names of the API."""
        return self._api.sanitize_for_serialization(found)

    def listed(self, resource: str, selector: str = "") -> list[dict[str, Any]]:
        """List objects of the namespace, as plain dicts."""
        calls = {
            "pods": self.core.list_namespaced_pod,
            "events": self.core.list_namespaced_event,
            "deployments": self.apps.list_namespaced_deployment,
            "services": self.core.list_namespaced_service,
        }

        found = self._do("list", resource, calls[resource], label_selector=selector)
        items: list[dict[str, Any]] = self.plain(found)["items"]
        return items

    def secret(self, name: str) -> dict[str, str]:
        """Return the data of a Secret, in base64."""
        found = self._do("get", f"secrets/{name}", self.core.read_namespaced_secret, name)
        return dict(self.plain(found).get("data") or {})

    def set_replicas(self, deployment: str, n: int) -> None:
        """Set the number of pods of a Deployment."""
        body = {"spec": {"replicas": n}}
        scale = self.apps.patch_namespaced_deployment_scale
        self._do("patch", "deployments/scale", scale, deployment, body=body)

    def set_deletion_cost(self, pod: str, cost: str | None) -> None:
        """Set the annotation by which pods go first when there are to be fewer; None removes it."""
        body = {"metadata": {"annotations": {DELETION_COST: cost}}}
        self._do("patch", "pods", self.core.patch_namespaced_pod, pod, body=body)

    def log(self, pod: str, n_lines: int = 1000) -> str:
        """Return the latest lines of a pod's log."""
        read = self.core.read_namespaced_pod_log
        return str(self._do("get", "pods/log", read, pod, tail_lines=n_lines))
