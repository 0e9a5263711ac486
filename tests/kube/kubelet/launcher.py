"""Run one container: a command in namespaces of its own, with its own view of the file system.

A program without imports beyond the standard library, which gets a JSON object as its argument
(made in containers.py). It becomes the parent of the container's process 1, passes SIGTERM on to
it, and ends with its exit code (128 + n after a signal). It takes its child with it when it is
killed, and the kernel then ends everything else in the container's process namespace.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 24, 38
SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

libc = ctypes.CDLL(None, use_errno=True)


def check(code: int, what: str) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    arguments = [text.encode() or None for text in (source, target, kind)]
    check(
        libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None),
        f"mount {source} at {target}",
    )


def bind(source: str, target: str, read_only: bool) -> None:
    """Show `source`, a file or folder, at `target`, which is made."""
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        # A volume in memory may be nodev and so on: these flags must stay.
        flags = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | 8)
        mount(source, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | flags)


def build_root(spec: dict) -> None:
    """Make the container's file system and enter it."""
    root = spec["root"]
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("image", root, "tmpfs", data="mode=0755")
    for source, target in spec["image"]:
        if os.path.islink(source):
            os.symlink(os.readlink(source), root + target)
        else:
            bind(source, root + target, True)
    for folder, mode in (("/proc", 0o555), ("/dev", 0o755), ("/tmp", 0o1777)):
        os.makedirs(root + folder, exist_ok=True)
        os.chmod(root + folder, mode)
    mount("proc", f"{root}/proc", "proc")
    mount("dev", f"{root}/dev", "tmpfs", data="mode=0755")
    for device in ("null", "zero", "full", "random", "urandom", "tty"):
        bind(f"/dev/{device}", f"{root}/dev/{device}", False)
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    os.mkdir(f"{root}/dev/shm")
    mount("shm", f"{root}/dev/shm", "tmpfs", data="mode=1777,size=64m")
    for source, target, read_only in spec["mounts"]:
        bind(source, root + target, read_only)
    check(libc.chdir(root.encode()), "chdir")
    check(libc.syscall(SYS_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "umount")
    os.chdir("/")
    if spec["read_only_root"]:
        mount("image", "/", flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def give_up_rights(spec: dict) -> None:
    """Become the container's user, without the capabilities that it drops."""
    if spec["drop_capabilities"]:
        for capability in range(64):
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups(spec["groups"])
    os.setgid(spec["gid"])
    os.setuid(spec["uid"])
    if not spec["may_gain_privileges"]:
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")


def main() -> int:
    spec = json.loads(sys.argv[1])
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    network = os.open(spec["network"], os.O_RDONLY)
    check(libc.setns(network, CLONE_NEWNET), "setns")
    os.close(network)
    check(libc.unshare(CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID), "unshare")
    child = os.fork()
    if child == 0:
        try:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # Here, not before the fork: pivot_root moves all processes of the mount namespace.
            check(libc.unshare(CLONE_NEWNS), "unshare")
            host_name = spec["host_name"].encode()
            check(libc.sethostname(host_name, len(host_name)), "sethostname")
            build_root(spec)
            give_up_rights(spec)
            # The change of the user has cleared it.
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os.umask(0o022)
            os.chdir(spec["folder"])
            os.execvpe(spec["command"][0], spec["command"], spec["environment"])
        except BaseException as error:
            # As runtimes do it: 127 and 126 are those of a shell.
            print(f"cannot start the container: {error}", file=sys.stderr, flush=True)
            os._exit(127 if isinstance(error, FileNotFoundError) else 126)
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(child, number))
    with open(spec["pid_file"] + ".new", "w", encoding="ascii") as file:
        file.write(str(child))
    os.rename(spec["pid_file"] + ".new", spec["pid_file"])
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
