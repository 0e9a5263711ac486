"""Pools of a release: which pods go first when one shrinks, and how one of several adapts."""

from __future__ import annotations

import pytest

from weft.deploy import adapting
from weft.deploy.adapting import Adaptation
from weft.deploy.adaptive import AdaptiveConfig, Sizing
from weft.deploy.kubernetes.cluster import KubeCluster
from weft.deploy.kubernetes.errors import KubernetesError
from weft.deploy.kubernetes.release import DELETION_COST
from weft.protocol.errors import QuestionFailed


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


def answering(
    monkeypatch: pytest.MonkeyPatch, order: list[str], kept: dict[str, str] | None = None
) -> list[tuple[str, dict]]:
    """Answer the questions about workers of these names; return what is asked, as it is asked.

    `kept` are the names of workers that must not go; None = the scheduler does not know that.
    """
    asked: list[tuple[str, dict]] = []

    async def answer(_engine: object, name: str, arguments: dict | None = None):
        arguments = arguments or {}
        asked.append((name, arguments))
        if name == "leaving_order":
            yield {"names": order}
        elif name == "leaving_losses":
            if kept is None:
                raise QuestionFailed("there is no such question", "the scheduler")
            why = [next((kept[w] for w in group if w in kept), "") for group in arguments["groups"]]
            free = [i for i, reason in enumerate(why) if not reason]
            rows = [[i, reason] for i, reason in enumerate(why) if reason]
            yield {"leaving": free[: arguments["n"]], "kept": rows}
        elif name == "workers":
            yield {"workers": {f"tcp://{w}": {"name": w, "id": f"id of {w}"} for w in order}}
        else:
            assert name == "retire"
            yield {"workers": {}}

    monkeypatch.setattr("weft.deploy.kubernetes.cluster.ask", answer)
    monkeypatch.setattr("weft.client.cluster.scaling.ask", answer)
    return asked


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
    answering(monkeypatch, [*"abcd"], kept={})
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
    answering(monkeypatch, [*"abc"])
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
        yield {"desired_workers": desired, "names": [], "leaving": [], "kept": []}

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


# --- What only the workers of a pod have ----------------------------------------------------------


async def test_pods_that_have_what_others_have_no_room_for_are_kept_and_others_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answering(monkeypatch, ["a-0", "a-1", "b-0", "b-1", "c-0", "c-1"], {"a-1": "1 actor"})
    release = SeemingRelease(dict.fromkeys("abc", "default"), default=(3, 2))
    cluster = cluster_of(release)
    assert await cluster._scale_to(AskingClient(), 3) == []
    assert list(release.pods) == ["a", "c"], "b goes in the place of a"
    question = {"groups": [["a-0", "a-1"], ["b-0", "b-1"], ["c-0", "c-1"]], "n": 1}
    assert asked[1] == ("leaving_losses", question)
    assert await cluster._scale_to(AskingClient(), 0) == ["a: 1 actor"] * 2
    assert list(release.pods) == ["a"]
    assert cluster.n_workers == 2
    assert "retire" not in dict(asked)
    assert release.costs.get("a") is None


async def test_a_pool_of_which_all_is_kept_is_not_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, ["a"], {"a": "no other worker stays"})
    release = SeemingRelease({"a": "default"}, default=(1, 1))
    cluster = cluster_of(release)
    assert await cluster._scale_to(AskingClient(), 0) == ["a: no other worker stays"]
    assert (release.n_set, release.costs) == (0, {})


async def test_drop_lets_all_pods_go_and_their_workers_wait_for_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = answering(monkeypatch, ["a", "b", "c"], {"a": "1 actor"})
    release = SeemingRelease(dict.fromkeys("abc", "default"), default=(3, 1))
    assert await cluster_of(release)._scale_to(AskingClient(), 1, "drop") == []
    assert list(release.pods) == ["c"]
    assert "leaving_losses" not in dict(asked)
    order = dict(asked)["retire"]
    assert (order["workers"], order["losses"]) == (["id of a", "id of b"], "drop")
    assert order["wait"] is False


async def test_none_goes_where_some_are_kept_and_kubernetes_would_choose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forbidden(name: str, cost: str | None) -> None:
        raise KubernetesError("you may not patch pods", 403)

    release = SeemingRelease(dict.fromkeys("abc", "default"), default=(3, 1))
    monkeypatch.setattr(release, "set_deletion_cost", forbidden)
    answering(monkeypatch, ["a", "b", "c"], {"b": "1 actor"})
    assert await cluster_of(release)._scale_to(AskingClient(), 1) == ["b: 1 actor"] * 2
    assert list(release.pods) == ["a", "b", "c"]
    answering(monkeypatch, ["a", "b", "c"], {})
    assert await cluster_of(release)._scale_to(AskingClient(), 1) == []
    assert len(release.pods) == 1


async def test_an_adaptation_asks_again_for_pods_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nothing(*question: object):
        yield {"desired_workers": 0}

    kept = {"a": "no other worker stays"}
    monkeypatch.setattr(adapting, "ask", nothing)
    answering(monkeypatch, ["a", "b"], kept)
    release = SeemingRelease(dict.fromkeys("ab", "default"), default=(2, 1))
    cluster = cluster_of(release)
    config = AdaptiveConfig(wait_up_s=0.0, wait_down_s=0.0)
    adaptation, sizing = Adaptation(cluster, config), Sizing(config)
    for turn in range(3):
        await adaptation._step(AskingClient(), sizing, float(turn))
    assert [n for _, n in adaptation.log] == [1]
    kept.clear()
    for turn in range(3, 6):
        await adaptation._step(AskingClient(), sizing, float(turn))
    assert [n for _, n in adaptation.log] == [1, 0]
    assert not release.pods
