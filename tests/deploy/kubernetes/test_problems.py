"""Why pods do not run: one line for each cause, with what to do."""

from __future__ import annotations

from typing import Any

from weft.deploy.kubernetes.errors import PodsNotReady
from weft.deploy.kubernetes.problems import problems_of


def pod(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": status}


def waiting(reason: str, message: str = "") -> list[dict[str, Any]]:
    return [{"state": {"waiting": {"reason": reason, "message": message}}}]


def test_pods_that_run_or_start_are_no_problem():
    pods = [
        pod("a", phase="Running", containerStatuses=[{"state": {"running": {}}}]),
        pod("b", containerStatuses=waiting("ContainerCreating")),
        pod("c"),
    ]
    assert problems_of(pods, []) == []


def test_one_line_stands_for_all_pods_with_the_same_cause():
    text = 'Back-off pulling image "weft:9"'
    statuses = waiting("ImagePullBackOff", text)
    pods = [pod(f"w-{i}", containerStatuses=statuses) for i in range(3)]
    (line,) = problems_of(pods, [])
    assert line.startswith(f"w-0 and 2 more: ImagePullBackOff: {text}; check the image")


def test_a_pod_that_ends_is_no_problem():
    ending = pod("w", containerStatuses=waiting("CrashLoopBackOff"))
    ending["metadata"]["deletionTimestamp"] = "now"
    assert problems_of([ending], []) == []


def test_a_pod_without_a_place_and_one_without_memory_are_explained():
    pods = [
        pod("a", conditions=[{"reason": "Unschedulable", "message": "0/2 nodes:  too  few"}]),
        pod("b", containerStatuses=[{"lastState": {"terminated": {"reason": "OOMKilled"}}}]),
    ]
    first, second = problems_of(pods, [])
    assert "Unschedulable: 0/2 nodes: too few; ask for less, or add nodes" in first
    assert "OOMKilled" in second
    assert "raise the memory limit" in second


def test_pods_that_a_quota_refuses_are_found_in_the_events():
    event = {
        "type": "Warning",
        "reason": "FailedCreate",
        "message": "pods is forbidden: exceeded quota",
        "involvedObject": {"name": "sim-1"},
    }
    (line,) = problems_of([], [event, event, {**event, "type": "Normal"}])
    assert line == (
        "sim-1: FailedCreate: pods is forbidden: exceeded quota; ask for fewer or smaller pods"
    )


def test_the_error_of_a_wait_has_all_of_them():
    text = str(PodsNotReady(3, 1, 5.0, ["a: one", "b: two"]))
    assert text.endswith("\n  a: one\n  b: two")
