"""Test the chart on nodes that run containers: `python -m tests.kube.containers [ARGUMENTS]`.

Arguments are pytest's, such as `-k drain`. With `--by-hand` no test runs: a shell has kubectl and
helm for two nodes, which end with it. It needs Linux with cgroup v1, root, and programs that
`make tools` installs only when they are named. All runs in namespaces of its own (enclosure.py),
and nothing is left behind.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.kube.containers import enclosure, image
from tests.kube.containers.needs import missing

_TESTS = Path(__file__).parent


def _end(*_: object) -> None:
    """End in order; what cleans up is not ended by a second signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(128 + signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    if {"-h", "--help"} & {*arguments}:
        print(__doc__)
        return 0
    if reason := missing():
        print(reason, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, _end)
    folder = Path(tempfile.mkdtemp(prefix="weft-nodes-"))
    folder.chmod(0o755)
    try:
        image.build(folder)
        command = ["-m", "tests.kube.containers.by_hand"]
        if "--by-hand" not in arguments:
            command = ["-m", "pytest", "-n0", "-p", "no:cacheprovider", str(_TESTS), *arguments]
        return enclosure.run(folder, sys.executable, *command)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
