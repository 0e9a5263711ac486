"""The control plane of Kubernetes as plain processes: etcd, API server, controllers, scheduler.

It is up in about three seconds, listens on loopback at free ports, and knows two users: `admin`,
who may all, and `user`, whose rights are what a test gives. Each process is killed by its pid at
the end, and by the kernel if this process ends before.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.kube.api import Api, ApiError, Object
from tests.kube.waiting import wait_until
from tests.tools.find import tool

TOKENS = {"admin": "token-of-admin", "user": "token-of-user"}
#: Addresses of Services; process kubelets translate them in their own network (kubelet/network.py).
SERVICE_RANGE = "10.96.0.0/16"
#: Seconds until a program is up; enough for a machine with much else to do.
_START_S = 120.0


def free_ports(n: int) -> list[int]:
    """Return `n` ports of loopback that are free now.

    They are below those that the kernel gives to outgoing connections: one of those may be taken
    before the program that needs it has started.
    """
    ports: list[int] = []
    while len(ports) < n:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports += [port] if port not in ports else []
    return ports


class ControlPlane:
    """A running control plane; a context manager."""

    def __init__(
        self, folder: Path | None = None, options: Mapping[str, tuple[str, ...]] | None = None
    ) -> None:
        """Start it; its files are in `folder`, or in a new one in memory that goes with it.

        `options` are further ones of its programs.
        """
        self._options = options or {}
        self.programs = {
            name: tool(name)
            for name in (
                "etcd",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubectl",
            )
        }
        memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="weft-kube-", dir=memory))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        etcd, peer, api = free_ports(3)
        self._write_keys()
        certs = self.folder / "certs"
        self._run(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
            "--log-level=warn",
            "--unsafe-no-fsync",
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={api}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--cert-dir={certs}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'sa.pub'}",
            f"--service-account-signing-key-file={self.folder / 'sa.key'}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            "--endpoint-reconciler-type=none",
            "--kubelet-preferred-address-types=InternalIP",
        )
        self.port = api
        ca = certs / "apiserver.crt"
        self.api = Api(api, TOKENS["admin"], ca)
        self._wait("kube-apiserver", self._is_ready)
        self.kubeconfig = self.kubeconfig_of("admin")
        own = [
            f"--{name}={self.kubeconfig}"
            for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
        ]
        self._run(
            "kube-controller-manager",
            *own,
            f"--service-account-private-key-file={self.folder / 'sa.key'}",
            f"--root-ca-file={ca}",
            "--use-service-account-credentials",
            "--node-monitor-period=1s",
            "--leader-elect=false",
            "--secure-port=0",
        )
        self._run(
            "kube-scheduler",
            *own,
            "--leader-elect=false",
            "--secure-port=0",
        )
        # Pods are refused while their namespace has no service account.
        self._wait("kube-controller-manager", lambda: self._exists_account("default"))

    def _write_keys(self) -> None:
        key = rsa.generate_private_key(65537, 2048)
        (self.folder / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        (self.folder / "sa.pub").write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )
        (self.folder / "tokens.csv").write_text(
            f"{TOKENS['admin']},admin,admin,system:masters\n{TOKENS['user']},user,user\n",
            encoding="utf-8",
        )

    def kubeconfig_of(self, user: str) -> Path:
        """Return the path of a kubeconfig of `user`."""
        path = self.folder / f"{user}.kubeconfig"
        ca = b64encode(self.api.ca.read_bytes()).decode()
        server = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority-data": ca}
        context = {"cluster": "tests", "user": user, "namespace": "default"}
        # JSON is YAML.
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "tests", "cluster": server}],
                    "users": [{"name": user, "user": {"token": TOKENS[user]}}],
                    "contexts": [{"name": "tests", "context": context}],
                    "current-context": "tests",
                }
            ),
            encoding="utf-8",
        )
        path.chmod(0o600)
        return path

    def api_of(self, user: str) -> Api:
        """Return a client that calls as `user`."""
        return Api(self.port, TOKENS[user], self.api.ca)

    def _run(self, name: str, *arguments: str) -> None:
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            self.processes[name] = subprocess.Popen(
                # The kernel kills it with the thread that started it.
                [
                    *("setpriv", "--pdeathsig=KILL", str(self.programs[name])),
                    *(*arguments, *self._options.get(name, ())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def start_program(self, name: str, *arguments: str) -> None:
        """Start a further program that ends with this control plane."""
        self.programs[name] = tool(name)
        self._run(name, *arguments)

    def stop_program(self, name: str) -> None:
        """Stop a program by its pid."""
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def _wait(self, name: str, condition: Any) -> None:
        def is_up() -> bool:
            code = self.processes[name].poll()
            if code is not None:
                raise RuntimeError(f"{name} ended with {code}:\n{self.log_of(name)}")
            return condition()

        wait_until(is_up, _START_S, f"{name} is up")

    def log_of(self, name: str, n_lines: int = 15) -> str:
        """Return the last lines of a program's log."""
        text = (self.folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-n_lines:])

    def _is_ready(self) -> bool:
        try:
            return self.api.get("/readyz")["text"] == "ok"
        except (OSError, ApiError):  # no certificate yet, no listener yet, not ready yet
            return False

    def _exists_account(self, namespace: str) -> bool:
        return exists(self.api, f"/api/v1/namespaces/{namespace}/serviceaccounts/default")

    # --- what tests do --------------------------------------------------------------------------

    def run(self, *command: str | Path, stdin: str = "", check: bool = True) -> Any:
        """Run `helm ...` or `kubectl ...` as admin; return the finished process with its texts."""
        name = str(command[0])
        done = subprocess.run(
            [str(tool(name)), *command[1:]],
            input=stdin,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if check and done.returncode:
            text = f"{done.stdout}{done.stderr}"
            raise AssertionError(f"{' '.join(map(str, command))}: {done.returncode}\n{text}")
        return done

    @contextlib.contextmanager
    def started(self, *command: str) -> Iterator[Any]:
        """Run a command within the block; then stop it and keep what it printed as `rest`."""
        process: Any = subprocess.Popen(
            [str(tool(command[0])), *command[1:]],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.rest = process.communicate(timeout=60)[0]

    @property
    def environment(self) -> dict[str, str]:
        """The environment of helm and kubectl: this cluster, and nothing of the user's home."""
        homes = {
            f"HELM_{name}_HOME": str(self.folder / "helm" / name.lower())
            for name in ("CONFIG", "CACHE", "DATA")
        }
        own = {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder)}
        return {**own, **homes}

    def make_namespace(self, name: str, security: str = "restricted") -> str:
        """Make a namespace whose pods must hold against this level of Pod Security."""
        labels = {"pod-security.kubernetes.io/enforce": security}
        self.api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        wait_until(lambda: self._exists_account(name), 60, f"the account of {name}")
        return name

    def pods(self, namespace: str, selector: str = "") -> list[Object]:
        """Return the pods of a namespace."""
        query = {"labelSelector": selector} if selector else {}
        items: list[Object] = self.api.get(f"/api/v1/namespaces/{namespace}/pods", **query)["items"]
        return items

    def close(self) -> None:
        """Kill all of it: what etcd holds is of no use any more."""
        for process in reversed(self.processes.values()):
            process.kill()
        for process in self.processes.values():
            process.wait()
        self.processes.clear()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ControlPlane:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()


def exists(api: Api, path: str) -> bool:
    """Return whether there is an object at `path`."""
    try:
        api.get(path)
    except ApiError as error:
        if error.code == 404:
            return False
        raise
    return True
