"""Runs the commands of docs/cluster.md, and writes their output.

    python -m tests.docs.cluster_page

Each block of the page is a list of `$ weft ...` lines, with the output of each below it. All of
them are run on one cluster, in the order of the page. What differs from run to run is written in
the same way each time (paths, names of machines, process ids), or masked for comparison (numbers).
"""

from __future__ import annotations

import contextlib
import logging
import re
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

import weft
from tests.deploy.daemons import Daemon, daemon, file_of, run
from tests.deploy.terminal import terminal
from tests.docs.exit_table import exit_table

PAGE = Path(__file__).parents[2] / "docs" / "cluster.md"
MARK = "<!-- exit codes: from deploy/cli/exits.py -->\n"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"\d[\d., ]*(?:(?:ms|s|min|h|d|B|KiB|MiB|GiB|TiB)\b ?|% ?)*")
_TOP = (100, 16)
#: The version that the page names.
_VERSION = "0.1.0.dev0+g8830ca182"


def blocks(text: str) -> list[str]:
    """Return the commands and outputs of the page."""
    return [match[1] for match in _BLOCK.finditer(text)]


def commands(block: str) -> list[str]:
    """Return the commands of a block."""
    return [line[2:] for line in block.splitlines() if line.startswith("$ ")]


def masked(command: str, output: str) -> list[str]:
    """Return the words of an output without what differs between two runs or machines."""
    if command == "weft doctor":
        # The levels are those of this machine; the checks are the same everywhere.
        return re.findall(r"^  (?:ok|warning|failed) +([\w/ ]+?)  ", output, re.MULTILINE)
    if command.startswith("weft explain "):
        # The times that are 0 are left out.
        return output.partition("\n")[0].split()
    text = re.sub(r"^ *(ok|warning|error):? .*\n", "", output, flags=re.MULTILINE)
    # The small lines of the last minutes are there as soon as there are some samples.
    text = re.sub(r"^.*[▁-█].*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\bweft \d[\w.+]*", "weft VERSION", text)
    text = re.sub(r"\b[0-9a-f]{8,}\b", "HEX", text)
    text = re.sub(r"[━─]+", "BAR", text)
    lines = [" ".join(_NUMBER.sub("# ", line).split()) for line in text.splitlines()]
    if command == "weft status":
        # Functions come in the order of the time that they took.
        lines.sort()
    words = " ".join(" ".join(lines).split())
    words = re.sub(r"#( #)+", "#", words).replace("up to # late", "not late")
    return words.split()


# --- The cluster of the page ----------------------------------------------------------------------


def warn(text: str) -> str:
    """Log a warning: a task of the page."""
    logging.getLogger("mine").warning(text)
    return text


def fail(text: str) -> None:
    """Raise an error: a task of the page."""
    raise ValueError(text)


class Scene:
    """The cluster on which the commands are run, in a folder of its own."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._client: weft.Client | None = None
        #: {port: that of the page}
        self._ports: dict[str, str] = {}

    def output_of(self, command: str) -> str:
        """Run a command, and return what it prints, as an example on another machine."""
        _, name, *arguments = shlex.split(command)
        if name == "scheduler":
            started = self._start(name, "--port", "0", *arguments)
            started.wait_for("status page ")
            self._file = file_of(started)
            return self._example(started.out)
        if name == "worker":
            started = self._start(name, "--nthreads", "1", *arguments)
            started.wait_for("registered", 2)
            lines = sorted(re.findall(r"weft.worker INFO: (.* registered at .*)", started.err))
            return self._example("\n".join(lines) + "\n")
        if name == "top":
            width, height = _TOP
            with terminal(name, folder=self._folder, columns=width, lines=height) as top:
                return self._example(top.wait_for("node1-0", "node1-1", "scheduler ") + "\n")
        if name == "stop":
            self._leave()
        done = run(name, *arguments, folder=self._folder)
        # A loaded machine may degrade a cluster.
        assert done.returncode in (0, name == "status"), f"{command}: {done.stdout}{done.stderr}"
        if name == "selftest":
            self._compute()
        return self._example(done.stdout)

    def _start(self, *arguments: str) -> Daemon:
        return self._stack.enter_context(daemon(*arguments, folder=self._folder))

    def _compute(self) -> None:
        """Run some tasks, whose results a client wants."""
        client = self._stack.enter_context(
            weft.Client(connection_file=self._file, name="alice", set_as_default=False)
        )
        self._client = client
        client.wait_for_workers(2, timeout=60)
        parts = client.map(abs, range(-3, 0))
        self._kept = parts
        # One after the other: what happens to each is the same in each run.
        client.gather(parts)
        on = "node1-0"
        self._kept.append(client.submit(sum, parts, key="total", workers=on))
        self._kept[-1].result(60)
        for text in ("the disk is nearly full", "the second one"):
            self._kept.append(client.submit(warn, text, workers=on))
            self._kept[-1].result(60)
        self._kept.append(client.submit(fail, "no such row", workers=on))
        self._kept[-1].exception(60)

    def _leave(self) -> None:
        assert self._client is not None
        self._client.close()

    def _example(self, text: str) -> str:
        """Return the text as if it were of a user, on a machine, with the default ports."""
        import platform

        text = re.sub(r"\b(tcp|http)://127\.0\.0\.1:(\d+)", self._named, text)
        text = text.replace(str(self._folder / "run"), "/home/alice")
        text = text.replace(weft.__version__, _VERSION)
        text = re.sub(r"process \d+", "process 4711", text)
        return re.sub(rf"\b{re.escape(platform.node())}\b", "node1", text)

    def _named(self, match: re.Match[str]) -> str:
        """Name the scheduler's port 8786, and those of the workers 40001 and so on."""
        if match[1] == "http":
            return "http://127.0.0.1:8787"
        if match[2] == "8786":  # as a default, in a text
            return match[0]
        n = len(self._ports)
        port = self._ports.setdefault(match[2], f"{40000 + n}" if n else "8786")
        return f"tcp://127.0.0.1:{port}"


@contextlib.contextmanager
def scene() -> Iterator[Scene]:
    """A cluster that has ended after the block."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        yield Scene(Path(folder), stack)


def page() -> str:
    """Return the whole page: the text as it is, with the outputs of now."""
    text = PAGE.read_text(encoding="utf-8").partition(MARK)[0] + MARK + "\n" + exit_table()
    with scene() as cluster:

        def fresh(match: re.Match[str]) -> str:
            parts = [f"$ {one}\n{cluster.output_of(one)}" for one in commands(match[1])]
            return "```console\n" + "".join(parts) + "```"

        return _BLOCK.sub(fresh, text)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
