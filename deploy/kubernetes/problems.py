"""The reasons why pods do not run, in the words of Kubernetes, each with a remedy. Pure.

From pods and events as plain dicts (as the API has them); one line for each cause, not for each
pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

#: {reason: what to do}
_HINTS: Final[Mapping[str, str]] = {
    "ImagePullBackOff": "check the image's name and tag, and the pull secret",
    "ErrImagePull": "check the image's name and tag, and the pull secret",
    "InvalidImageName": "check the image's name and tag",
    "CreateContainerConfigError": "a Secret or ConfigMap that the pod names is missing",
    "CrashLoopBackOff": "the program ends again and again: see `kubectl logs`",
    "Unschedulable": "ask for less, or add nodes",
    "FailedMount": "a volume or Secret of the pod is missing",
    "OOMKilled": "raise the memory limit of the pool",
}
_MAX_TEXT: Final = 300
#: Reasons for which a container waits that are no problem.
_NORMAL: Final = frozenset({"ContainerCreating", "PodInitializing", ""})


def problems_of(
    pods: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Return why pods do not run, and why others are not even made, one line for each cause."""
    found: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        if pod["metadata"].get("deletionTimestamp"):
            continue
        name = pod["metadata"]["name"]
        for reason, text in _causes(pod.get("status") or {}):
            found.setdefault((reason, text), []).append(name)
    for event in events:
        # Pods that a quota or an admission rule refuses leave no trace but this.
        reason = event.get("reason") or ""
        if event.get("type") == "Warning" and reason in {"FailedCreate", "FailedMount"}:
            text = _one_line(event.get("message") or "")
            names = found.setdefault((reason, text), [])
            name = (event.get("involvedObject") or {}).get("name", "")
            if name not in names:
                names.append(name)
    return [_line(reason, text, names) for (reason, text), names in found.items()]


def _causes(status: Mapping[str, Any]) -> list[tuple[str, str]]:
    causes = [
        ("Unschedulable", _one_line(condition.get("message") or ""))
        for condition in status.get("conditions") or ()
        if condition.get("reason") == "Unschedulable"
    ]
    for field in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason") or ""
            if reason not in _NORMAL:
                causes.append((reason, _one_line(waiting.get("message") or "")))
            ended = (container.get("lastState") or {}).get("terminated") or {}
            if ended.get("reason") == "OOMKilled":
                causes.append(("OOMKilled", "its container used more memory than its limit"))
    return causes


def _line(reason: str, text: str, names: list[str]) -> str:
    who = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
    hint = _HINTS.get(reason)
    if reason == "FailedCreate":
        hint = "ask for fewer or smaller pods" if "quota" in text else "see the message"
    return f"{who}: {reason}: {text}" + (f"; {hint}" if hint else "")


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + " [...]"
