"""A shell with kubectl and helm for two nodes: `python -m tests.kube.containers --by-hand`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.kube.containers.enclosure import FOLDER
from tests.kube.containers.nodes import PLANE_OPTIONS, container_nodes
from tests.kube.control_plane import ControlPlane
from tests.tools.find import tool


def main() -> None:
    """Run the shell."""
    folder = Path(os.environ[FOLDER])
    with ControlPlane(options=PLANE_OPTIONS) as plane, container_nodes(plane, folder):
        path = ":".join(str(tool(name).parent) for name in ("kubectl", "helm"))
        print(f"the image is weft:test; logs are in {folder} and {plane.folder}", flush=True)
        subprocess.run(
            [os.environ.get("SHELL", "/bin/sh")],
            env={**os.environ, **plane.environment, "PATH": f"{path}:{os.environ['PATH']}"},
            check=False,
        )


if __name__ == "__main__":
    main()
