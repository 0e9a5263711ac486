"""The far end of `weft ssh`: runs one `weft` command, as long as its standard input is open.

Its order comes as the first line of standard input, never as arguments, which other users of the
machine can read: `{"arguments": [...], "files": {name: text}, "report": name}`. The files are
written into a private folder, whose path replaces `{folder}` in the arguments; `report` names the
one that the command writes, and that is sent back. The next lines are names of signals. When the
input ends, because `weft ssh` or the connection has ended, so does the command.

Lines of standard output that begin with `MARK` are for `weft ssh`; all others are the command's.
Only the standard library is imported before the first of them, so that it tells what is missing.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

MARK: Final = "weft-ssh-report "
#: The command has this long to end after the input has ended, then it is killed.
_PATIENCE_S: Final = 20.0
_POLL_S: Final = 0.05


def main() -> int:
    """Run the command of the order; return its exit code."""
    lines = _lines()
    order = json.loads(next(lines))
    _report(kind="begun", python=sys.version.split()[0])
    folder = tempfile.mkdtemp(prefix="weft-ssh-")
    try:
        return _run(order, folder, lines)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _lines() -> Iterator[str]:
    """Yield the lines of standard input.

    `sys.stdin` cannot be used: a thread that waits in it holds a lock, which the interpreter needs
    at its end.
    """
    received = b""
    while data := os.read(0, 1 << 16):
        *lines, received = (received + data).split(b"\n")
        yield from (line.decode() for line in lines)


def _run(order: dict[str, Any], folder: str, lines: Iterator[str]) -> int:
    for name, text in order["files"].items():
        with open(os.path.join(folder, name), "x", opener=_private) as file:
            file.write(text)
    arguments = [argument.replace("{folder}", folder) for argument in order["arguments"]]
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", *arguments],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        # A signal from a terminal is for `weft ssh`, which passes it on.
        start_new_session=True,
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: process.send_signal(number))
    threading.Thread(target=_follow, args=(process, lines), daemon=True).start()
    if order.get("report"):
        path = Path(order["report"].replace("{folder}", folder))
        threading.Thread(target=_send_back, args=(process, path), daemon=True).start()
    return process.wait()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _follow(process: subprocess.Popen[bytes], lines: Iterator[str]) -> None:
    """Pass signals on; end the command when the input has ended."""
    for line in lines:
        process.send_signal(signal.Signals[line])
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_S)
    process.kill()


def _send_back(process: subprocess.Popen[bytes], path: Path) -> None:
    """Send the file that the command writes when it is ready."""
    while process.poll() is None:
        with contextlib.suppress(OSError, ValueError):
            _report(kind="written", content=json.loads(path.read_text()))
            return
        time.sleep(_POLL_S)


def _report(**what: Any) -> None:
    # One write, so that a line of the command cannot come in between.
    os.write(1, (MARK + json.dumps(what) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
