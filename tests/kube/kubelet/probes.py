"""Startup, liveness and readiness probes of a container: one thread for each probe."""

from __future__ import annotations

import http.client
import ssl
import subprocess
import threading
import urllib.parse
from collections.abc import Callable
from typing import Any

from tests.kube.api import Object
from tests.kube.kubelet.containers import Container, SpecError, enter
from tests.kube.kubelet.network import Namespace


class Probe:
    """Probe a container until stopped; report when the outcome is certain and differs."""

    def __init__(
        self,
        kind: str,
        spec: Object,
        container: Container,
        network: Namespace,
        address: str,
        report: Callable[[str, bool, str], None],
    ) -> None:
        """Start a thread that calls `report(kind, succeeded, why)`."""
        self._kind, self._spec, self._container = kind, spec, container
        self._network, self._address, self._report = network, address, report
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{kind} of {container.name}")
        self._thread.start()

    def stop(self) -> None:
        """Stop it; a probe that is under way reports no more."""
        self._stopped.set()

    def join(self) -> None:
        """Wait for its thread, which may wait for an answer."""
        self._thread.join()

    def _run(self) -> None:
        spec = self._spec
        period = spec.get("periodSeconds", 10)
        needed = {True: spec.get("successThreshold", 1), False: spec.get("failureThreshold", 3)}
        self._stopped.wait(spec.get("initialDelaySeconds", 0))
        last, n_same = None, 0
        while not self._stopped.is_set():
            why = self._ask()
            outcome = why is None
            n_same = n_same + 1 if outcome == last else 1
            last = outcome
            if n_same == needed[outcome] and not self._stopped.is_set():
                self._report(self._kind, outcome, why or "")
            self._stopped.wait(period)

    def _ask(self) -> str | None:
        """Return None, or why it failed."""
        spec, timeout = self._spec, self._spec.get("timeoutSeconds", 1)
        try:
            if "exec" in spec:
                command = enter(self._container, spec["exec"]["command"])
                done = subprocess.run(
                    command,
                    env=self._container.environment,
                    capture_output=True,
                    text=True,
                    timeout=timeout,
                    check=False,
                )
                return None if done.returncode == 0 else (done.stdout + done.stderr)[-300:]
            if "tcpSocket" in spec:
                port = self._port(spec["tcpSocket"]["port"])
                self._network.connect(self._address, port, timeout).close()
                return None
            return self._http(spec["httpGet"], timeout)
        except (OSError, SpecError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
            return f"{type(error).__name__}: {error}"

    def _http(self, spec: Object, timeout: float) -> str | None:
        port = self._port(spec["port"])
        host = spec.get("host", self._address)
        sock = self._network.connect(host, port, timeout)
        if spec.get("scheme", "HTTP") == "HTTPS":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            sock = context.wrap_socket(sock)
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
        connection.sock = sock
        try:
            headers = {"User-Agent": "kube-probe/1.34", "Accept": "*/*"}
            headers |= {h["name"]: h["value"] for h in spec.get("httpHeaders", [])}
            connection.request(
                "GET", urllib.parse.quote(spec.get("path", "/"), "/?=&"), headers=headers
            )
            code = connection.getresponse().status
        finally:
            connection.close()
        return None if 200 <= code < 400 else f"HTTP probe failed with statuscode: {code}"

    def _port(self, port: Any) -> int:
        if isinstance(port, int):
            return port
        for given in self._container.spec.get("ports", []):
            if given.get("name") == port:
                return int(given["containerPort"])
        raise SpecError(f"the container has no port {port!r}")
