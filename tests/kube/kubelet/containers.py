"""One container of a pod: the process of its command, started again and again by its pod."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.kube.api import Object
from tests.kube.kubelet.environment import expand

LAUNCHER = Path(__file__).with_name("launcher.py")
CHECKOUT = Path(__file__).resolve().parents[3]
#: The user of the image, as in deploy/docker.
USER = 1001


def image_binds(folder: Path) -> list[list[str]]:
    """Return what the image "weft" shows: this machine's programs, this checkout, its packages.

    The last two are in /opt, since a pod may mount a volume over the folder where they are.
    """
    # Of /etc what programs need; the folder itself is the image's, and volumes may be in it.
    system = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ssl", "/etc/alternatives")
    system += ("/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types")
    binds = [[path, path] for path in system if os.path.exists(path)]
    command = folder / "weft"
    command.write_text(
        "#!/opt/venv/bin/python\nimport sys\nfrom weft.__main__ import main\nsys.exit(main())\n",
        encoding="ascii",
    )
    command.chmod(0o755)
    files = {
        "passwd": f"root:x:0:0:root:/root:/bin/sh\nweft:x:{USER}:{USER}:weft:/home/weft:/bin/sh\n",
        "group": f"root:x:0:\nweft:x:{USER}:\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
        "host.conf": "multi on\n",
        "resolv.conf": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="ascii")
        binds.append([str(folder / name), f"/etc/{name}"])
    binds.append([str(command), "/opt/bin/weft"])
    if not sys.base_prefix.startswith("/usr"):
        binds.append([sys.base_prefix, sys.base_prefix])
    return [*binds, [sys.prefix, "/opt/venv"], [str(CHECKOUT), "/opt/weft"]]


IMAGE_ENVIRONMENT = {
    "PATH": "/opt/bin:/opt/venv/bin:/usr/local/bin:/usr/bin:/bin",
    "PYTHONPATH": "/opt/weft",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/",
}
#: Some processors need these for old builds of OpenBLAS.
_OF_MACHINE = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
IMAGE_ENVIRONMENT |= {name: os.environ[name] for name in _OF_MACHINE if name in os.environ}
#: What runs if a container has no command.
IMAGE_ENTRYPOINT = ["weft"]


class SpecError(Exception):
    """A container cannot be made as its spec demands; the text is for the event."""


@dataclass
class Container:
    """A container and its present process, if it has one."""

    spec: Object
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    n_restarts: int = -1
    #: RFC 3339, of the present process.
    started_at: str = ""
    #: How the last process ended: `terminated` of a container's status.
    last: Object | None = None
    #: Why there is no process: reason and message.
    waiting: tuple[str, str] = ("ContainerCreating", "")
    #: Its end stays: no restart.
    is_final: bool = False
    #: Answers of the probes; a container without a probe has passed it.
    started: bool = False
    ready: bool = False
    #: When it may be started again (monotonic), and the pause after that.
    due: float = 0.0
    pause_s: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in the pod."""
        return str(self.spec["name"])

    @property
    def is_running(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and self.process.poll() is None

    def log(self, previous: bool = False) -> Path:
        """Return the log file of the present process, or of the one before it."""
        return self.folder / f"{self.name}.{self.n_restarts - int(previous)}.log"

    @property
    def pid(self) -> int | None:
        """The pid of the container's process 1, as the machine sees it."""
        try:
            return int((self.folder / f"{self.name}.pid").read_text(encoding="ascii"))
        except (FileNotFoundError, ValueError):
            return None

    def signal(self, number: int) -> None:
        """Send a signal to process 1, by its launcher."""
        if self.process is None or self.process.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)


def start(
    container: Container,
    pod: Object,
    *,
    image: list[list[str]],
    network: str,
    hosts: Path,
    volumes: dict[str, Path],
    environment: dict[str, str],
) -> None:
    """Start the container's process; raise SpecError."""
    spec, of_pod = container.spec, pod["spec"].get("securityContext", {})
    own = spec.get("securityContext", {})
    uid = own.get("runAsUser", of_pod.get("runAsUser", USER))
    if own.get("runAsNonRoot", of_pod.get("runAsNonRoot")) and uid == 0:
        raise SpecError("container has runAsNonRoot and image will run as root")
    gid = own.get("runAsGroup", of_pod.get("runAsGroup", uid))
    groups = [*of_pod.get("supplementalGroups", [])]
    groups += [of_pod["fsGroup"]] if "fsGroup" in of_pod else []
    container.environment = IMAGE_ENVIRONMENT | {"HOSTNAME": host_name(pod)} | environment
    command = [expand(text, container.environment) for text in spec.get("command", [])]
    arguments = [expand(text, container.environment) for text in spec.get("args", [])]
    container.n_restarts += 1
    folder = container.folder
    root = folder / f"{container.name}.root"
    root.mkdir(exist_ok=True)
    pid_file = folder / f"{container.name}.pid"
    pid_file.unlink(missing_ok=True)
    names = folder / "hostname"
    names.write_text(host_name(pod) + "\n", encoding="ascii")
    mounts = [[str(hosts), "/etc/hosts", False], [str(names), "/etc/hostname", True]]
    for mount in sorted(spec.get("volumeMounts", []), key=lambda mount: mount["mountPath"]):
        source = volumes[mount["name"]] / mount.get("subPath", "")
        if mount.get("subPath") and not source.exists():
            source.mkdir(parents=True)
        mounts.append([str(source.resolve()), mount["mountPath"], mount.get("readOnly", False)])
    launch = {
        "network": network,
        "host_name": host_name(pod),
        "root": str(root),
        "image": image,
        "mounts": mounts,
        "read_only_root": own.get("readOnlyRootFilesystem", False),
        "drop_capabilities": "ALL" in own.get("capabilities", {}).get("drop", []),
        "may_gain_privileges": own.get("allowPrivilegeEscalation", True),
        "uid": uid,
        "gid": gid,
        "groups": groups,
        "folder": spec.get("workingDir", "/"),
        "command": (command or IMAGE_ENTRYPOINT) + arguments,
        "environment": container.environment,
        "pid_file": str(pid_file),
    }
    with container.log().open("wb") as log:
        container.process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(launch)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd="/",
            start_new_session=True,
        )
    # A signal that the launcher gets before it has a child would end it alone.
    while container.pid is None and container.process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            container.process.wait(0.005)
    container.started = "startupProbe" not in spec
    container.ready = container.started and "readinessProbe" not in spec


def host_name(pod: Object) -> str:
    """Return the host name of a pod."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63]


def enter(container: Container, command: list[str]) -> list[str]:
    """Return the command line that runs `command` inside a running container, as its user."""
    pid = container.pid
    if pid is None:
        raise SpecError("the container has no process")
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in status.splitlines())
    uid, gid = (fields[name].split()[0] for name in ("Uid", "Gid"))
    nsenter = shutil.which("nsenter", path="/usr/bin:/bin") or "nsenter"
    flags = ["-t", str(pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w"]
    return [nsenter, *flags, "-S", uid, "-G", gid, "--", *command]


def kill(container: Container) -> None:
    """Kill the launcher: the kernel then kills process 1, and with it all others."""
    container.signal(signal.SIGKILL)
