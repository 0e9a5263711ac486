"""Which pods of a pool are marked to go first when it shrinks."""

from __future__ import annotations

from weft.deploy.kubernetes.cluster import KubeCluster


class Pods:
    """Kubernetes' answers about pods; it notes the costs that are set."""

    def __init__(self, pods: dict[str, str]) -> None:
        #: {pod: its pool}
        self.pods = pods
        self.costs: dict[str, int] = {}

    def listed(self, kind: str, selector: str) -> list[dict]:
        assert kind == "pods"
        wanted = dict(part.split("=") for part in selector.split(",") if "=" in part)
        return [
            {"metadata": {"name": name}}
            for name, pool in self.pods.items()
            if wanted.get("weft.io/pool", pool) == pool
        ]

    def set_deletion_cost(self, name: str, cost: int) -> None:
        self.costs[name] = cost


def test_pods_of_other_pools_are_not_marked() -> None:
    cluster = object.__new__(KubeCluster)
    cluster.name = "demo"
    cluster._kube = pods = Pods({"cpu-a": "cpu", "cpu-b": "cpu", "gpu-a": "gpu"})
    cluster._mark("cpu", 1, ["gpu-a", "cpu-b", "cpu-a"])
    assert list(pods.costs) == ["cpu-b"]
    assert pods.costs["cpu-b"] < 0
