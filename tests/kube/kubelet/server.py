"""The kubelet's own API, as far as the API server passes calls to it: logs and port-forward."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from pathlib import Path

import tornado.httpserver
import tornado.iostream
import tornado.web
import tornado.websocket

from tests.kube.kubelet.nodes import Kubelet
from tests.kube.kubelet.spdy import SpdySession
from weft.protocol.trust.security import generate_certificate

_FOLLOW_S = 0.1


class Logs(tornado.web.RequestHandler):
    """`kubectl logs`, with -f, --tail and --previous."""

    def initialize(self, kubelet: Kubelet) -> None:
        """Keep the kubelet."""
        self._kubelet = kubelet

    async def get(self, namespace: str, name: str, container: str) -> None:
        """Send the log, and what is added while its container runs."""
        pod = self._kubelet.pod(namespace, name)
        if pod is None:
            raise tornado.web.HTTPError(404, reason=f"pod {name} does not run here")
        try:
            found = pod.container(container)
        except KeyError:
            raise tornado.web.HTTPError(404, reason=f"no container {container}") from None
        path = found.log(self.get_argument("previous", "") == "true")
        if not path.exists():
            raise tornado.web.HTTPError(400, reason=f"container {container} has no such log")
        tail = self.get_argument("tailLines", "")
        self.set_header("Content-Type", "text/plain")
        with path.open("rb") as file:
            data = file.read()
            self.write(last_lines(data, int(tail)) if tail else data)
            if self.get_argument("follow", "") != "true":
                return
            with contextlib.suppress(tornado.iostream.StreamClosedError):
                while True:
                    await self.flush()
                    running = found.is_running and found.log() == path
                    data = file.read()
                    if data:
                        self.write(data)
                    elif not running:
                        return
                    else:
                        with contextlib.suppress(asyncio.TimeoutError):
                            await asyncio.wait_for(asyncio.Event().wait(), _FOLLOW_S)


class PortForward(tornado.websocket.WebSocketHandler):
    """Port-forward: by GET over a WebSocket, by POST over SPDY (spdy.py).

    Of a WebSocket the channel 2i has the data of port i, and 2i + 1 its errors.
    """

    def initialize(self, kubelet: Kubelet) -> None:
        """Keep the kubelet."""
        self._kubelet = kubelet
        self._sockets: list[socket.socket] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._to: list[asyncio.Queue[bytes | None]] = []

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Choose the one that all clients know."""
        return "v4.channel.k8s.io" if "v4.channel.k8s.io" in subprotocols else None

    async def open(self, namespace: str, name: str) -> None:  # type: ignore[override]
        """Connect to each port and begin."""
        pod = self._kubelet.pod(namespace, name)
        ports = [int(port) for port in self.get_arguments("port")]
        for i, port in enumerate(ports):
            number = port.to_bytes(2, "little")
            for channel in (2 * i, 2 * i + 1):
                await self.write_message(bytes([channel]) + number, binary=True)
            try:
                if pod is None or pod.network is None:
                    raise OSError(f"pod {name} does not run here")
                sock = pod.network.connect("127.0.0.1", port, 5)
            except OSError as error:
                text = f"error forwarding port {port} to pod {name}: {error}"
                await self.write_message(bytes([2 * i + 1]) + text.encode(), binary=True)
                self.close()
                return
            reader, writer = await asyncio.open_connection(sock=sock)
            self._to.append(asyncio.Queue())
            self._tasks.append(asyncio.ensure_future(self._send(2 * i, reader)))
            self._tasks.append(asyncio.ensure_future(self._receive(self._to[i], writer)))

    async def post(self, namespace: str, name: str) -> None:
        """Change to SPDY and serve it."""
        if self.request.headers.get("Upgrade", "").upper() != "SPDY/3.1":
            raise tornado.web.HTTPError(400, reason="only SPDY/3.1 and WebSockets")
        kubelet = self._kubelet

        def connect(port: int) -> socket.socket:
            pod = kubelet.pod(namespace, name)
            if pod is None or pod.network is None:
                raise OSError(f"pod {name} does not run here")
            try:
                return pod.network.connect("127.0.0.1", port, 5)
            except OSError as error:
                raise OSError(f"port {port} of pod {name}: {error}") from None

        self.set_status(101)
        for name_, value in (("Upgrade", "SPDY/3.1"), ("Connection", "Upgrade")):
            self.set_header(name_, value)
        self.set_header("X-Stream-Protocol-Version", "portforward.k8s.io")
        self.clear_header("Content-Type")
        self.finish()
        await SpdySession(self.detach(), connect).serve()

    async def _send(self, channel: int, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(tornado.websocket.WebSocketClosedError, ConnectionError):
            while data := await reader.read(1 << 16):
                await self.write_message(bytes([channel]) + data, binary=True)
        self.close()

    async def _receive(
        self, box: asyncio.Queue[bytes | None], writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while (data := await box.get()) is not None:
                writer.write(data)
                await writer.drain()
        writer.close()

    def on_message(self, message: str | bytes) -> None:
        """Pass data on."""
        data = message.encode() if isinstance(message, str) else message
        if data and data[0] % 2 == 0 and data[0] // 2 < len(self._to):
            self._to[data[0] // 2].put_nowait(data[1:])

    def on_close(self) -> None:
        """Close the connections to the pod."""
        for box in self._to:
            box.put_nowait(None)
        for task in self._tasks[::2]:
            task.cancel()


def last_lines(data: bytes, n: int) -> bytes:
    """Return the last `n` lines."""
    return b"".join(data.splitlines(True)[-n:]) if n else b""


def listen(kubelet: Kubelet, folder: Path) -> int:
    """Listen on loopback with a certificate of its own; return the port."""
    certificate, key = folder / "kubelet.crt", folder / "kubelet.key"
    for path, text in zip((certificate, key), generate_certificate(bytes(16)), strict=True):
        path.write_text(text, encoding="ascii")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    names = r"([^/]+)/([^/]+)"
    application = tornado.web.Application(
        [
            (rf"/containerLogs/{names}/([^/]+)", Logs, {"kubelet": kubelet}),
            (rf"/portForward/{names}", PortForward, {"kubelet": kubelet}),
        ]
    )
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setblocking(False)
    server = tornado.httpserver.HTTPServer(application, ssl_options=context)
    server.add_socket(sock)
    return int(sock.getsockname()[1])
