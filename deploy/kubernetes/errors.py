"""Errors of clusters on Kubernetes."""

from __future__ import annotations

from ...protocol.errors import WeftError, WorkerStartTimeout


class KubernetesError(WeftError):
    """Kubernetes refused a request, or could not be asked.

    The text names the request and the object. If a right is missing, it names the verb and the
    resource for which the administrator of the namespace must add a rule to your role.

    Args:
        text: what happened, in one line.
        status: the HTTP status of the answer, 0 = there was none.
    """

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text, status)
        self.text = text
        self.status = status

    def __str__(self) -> str:
        return self.text


class PodsNotReady(WorkerStartTimeout):
    """Workers did not join in time, and Kubernetes reports why their pods do not run.

    Mend what the text names, for instance the image or the requests in the values of the chart, and
    upgrade the release.
    """
