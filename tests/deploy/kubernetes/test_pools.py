"""Pools of a release: which pods go first when one shrinks, and how one of several adapts."""

from __future__ import annotations

import pytest

from weft.deploy import adapting
from weft.deploy.adapting import Adaptation
from weft.deploy.adaptive import AdaptiveConfig, Sizing
from weft.deploy.kubernetes.cluster import KubeCluster
from weft.deploy.kubernetes.errors import KubernetesError
from weft.deploy.kubernetes.release import DELETION_COST


class SeemingRelease:
    """Kubernetes' answers about a release; it notes what is set."""

    def __init__(self, pods: dict[str, str], **pools: tuple[int, int]) -> None:
        #: {pod: its pool}, and {pool: [pods, processes in each]}
        self.pods = pods
        self.pools = {name: list(size) for name, size in pools.items()}
        #: Costs that the pods have, and all that were set.
        self.costs: dict[str, str | None] = {}
        self.set_costs: list[tuple[str, str | None]] = []
        #: Pods that Kubernetes stops before all others, whatever their marks.
        self.unready: list[str] = []
        #: {pod: phase} of pods that are over, which no Deployment counts
        self.phases: dict[str, str] = {}
        self.n_set = 0

    def listed(self, kind: str, selector: str) -> list[dict]:
        if kind == "deployments":
            return [self._deployment(name, *size) for name, size in self.pools.items()]
        assert kind == "pods"
        wanted = dict(part.split("=") for part in selector.split(",") if "=" in part)
        return [
            {
                "metadata": {"name": name, "annotations": self._annotations(name)},
                "status": {"phase": self.phases.get(name, "Running")},
            }
            for name, pool in self.pods.items()
            if wanted.get("weft.io/pool", pool) == pool
        ]

    def _deployment(self, name: str, replicas: int, n_processes: int) -> dict:
        container = {"args": ["worker", f"--nworkers={n_processes}"]}
        return {
            "metadata": {"name": name, "labels": {"weft.io/pool": name}},
            "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
        }

    def _annotations(self, name: str) -> dict[str, str]:
        cost = self.costs.get(name)
        return {} if cost is None else {DELETION_COST: cost}

    def set_deletion_cost(self, name: str, cost: str | None) -> None:
        if name not in self.pods:
            raise KubernetesError("there is no such pod", 404)
        self.costs[name] = cost
        self.set_costs.append((name, cost))

    def set_replicas(self, deployment: str, n: int) -> None:
        self.pools[deployment][0] = n
        self.n_set += 1
        own = [p for p, pool in self.pods.items() if pool == deployment and p not in self.phases]
        ranks = {name: (name not in self.unready, int(self.costs.get(name) or 0)) for name in own}
        for name in sorted(own, key=ranks.__getitem__)[: max(0, len(own) - n)]:
            del self.pods[name]


class AskingClient:
    """Stands for the client, whose question is answered by the test."""

    def _running(self) -> None:
        return None


def cluster_of(release: SeemingRelease, pool: str = "default") -> KubeCluster:
    cluster = KubeCluster("demo", pool=pool, asynchronous=True)  # which connects when it is awaited
    cluster._kube = release
    cluster._find_pool()
    return cluster


def test_pods_of_other_pools_are_not_marked() -> None:
    release = SeemingRelease(
        {"cpu-a": "cpu", "cpu-b": "cpu", "gpu-a": "gpu"}, cpu=(2, 1), gpu=(1, 1)
    )
    cluster = cluster_of(release, "cpu")
    cluster._mark(cluster.pools["cpu"], 1, ["gpu-a", "cpu-b", "cpu-a"])
    assert list(release.costs) == ["cpu-b"]
    assert int(release.costs["cpu-b"] or 0) < 0


async def test_marks_of_pods_that_stayed_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*question: object):
        yield {"names": ["a", "b", "c", "d"]}

    monkeypatch.setattr("weft.deploy.kubernetes.cluster.ask", answer)
    release = SeemingRelease(dict.fromkeys("abcd", "default"), default=(4, 1))
    release.unready = ["d"]
    cluster = cluster_of(release)
    await cluster._scale_to(AskingClient(), 2)
    # "a" and "b" were marked, and Kubernetes has stopped the pod that was not ready, and "a".
    assert list(release.pods) == ["b", "c"]
    assert release.set_costs[:2] == [("a", "-5"), ("b", "-4")]
    assert [release.costs.get(pod) for pod in "bc"] == [None, None]


async def test_pods_that_were_evicted_are_neither_marked_nor_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def answer(*question: object):
        yield {"names": ["a", "b", "c"]}

    monkeypatch.setattr("weft.deploy.kubernetes.cluster.ask", answer)
    monkeypatch.setattr("weft.deploy.kubernetes.cluster._MARKS_END_S", float("inf"))
    release = SeemingRelease(dict.fromkeys(["x", "y", *"abc"], "default"), default=(3, 1))
    release.phases = {"x": "Failed", "y": "Succeeded"}
    await cluster_of(release)._scale_to(AskingClient(), 2)
    assert list(release.pods) == ["x", "y", "b", "c"]
    assert [pod for pod, _ in release.set_costs] == ["a"]


def test_marks_of_another_user_are_left() -> None:
    release = SeemingRelease(dict.fromkeys("abc", "default"), default=(3, 1))
    cluster = cluster_of(release)
    marks = cluster._mark(cluster.pools["default"], 1, ["a", "b", "c"])
    release.costs["b"] = "-7"
    cluster._unmark(cluster.pools["default"], marks)
    assert release.costs == {"a": None, "b": "-7"}


async def test_a_pod_that_ends_meanwhile_does_not_keep_others_from_being_marked() -> None:
    release = SeemingRelease(dict.fromkeys("ab", "default"), default=(2, 1))
    cluster = cluster_of(release)
    cluster._set_costs({"gone": "-2", "b": "-1"})
    assert release.set_costs == [("b", "-1")]


@pytest.mark.parametrize(
    ("pools", "desired", "default"),
    [
        ({"default": (1, 4)}, 3, 1),  # one pod of four is as near as it gets
        ({"default": (1, 4)}, 5, 2),
        ({"default": (2, 1), "gpu": (4, 1)}, 3, 0),  # the other pool has enough for all
        ({"default": (2, 1), "gpu": (4, 1)}, 9, 5),
        ({"default": (0, 2), "gpu": (1, 1)}, 2, 1),
    ],
)
async def test_a_pool_adapts_once_to_what_the_others_lack(
    pools: dict[str, tuple[int, int]], desired: int, default: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(*question: object):
        yield {"desired_workers": desired, "names": []}

    monkeypatch.setattr(adapting, "ask", answer)
    monkeypatch.setattr("weft.deploy.kubernetes.cluster.ask", answer)
    release = SeemingRelease({}, **pools)
    cluster = cluster_of(release)
    config = AdaptiveConfig(wait_up_s=0.0, wait_down_s=0.0)
    adaptation, sizing = Adaptation(cluster, config), Sizing(config)
    for turn in range(5):
        await adaptation._step(AskingClient(), sizing, float(turn))
    assert release.pools["default"][0] == default
    assert release.n_set == len(adaptation.log) <= 1
    assert cluster.n_workers == sum(pods * n for pods, n in release.pools.values())
