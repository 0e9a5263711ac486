"""The image of deploy/docker/Dockerfile, built by buildah upon a base that is made here.

No registry of images is needed. The base has the name of that of the Dockerfile, and is Debian with
its Python: made once by mmdebstrap, and kept in the tools' folder.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.tools.find import folder as tools_folder
from tests.tools.find import tool

ROOT = Path(__file__).resolve().parents[3]
#: Debian and its version of Python.
SUITE, PYTHON = "bookworm", "3.11"
IMAGE, PAUSE = "weft:test", "pause:test"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = "python3,python3-venv,python3-pip,ca-certificates"
#: What pip needs to reach its index from within, as on this machine.
_MOUNTS = ("/etc/ssl/certs", "/etc/pip.conf")


def base() -> Path:
    """Return the archive of the base's files, which is made if it is missing."""
    path = tools_folder() / f"base-{SUITE}.tar"
    if not path.exists():
        print(f"making {path}: about a minute, five on a busy machine ...", flush=True)
        part = path.with_name(f".{os.getpid()}-{path.name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        _run(tool("mmdebstrap"), "--variant=minbase", f"--include={_PACKAGES}", SUITE, part)
        part.rename(path)
    return path


def build(folder: Path) -> None:
    """Build the images; archives of them are in the folder."""
    files = base()
    print("building the image ...", flush=True)
    made = f"docker.io/library/python:{PYTHON}-slim"
    container = _buildah(folder, "from", "scratch").strip()
    _buildah(folder, "add", "--quiet", container, files, "/")
    _buildah(folder, "config", f"--env=PATH={_PATH}", "--cmd=python3", container)
    _buildah(folder, "commit", "--quiet", container, made)
    # The container that holds a pod's namespaces: any program that waits.
    _buildah(folder, "config", '--entrypoint=["sleep", "infinity"]', "--cmd=", container)
    _buildah(folder, "commit", "--quiet", "--rm", container, f"docker.io/library/{PAUSE}")
    mounts = [f"--volume={path}:{path}:ro" for path in _MOUNTS if Path(path).exists()]
    _buildah(
        folder,
        *("build", "--isolation=chroot", "--pull-never", "--network=host", "--quiet"),
        *(f"--build-arg=PYTHON={PYTHON}", *mounts),
        *("--file=deploy/docker/Dockerfile", f"--tag=docker.io/library/{IMAGE}", "."),
    )
    for name in (IMAGE, PAUSE):
        full = f"docker.io/library/{name}"
        _buildah(folder, "push", "--quiet", full, f"docker-archive:{archive(folder, name)}:{full}")


def archive(folder: Path, name: str) -> Path:
    """Return the archive of an image; a colon would end its path."""
    return folder / f"{name.partition(':')[0]}.tar"


def _buildah(folder: Path, *arguments: str | Path) -> str:
    storage = ["--storage-driver=overlay", f"--root={folder}/storage", f"--runroot={folder}/run"]
    return _run(tool("buildah"), *storage, *arguments)


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stderr}")
    return done.stdout
