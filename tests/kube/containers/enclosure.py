"""Namespaces and cgroups in which nodes run, and with which all that they made goes.

`run` is called on the machine: it makes a cgroup, and starts a program in new namespaces for
processes, networks, mounts, IPC and the host's name. When that program ends, however it does, the
kernel ends all other processes of the namespace and takes the mounts and networks down; then the
cgroups are empty, and `run` removes them. `prepare` is called within.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.leaks import wait_until

#: The name of the cgroup of all pods; it tells the program that it is within.
VARIABLE = "WEFT_TESTS_NODE_CGROUP"
#: The folder with the image and all files of nodes.
FOLDER = "WEFT_TESTS_NODE_FOLDER"
#: What a kubelet sets for the whole machine. It gets files of its own in their place.
SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
_NAMESPACES = ("--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--mount-proc")


def hierarchies() -> list[Path]:
    """Return the roots of all hierarchies of cgroups that are mounted."""
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return [Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2")]


def has_controllers_of_v1() -> bool:
    """Return whether this machine has the hierarchies of cgroup v1 that a kubelet needs."""
    names = {path.name for path in hierarchies()}
    return {"cpu", "cpuacct", "cpuset", "memory"} <= {
        name for joint in names for name in joint.split(",")
    }


@contextlib.contextmanager
def cgroup() -> Iterator[str]:
    """Make a cgroup in each hierarchy; yield its name."""
    name = f"weft-tests-{os.getpid()}"
    roots = hierarchies()
    for root in roots:
        (root / name).mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (root / name / setting).exists():
                (root / name / setting).write_text((root / setting).read_text())
    try:
        yield name
    finally:
        for root in roots:
            for folder, _, _ in os.walk(root / name, topdown=False):
                _remove(Path(folder))


def _remove(path: Path) -> None:
    """Remove a cgroup; its last processes are still on their way out."""

    def is_gone() -> bool:
        try:
            path.rmdir()
        except OSError:
            return not path.exists()
        return True

    wait_until(is_gone, 30, f"the cgroup {path} is empty", look_s=0.05)


def run(folder: Path, *command: str) -> int:
    """Run a program in an enclosure; return its exit code."""
    with cgroup() as name:
        process = subprocess.Popen(
            [
                *("setpriv", "--pdeathsig=KILL", "unshare", *_NAMESPACES, "--kill-child"),
                *(sys.executable, "-m", "tests.kube.containers.enclosure", *command),
            ],
            env={**os.environ, VARIABLE: name, FOLDER: str(folder)},
        )
        try:
            while True:
                # Ctrl-C reaches the program as well, which ends in its own way.
                with contextlib.suppress(KeyboardInterrupt):
                    return process.wait()
        finally:
            process.kill()
            process.wait()


def prepare(folder: Path) -> None:
    """Make files and a network of its own; called in the new namespaces."""
    for place in ("/run", "/dev/shm"):
        _do("mount", "-t", "tmpfs", "tmpfs", place)
    for name in ("upper", "work"):
        (folder / "var" / name).mkdir(parents=True)
    layers = f"lowerdir=/var,upperdir={folder}/var/upper,workdir={folder}/var/work"
    _do("mount", "-t", "overlay", "overlay", "-o", layers, "/var")
    for name, value in SETTINGS.items():
        shown = folder / "settings" / name.replace("/", ".")
        shown.parent.mkdir(exist_ok=True)
        shown.write_text(f"{value}\n", encoding="ascii")
        _do("mount", "--bind", shown, Path("/proc/sys") / name)
    _do("ip", "link", "set", "lo", "up")
    _do("hostname", "weft-tests")


def _do(*command: str | Path) -> None:
    subprocess.run([*map(str, command)], check=True)


def main() -> None:
    """Prepare, run the program that the arguments name, and end with its exit code.

    As the first process of the namespace this one reaps what others leave behind.
    """
    prepare(Path(os.environ[FOLDER]))
    signal.signal(signal.SIGINT, lambda *_: None)
    program = subprocess.Popen(sys.argv[1:])
    while True:
        pid, status = os.wait()
        if pid == program.pid:
            sys.exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
