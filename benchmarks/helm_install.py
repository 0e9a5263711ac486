"""Time from `helm install` to the first result of a task, on a Kubernetes of plain processes.

    python -m benchmarks.helm_install --repeat 5

The control plane is running (its start takes some seconds and is not counted); the pods of the
chart, and that of the client, are processes (tests/kube). Counted is all that follows the command:
helm, the controllers, the scheduling and start of three pods, of the client's pod, which is created
as soon as helm returns, its connection, and one task.
"""

from __future__ import annotations

import argparse
import statistics
import time

from tests.kube.chart import Release
from tests.kube.client_pod import ClientPod
from tests.kube.control_plane import ControlPlane
from tests.kube.nodes import ProcessNodes, process_nodes

FIRST = """
import weft
with weft.Client(timeout=60) as client:
    print("first result:", client.submit(sum, [1, 2]).result(timeout=60), flush=True)
"""


def install_once(plane: ControlPlane, nodes: ProcessNodes, number: int) -> dict[str, float]:
    """Install the chart into a namespace of its own; return seconds since the command began."""
    release = Release(plane, plane.make_namespace(f"install-{number}"))
    began = time.perf_counter()
    release.helm("install")
    seconds = {"helm": time.perf_counter() - began}
    with ClientPod(release, nodes, "first", ["python", "-c", FIRST]) as client:
        client.wait_for("first result: 3")
        seconds["first result"] = time.perf_counter() - began
        release.wait_running("scheduler", 1)
        release.wait_running("worker", 2)
        seconds["all ready"] = time.perf_counter() - began
    release.helm("uninstall", "--wait", "--timeout=60s")
    return seconds


def main(arguments: list[str] | None = None) -> None:
    """Print each run and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args(arguments).repeat
    runs = []
    with ControlPlane() as plane, process_nodes(plane) as nodes:
        for number in range(repeat):
            runs.append(install_once(plane, nodes, number))
            print(", ".join(f"{name} {s:.2f} s" for name, s in runs[-1].items()), flush=True)
    medians = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    print("median: " + ", ".join(f"{name} {s:.2f} s" for name, s in medians.items()))


if __name__ == "__main__":
    main()
