"""Run a kubelet: `python -m tests.kube.kubelet --port ... --node node-1 --node node-2`.

It prints one line when its nodes are registered, and ends with all pods when its standard input
ends.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from pathlib import Path

from tests.kube.api import Api
from tests.kube.kubelet.nodes import Kubelet
from tests.kube.kubelet.server import listen


async def run(kubelet: Kubelet, folder: Path) -> int:
    """Run until standard input ends, or a part has failed."""
    kubelet.start(listen(kubelet, folder))
    print("kubelet: ready", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, ended.set)
    while not ended.is_set() and not kubelet.failed.is_set():
        try:
            await asyncio.wait_for(ended.wait(), 0.2)
        except asyncio.TimeoutError:
            continue
    return int(kubelet.failed.is_set())


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True, help="of the API server")
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--node", action="append", required=True)
    parser.add_argument("--image", action="append", default=["weft"], help="names of the image")
    parser.add_argument("--folder", type=Path, required=True)
    given = parser.parse_args()
    # 1 is PR_SET_PDEATHSIG: no kubelet without the tests that started it.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    api = Api(given.port, os.environ["KUBELET_TOKEN"], given.ca)
    kubelet = Kubelet(api, given.node, {*given.image}, given.folder)
    code = asyncio.run(run(kubelet, given.folder))
    # The launchers end with this process, their containers with them, the network with those.
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
