"""Start a control plane with two process nodes, for use by hand: `python -m tests.kube`."""

from __future__ import annotations

import signal

from tests.kube.control_plane import ControlPlane
from tests.kube.nodes import process_nodes


def main() -> None:
    """Run until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ControlPlane() as plane, process_nodes(plane) as nodes:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        print(f"# logs: {plane.folder}, {nodes.folder}; Ctrl-C ends it", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("# ended")


if __name__ == "__main__":
    main()
