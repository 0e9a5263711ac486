"""`weft connect` as a process, with the rights of a user."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.deploy.daemons import environment
from tests.kube.chart import Release
from tests.tools.find import tool


def command_environment(release: Release, folder: Path) -> dict[str, str]:
    """Return an environment with kubectl, for the user `user`, and a home of its own."""
    kubeconfig = release.plane.kubeconfig_of("user")
    path = f"{tool('kubectl').parent}:{os.environ['PATH']}"
    return environment(folder / "home", PATH=path, KUBECONFIG=str(kubeconfig))


def permit(release: Release, secret: str) -> None:
    """Let `user` do in the namespace what docs/kubernetes.md says users need."""
    access = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{release.namespace}"
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]},
    ]
    release.plane.api.create(f"{access}/roles", {"metadata": {"name": "users"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "users"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user"}
    release.plane.api.create(
        f"{access}/rolebindings",
        {"metadata": {"name": "users"}, "roleRef": reference, "subjects": [subject]},
    )


def run_connect(release: Release, folder: Path, *arguments: str) -> Any:
    """Run `weft connect` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "weft", "connect", *arguments],
        env=command_environment(release, folder),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@contextmanager
def connected(release: Release, folder: Path, *arguments: str) -> Iterator[Any]:
    """Run `weft connect` within the block; its output is in the files `out` and `err`."""
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "weft", "connect", *arguments],
            env=command_environment(release, folder) | {"PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
