"""What the objects of a release say, whoever has got them."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from weft.deploy.kubernetes.release import deletion_costs, release_of
from weft.protocol.errors import ConfigError
from weft.protocol.trust.connection_file import ConnectionFile
from weft.protocol.trust.security import Security

ID = "ab" * 16


def service(release: str, secret: str, target: object = "tls-weft") -> dict[str, Any]:
    ports = [
        {"name": "tls-weft", "port": 18786, "targetPort": target},
        {"name": "https-pages", "port": 18787, "targetPort": "https-pages"},
    ]
    return {
        "metadata": {
            "name": f"{release}-weft-scheduler",
            "namespace": "lab",
            "labels": {"app.kubernetes.io/instance": release},
            "annotations": {"weft.io/client-secret": secret},
        },
        "spec": {"ports": ports},
    }


def headless(release: str) -> dict[str, Any]:
    made = service(release, "")
    del made["metadata"]["annotations"]
    return made


SERVICES = [headless("sim"), service("other", "x"), service("sim", "mine")]


def encoded(**data: str) -> dict[str, str]:
    return {
        key.replace("_", "-").replace("--", "."): base64.b64encode(text.encode()).decode()
        for key, text in data.items()
    }


def found(name: str = "sim") -> Any:
    return release_of(SERVICES, name, "namespace 'lab'", "Look elsewhere")


def test_a_release_is_known_by_the_service_that_names_its_secret() -> None:
    release = found()
    assert (release.service, release.secret) == ("sim-weft-scheduler", "mine")
    assert release.address == "tls://sim-weft-scheduler.lab.svc:18786"
    assert release.pages == "https://sim-weft-scheduler.lab.svc:18787/"
    with pytest.raises(
        ConfigError, match=r"'sin' .* in namespace 'lab'; releases there: other, si"
    ):
        found("sin")


def test_a_port_of_the_service_leads_to_that_of_the_pod() -> None:
    ports = [{"name": "tls-weft", "containerPort": 8786}]
    pod = {"spec": {"containers": [{"name": "sidecar"}, {"ports": ports}]}}
    assert found().pod_port(pod, 0) == 8786
    assert found().pod_port(pod, 1) == 18787
    numbered = release_of([service("sim", "mine", 7)], "sim", "", "")
    assert numbered.pod_port(pod, 0) == 7


def test_a_connection_is_made_from_either_form_of_secret() -> None:
    security = Security(b"t" * 43, bytes.fromhex(ID))
    own = ConnectionFile.of_this_process(security, ["tls://a:1"]).to_text()
    token, identity = {"client_token": "t" * 43 + "\n"}, {"cluster_id": ID}
    for data in (encoded(client__json=own), encoded(**token, **identity)):
        file = found().connection(data, "tls://here:2", "https://here:3/")
        assert (file.cluster_id, file.token) == (ID, "t" * 43)
        assert (file.addresses, file.dashboard) == (("tls://here:2",), "https://here:3/")
    assert found().connection(encoded(**token), "tls://here:2", "").cluster_id == ""


@pytest.mark.parametrize(
    "data",
    [
        {},
        encoded(view_token="x"),
        encoded(client__json="{"),
        encoded(client_token="x" * 43, cluster_id="no number"),
        {"client-token": "not base64!"},
    ],
)
def test_a_secret_that_is_not_one_of_weft_is_an_error_with_its_name(data: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="Secret 'users' in namespace 'lab'") as caught:
        found().connection(data, "tls://here:2", "", "users")
    assert "weft secret" in str(caught.value)


def pod(name: str, cost: str | None = None) -> dict[str, Any]:
    key = "controller.kubernetes.io/pod-deletion-cost"
    return {"metadata": {"name": name, "annotations": {} if cost is None else {key: cost}}}


def test_pods_whose_end_costs_least_are_marked_and_old_marks_go() -> None:
    pods = [pod("a", "-3"), pod("b"), pod("c", "-1"), pod("d")]
    # Of two workers in a pod the dearer one counts.
    order = ["c-0", "b-0", "a-0", "d-0", "c-1"]
    assert deletion_costs(pods, 1, order, None) == {"a": None, "b": "-5", "c": None}
    assert deletion_costs(pods, 0, [], None) == {"a": None, "c": None}
    assert deletion_costs(pods, 0, [], "-3") == {"b": "-3", "c": "-3", "d": "-3"}
    # A pod without a worker goes before all others.
    assert deletion_costs([pod("new"), *pods[1:2]], 1, order, None) == {"new": "-7"}
