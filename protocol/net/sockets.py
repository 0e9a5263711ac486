"""Makes bound and listening sockets; what is peculiar to each family of addresses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from typing import Any, Final

from ..errors import CommError

_BACKLOG: Final = 1024
#: A machine that vanished while nothing was being sent to it is noticed after about this time.
_DEAD_PEER_S: Final = 30


async def bind_tcp(host: str, port: int) -> list[socket.socket]:
    """Listen at every address that `host` has, all at one port; 0 = any free one.

    Raises:
        CommError: the address cannot be listened at.
    """
    address = f"{host}:{port}"
    sockets: list[socket.socket] = []
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, name in dict.fromkeys(infos):
            # "localhost" has two addresses. The second one gets the port that the first one got.
            port = port or (sockets[0].getsockname()[1] if sockets else 0)
            sock = socket.create_server((name[0], port), family=family, backlog=_BACKLOG)
            sock.setblocking(False)
            sockets.append(sock)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise CommError(f"cannot listen: {error.strerror or error}", address) from None
    return sockets


class SocketFile:
    """The file of a listening Unix socket, removed with it unless it was replaced meanwhile."""

    def __init__(self, path: str) -> None:
        self._path = path
        status = os.stat(path)
        self._identity = (status.st_dev, status.st_ino)

    def remove(self) -> None:
        """Remove the file, if it still is the one that this process made."""
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(self._path)
            if (status.st_dev, status.st_ino) == self._identity:
                os.unlink(self._path)


def bind_unix(path: str) -> tuple[socket.socket, SocketFile]:
    """Listen at a path, for this user only; the file of a dead process is replaced.

    Raises:
        CommError: the path cannot be listened at.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        sock.bind(path)
        file = SocketFile(path)
        try:
            # No other user can connect in between, because no connection succeeds before `listen`.
            os.chmod(path, 0o600)
            sock.listen(_BACKLOG)
            sock.setblocking(False)
        except OSError:
            file.remove()
            raise
    except OSError as error:
        sock.close()
        raise CommError(f"cannot listen: {error.strerror or error}", f"unix://{path}") from None
    return sock, file


def _remove_stale(path: str) -> None:
    """Remove the socket file that a killed process left at `path`."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except BlockingIOError:
            # A process listens and is busy; `bind` raises the error.
            return


async def host_on_the_way_to(host: str, port: int) -> str:
    """Return this machine's address on the way to another one.

    Raises:
        CommError: there is no route.
    """
    try:
        infos = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        return _own_end(infos[0][0], infos[0][4])
    except OSError as error:
        raise CommError(f"no route there: {error.strerror or error}", f"{host}:{port}") from None


def outward_host(wildcard: str) -> str:
    """Return this machine's address on its default route, or its name if there is no such route.

    Args:
        wildcard: "0.0.0.0" or "::", which chooses the address family.
    """
    family, far = (
        (socket.AF_INET6, "2001:db8::1") if wildcard == "::" else (socket.AF_INET, "192.0.2.1")
    )
    try:
        return _own_end(family, (far, 9))
    except OSError:
        return socket.gethostname()


def _own_end(family: int, name: Any) -> str:
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect(name)  # connecting a datagram socket only looks up the route and sends nothing
        return str(sock.getsockname()[0])


def set_options(sock: Any, buffer_nbytes: int) -> None:
    """Set the options of a connected socket; None = there is none."""
    if sock is None:
        return
    # The kernel tunes TCP's buffers unless a size is set. What a platform lacks is left out.
    options: list[tuple[int, str, int]] = []
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        options = [
            (socket.IPPROTO_TCP, "TCP_NODELAY", 1),
            (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
            (socket.IPPROTO_TCP, "TCP_KEEPIDLE", _DEAD_PEER_S // 3),
            (socket.IPPROTO_TCP, "TCP_KEEPINTVL", _DEAD_PEER_S // 6),
            (socket.IPPROTO_TCP, "TCP_KEEPCNT", 4),
            # TCP_USER_TIMEOUT is not used: it also ends the connection to a live peer that does not
            # read for that time, such as a worker whose task holds the interpreter lock.
        ]
    else:
        # The kernel does not tune the buffers of Unix sockets.
        options = [
            (socket.SOL_SOCKET, "SO_SNDBUF", buffer_nbytes),
            (socket.SOL_SOCKET, "SO_RCVBUF", buffer_nbytes),
        ]
    for level, name, value in options:
        if hasattr(socket, name):
            with contextlib.suppress(OSError):
                sock.setsockopt(level, getattr(socket, name), value)
