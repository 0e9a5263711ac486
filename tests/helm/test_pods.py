"""What users add to the pods of the chart: containers, volumes, accounts."""

from __future__ import annotations

import pytest

from tests.helm.rendering import Rendered, refusal, render

pytestmark = pytest.mark.slow

SCHEDULER = "sim-weft-scheduler"
POOL = "sim-weft-worker-default"
FETCH = {"name": "fetch", "image": "busybox", "command": ["sh", "-c", "cp /seed /data"]}
AGENT = {"name": "agent", "image": "agent:1"}
VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
MOUNT = {"name": "data", "mountPath": "/data"}
SOURCE = {"secretRef": {"name": "keys"}}
#: What a container of the user has without a word of its own: the "restricted" standard admits it.
SECURITY = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def names(containers: list[dict]) -> list[str]:
    return [one["name"] for one in containers]


@pytest.mark.parametrize(
    ("part", "pod", "main"),
    [("scheduler", SCHEDULER, "scheduler"), ("workers.default", POOL, "worker")],
)
def test_a_pod_takes_containers_volumes_and_variables_of_its_users(part, pod, main):
    added = {
        "initContainers": [FETCH],
        "sidecars": [AGENT],
        "extraVolumes": [VOLUME],
        "extraVolumeMounts": [MOUNT],
        "extraEnvFrom": [SOURCE],
    }
    rendered = render({f"{part}.{name}": value for name, value in added.items()})
    spec = rendered.pods()[pod]
    assert spec["initContainers"] == [FETCH | {"securityContext": SECURITY}]
    assert names(spec["containers"]) == [main, "agent"]
    assert spec["containers"][1] == AGENT | {"securityContext": SECURITY}
    assert VOLUME in spec["volumes"]
    assert MOUNT in spec["containers"][0]["volumeMounts"]
    assert spec["containers"][0]["envFrom"] == [SOURCE]


def test_a_container_keeps_a_security_of_its_own():
    own = AGENT | {"securityContext": {"runAsUser": 7}}
    for part, pod in (("scheduler", SCHEDULER), ("workers.default", POOL)):
        spec = render({f"{part}.sidecars": [own]}).pods()[pod]
        assert spec["containers"][1] == own


def test_pools_have_containers_of_their_own_or_those_of_the_defaults():
    rendered = render(
        {
            "workerDefaults.sidecars": [AGENT],
            "workers.plain.sidecars": [],
            "workers.gpu.initContainers": [FETCH],
        }
    )
    pods = rendered.pods()
    assert "initContainers" not in pods[POOL]
    assert names(pods[POOL]["containers"]) == ["worker", "agent"]
    assert names(pods["sim-weft-worker-plain"]["containers"]) == ["worker"]
    assert names(pods["sim-weft-worker-gpu"]["initContainers"]) == ["fetch"]


def accounts(rendered: Rendered) -> tuple[dict[str, str], dict[str, dict]]:
    """Return {pod: its account}, and {account that is made: its annotations}."""
    used = {name: pod["serviceAccountName"] for name, pod in rendered.pods().items()}
    made = {
        one["metadata"]["name"]: one["metadata"].get("annotations", {})
        for one in rendered.objects
        if one["kind"] == "ServiceAccount"
    }
    return used, made


def test_a_pool_may_have_an_account_of_its_own():
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/read"}
    used, made = accounts(
        render(
            {
                "workers.reader.serviceAccount": {"create": True, "annotations": role},
                "workers.writer.serviceAccount": {"create": True, "name": "writes"},
                "workers.other.serviceAccount": {"name": "exists"},
            }
        )
    )
    assert used == {
        SCHEDULER: "sim-weft",
        "sim-weft-test": "sim-weft",
        POOL: "sim-weft",
        "sim-weft-worker-reader": "sim-weft-worker-reader",
        "sim-weft-worker-writer": "writes",
        "sim-weft-worker-other": "exists",
    }
    assert made == {"sim-weft": {}, "sim-weft-worker-reader": role, "writes": {}}


def test_an_account_that_all_pools_would_make_is_refused():
    """Each would be made once for each pool, and helm would install the last one."""
    given = {"create": True, "name": "data"}
    said = refusal({"workerDefaults.serviceAccount": given, "workers.gpu": {}})
    assert "workers.gpu.serviceAccount.name: data is made for the pool default, too" in said
    used, made = accounts(
        render({"workerDefaults.serviceAccount": {"create": True}, "workers.gpu": {}})
    )
    assert {POOL, "sim-weft-worker-gpu"} <= made.keys()
    assert used["sim-weft-worker-gpu"] == "sim-weft-worker-gpu"


def triggers(rendered: Rendered) -> dict[str, tuple[str, int, int]]:
    """Return {pool: (end of the address that is asked, least, most)} of all ScaledObjects."""
    found = {}
    for one in rendered.objects:
        if one["kind"] == "ScaledObject":
            (trigger,) = one["spec"]["triggers"]
            end = trigger["metadata"]["url"].rpartition("/")[2]
            bounds = one["spec"]["minReplicaCount"], one["spec"]["maxReplicaCount"]
            found[one["spec"]["scaleTargetRef"]["name"]] = (end, *bounds)
    return found


GPU = {"taskResources": {"GPU": 1}}


def test_several_pools_follow_the_work_for_their_own_resources():
    values = {
        "autoscaling": {"mode": "keda", "pools": {"default": None, "gpu": {"minReplicas": 0}}},
        "workers.gpu": GPU,
        "workers.fixed": {"replicas": 3},
    }
    rendered = render(values)
    assert triggers(rendered) == {
        POOL: ("scale?resources=", 1, 10),
        "sim-weft-worker-gpu": ("scale?resources=GPU", 0, 10),
    }
    counts = {
        one["metadata"]["name"]: one["spec"].get("replicas")
        for one in rendered.objects
        if one["kind"] == "Deployment"
    }
    assert counts == {POOL: None, "sim-weft-worker-gpu": None, "sim-weft-worker-fixed": 3}
    assert triggers(render({"autoscaling.mode": "keda"})) == {POOL: ("scale", 1, 10)}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"workers.gpu": {}}, "the pool default has the same taskResources"),
        ({"workers.other": {}}, "autoscaling.pools.gpu: there is no such pool in workers"),
        ({"workers.gpu": {**GPU, "enabled": False}}, "workers.gpu.enabled is false"),
        ({"workers.gpu": GPU, "autoscaling.mode": "hpa"}, "needs autoscaling.mode keda"),
        (
            {"workers.gpu": GPU, "autoscaling.pools.gpu.minReplicas": 11},
            "autoscaling.pools.gpu.minReplicas is 11, above",
        ),
    ],
)
def test_pools_that_cannot_be_scaled_each_are_refused(values, said):
    always = {"autoscaling.mode": "keda", "autoscaling.pools": {"default": {}, "gpu": {}}}
    assert said in refusal({**always, **values})
