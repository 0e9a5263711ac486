"""A real sshd on loopback with a key of its own, for tests; it is ended with the block."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.leaks import wait_until
from tests.tools.find import tool


@contextlib.contextmanager
def sshd(folder: Path, *hosts: str) -> Iterator[Path]:
    """Run an sshd; yield a configuration of ssh in which `hosts` are names of this machine."""
    server = tool("sshd")
    place = folder / "ssh"
    place.mkdir(mode=0o700)
    # sshd separates privileges there; distributions make it when their service starts.
    with contextlib.suppress(OSError):
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for name in ("host", "user"):
        keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / name)]
        subprocess.run(keygen, check=True, timeout=60)
    (place / "authorized").write_text((place / "user.pub").read_text())
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (place / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {place}/host\nPidFile {place}/pid\n"
        f"AuthorizedKeysFile {place}/authorized\nStrictModes no\nUsePAM no\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nMaxStartups 100\n"
    )
    key = (place / "host.pub").read_text().split()[:2]
    (place / "known").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    config = place / "config"
    config.write_text(
        "".join(f"Host {host}\n  HostName 127.0.0.1\n" for host in hosts)
        + f"Host closed\n  HostName 127.0.0.1\n  Port 1\nHost *\n  Port {port}\n"
        f"  IdentityFile {place}/user\n  IdentitiesOnly yes\n  IdentityAgent none\n"
        f"  UserKnownHostsFile {place}/known\n  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
    )
    with open(place / "log", "wb") as log:
        process = subprocess.Popen(
            [str(server), "-D", "-e", "-f", str(place / "sshd_config")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: _answers(process, port, place / "log"), 30, "sshd")
        yield config
    finally:
        process.terminate()
        process.wait(30)


def _answers(process: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
