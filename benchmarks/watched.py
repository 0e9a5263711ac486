"""A `weft top` in a pseudo-terminal of its own, for figures of what it costs a scheduler."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

from weft.protocol.trust.connection_file import ConnectionFile

#: Of a large window, so that many workers are drawn.
_LINES, _COLUMNS = 60, 160


@contextlib.contextmanager
def top_running(address: str, token: bytes, cluster_id: bytes) -> Iterator[list[int]]:
    """Run `weft top` for a scheduler; yields a list with one number, the bytes it has drawn."""
    fd, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    drawn = [0]

    def drain() -> None:
        with contextlib.suppress(OSError):  # the process has ended
            while data := os.read(fd, 65536):
                drawn[0] += len(data)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster.json"
        file = ConnectionFile(cluster_id.hex(), (address,), token.decode(), pid=1, host="elsewhere")
        path.write_text(file.to_text())
        path.chmod(0o600)
        command = [sys.executable, "-m", "weft", "top", "--connection-file", str(path)]
        environment = {**os.environ, "TERM": "xterm-256color"}
        with subprocess.Popen(
            command, stdin=child, stdout=child, stderr=child, env=environment
        ) as process:
            os.close(child)
            reader = threading.Thread(target=drain)
            reader.start()
            try:
                yield drawn
                assert process.poll() is None, "weft top has ended"
            finally:
                process.kill()
                process.wait()
                reader.join()
                os.close(fd)
