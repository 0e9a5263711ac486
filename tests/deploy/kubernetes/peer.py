"""An API server that only forwards ports, by a script of the test: real TLS, real websockets."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from weft.protocol.trust.security import generate_certificate

#: The first messages of the channels of port 8786: its number.
BEGIN = b"\x82\x03\x00\x52\x22" + b"\x82\x03\x01\x52\x22"
CLOSE = b"\x88\x02\x03\xe8"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(payload: bytes, opcode: int = 2, is_last: bool = True) -> bytes:
    """Return a frame as servers send it."""
    n = len(payload)
    short = bytes((n,)) if n < 126 else b""
    length = short or (b"\x7e" + n.to_bytes(2, "big") if n < 1 << 16 else b"")
    return bytes((0x80 * is_last | opcode,)) + (length or b"\x7f" + n.to_bytes(8, "big")) + payload


class Peer:
    """The server; each connection runs `script` on a thread."""

    def __init__(self, folder: Path, script: Callable[[PeerConnection], None]) -> None:
        """Keep what to do with connections."""
        self.script = script
        self.n_connections = 0
        self._folder = folder
        certificate, key = folder / "peer.crt", folder / "peer.key"
        for path, text in zip((certificate, key), generate_certificate(bytes(16)), strict=True):
            path.write_text(text, encoding="ascii")
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        #: Errors of scripts, which fail the test.
        self.errors: list[BaseException] = []

    def kubeconfig(self) -> str:
        """Write a kubeconfig with its address; return the path."""
        url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"
        cluster = {"server": url, "insecure-skip-tls-verify": True}
        content = {
            "current-context": "it",
            "clusters": [{"name": "it", "cluster": cluster}],
            "users": [{"name": "it", "user": {"token": "abc"}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        }
        path = self._folder / "config"
        path.write_text(json.dumps(content), encoding="ascii")
        return str(path)

    def __enter__(self) -> Peer:
        """Begin to listen."""
        self._threads.append(threading.Thread(target=self._accept))
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, with all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(30)
        if value is None and self.errors:
            raise self.errors[0]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._listener.accept()
                self.n_connections += 1
                thread = threading.Thread(target=self._serve, args=(accepted,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, accepted: socket.socket) -> None:
        accepted.settimeout(30)
        try:
            with self._context.wrap_socket(accepted, server_side=True) as sock:
                self.script(PeerConnection(sock))
        except Exception as error:
            self.errors.append(error)


class PeerConnection:
    """One connection, as its script sees it."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        """Read the request."""
        self.sock = sock
        self.request = b""
        while not self.request.endswith(b"\r\n\r\n"):
            self.request += sock.recv(1)

    def accept(self) -> None:
        """Complete the handshake of the websocket."""
        lines = self.request.split(b"\r\n")
        (key,) = [v for line in lines if (v := _value(line, b"sec-websocket-key"))]
        digest = base64.b64encode(hashlib.sha1(key + _GUID).digest())
        self.sock.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n"
            b"Sec-WebSocket-Accept: " + digest + b"\r\n\r\n"
        )

    def begin(self) -> None:
        """Complete the handshake, and begin both channels."""
        self.accept()
        self.sock.sendall(BEGIN)

    def send(self, data: bytes) -> None:
        """Send data of the port."""
        self.sock.sendall(frame(b"\x00" + data))

    def receive(self) -> tuple[int, bytes]:
        """Return a frame of the client: its kind, and what it says."""
        first, length = self._exactly(2)
        assert length & 0x80, "frames of clients are masked"
        n = length & 0x7F
        if n > 125:
            n = int.from_bytes(self._exactly(2 if n == 126 else 8), "big")
        mask, masked = self._exactly(4), self._exactly(n)
        return first & 0x0F, bytes(b ^ mask[i % 4] for i, b in enumerate(masked))

    def _exactly(self, n: int) -> bytes:
        data = b""
        while len(data) < n:
            part = self.sock.recv(n - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def reset(self) -> None:
        """End as a process does that was killed with data unread: TCP's RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def cut(self) -> None:
        """End with TCP's FIN, without a word of TLS."""
        self.sock.close()

    def leave(self) -> None:
        """End TLS, and then TCP."""
        with contextlib.suppress(OSError):
            self.sock.unwrap()
        self.sock.close()


def _value(line: bytes, name: bytes) -> bytes:
    found, _, value = line.partition(b":")
    return value.strip() if found.lower() == name else b""
