"""Wrong values are refused by one line that names the value and what it may be."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.helm.rendering import CHART, LOADER, refusal

pytestmark = pytest.mark.slow

CASES: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    # Typing errors, at each depth.
    ({"scheduler.replcas": 3}, ("'/scheduler'", "'replcas' not allowed")),
    ({"worker": {}}, ("''", "'worker' not allowed")),
    ({"workers.default.treads": 2}, ("'/workers/default'", "'treads' not allowed")),
    ({"auth.exisitingSecret": "x"}, ("'/auth'", "'exisitingSecret' not allowed")),
    (
        {"workers.default.tolerations": [{"keys": "gpu"}]},
        ("'/workers/default/tolerations/0'", "'keys' not allowed"),
    ),
    # Wrong numbers and words.
    ({"workers.default.threads": 0}, ("/threads'", "got 0, want 1")),
    ({"workers.default.threads": "many"}, ("/threads'", "'^auto$'")),
    ({"workers.default.processes": 0}, ("/processes'", "got 0, want 1")),
    ({"workers.default.isolate.maxTasks": 0}, ("/maxTasks'", "got 0, want 1")),
    ({"workers.default.isolate.maxDrift": "much"}, ("/maxDrift'", "'much'")),
    ({"workers.default.isolate": {"enable": True}}, ("/isolate'", "'enable' not allowed")),
    ({"workers.default.replicas": -1}, ("/replicas'", "got -1, want 0")),
    ({"workers.default.replicas": "2"}, ("/replicas'", "'^unmanaged$'")),
    ({"workers.default.resources.limits.cpu": 0}, ("/limits/cpu'", "got 0, want 0")),
    ({"workers.default.terminationGracePeriodSeconds": 5}, ("PeriodSeconds'", "got 5, want 30")),
    ({"workers.default.connectTimeout": "10 min"}, ("/connectTimeout'", "'10 min'")),
    ({"scheduler.service.port": 123456}, ("'/scheduler/service/port'", "want 65,535")),
    ({"autoscaling.mode": "keta"}, ("'/autoscaling/mode'", "'none', 'hpa', 'keda'")),
    ({"ingress.hosts": ["https://a.b"]}, ("'/ingress/hosts/0'", "'https://a.b'")),
    ({"auth.existingSecret": "My_Secret"}, ("'/auth/existingSecret'", "'My_Secret'")),
    # Mistakes that only the templates can see.
    ({"workers.GPU.threads": 1}, ("workers.GPU", "lower-case letters")),
    (
        {"autoscaling.mode": "keda", "autoscaling.pool": "gpu"},
        ('autoscaling.pool is "gpu"', "workers (default): name one of them"),
    ),
    (
        {"autoscaling.mode": "hpa", "autoscaling.minReplicas": 20},
        ("minReplicas is 20", "maxReplicas, 10", "lower the other"),
    ),
    (
        {"autoscaling.mode": "hpa", "autoscaling.minReplicas": 0},
        ("minReplicas is 0", "autoscaling.mode to keda"),
    ),
    (
        {"autoscaling.mode": "hpa", "workers.default.enabled": False},
        ("autoscaling.pool", "workers.default.enabled is false"),
    ),
    (
        {
            "workers.default.processes": 4,
            "workerDefaults.resources": {"requests": {"cpu": 4}, "limits": {"cpu": None}},
        },
        ("workers.default has 4 processes", "set workers.default.threads"),
    ),
    (
        {"workerDefaults.resources": {"limits": {"cpu": None}}},
        ("workers.default.threads is auto", "set workers.default.threads, or"),
    ),
    ({"ingress.enabled": True}, ("ingress.hosts is empty", "requests for others are refused")),
    ({"tls.certManager.enabled": True}, ("issuerRef is empty", "name and kind of an issuer")),
    ({"image.repository": ""}, ("image.repository is empty", "registry.example.org/weft")),
    ({"workers.default": None}, ("workers has no pool", "workers.default.enabled=false")),
    ({"workers": None}, ("workers has no pool", "remove the null")),
    # Null removes a value of the chart.
    ({"image": None}, ("at ''", "missing property 'image'")),
    ({"scheduler.service.port": None}, ("'/scheduler/service'", "missing property 'port'")),
    ({"workerDefaults.processes": None}, ("workerDefaults.processes is null", "give a value")),
    ({"workerDefaults.isolate": None}, ("workerDefaults.isolate is null", "give a value")),
    ({"workerDefaults.enabled": None}, ("workerDefaults.enabled is null", "remove that line")),
    ({"workers.default.threads": None}, ("/default/threads'", "got null, want integer")),
    ({"auth.existingClientSecret": "x"}, ("without auth.existingSecret", "give both")),
]


@pytest.mark.parametrize(("values", "words"), CASES, ids=lambda case: next(iter(case)))
def test_a_wrong_value_is_one_line_with_its_place_and_the_remedy(values, words):
    text = refusal(values)
    assert "\n" not in text, text
    for word in words:
        assert word in text, text


def test_every_value_that_the_templates_need_is_required():
    """Null removes a value: without this rule it would be 0, or an error deep in a template."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.load((CHART / "values.yaml").read_text(), LOADER)
    #: Kubernetes, or the platform, decides about these where they are left out.
    free = {"podSecurityContext", "containerSecurityContext", "resources", "affinity"}
    # `weft.checkPool` and its twin look at pools.
    free |= {"podDisruptionBudget", "workers", "workerDefaults"}

    def missing(part: dict[str, Any], values: dict[str, Any], path: str) -> list[str]:
        if "$ref" in part:
            part = schema["definitions"][part["$ref"].rpartition("/")[2]]
        found = []
        for name, value in values.items():
            is_section = isinstance(value, dict) and bool(value)
            if name in free or (isinstance(value, (dict, list)) and not is_section) or value == "":
                continue
            below = part.get("properties", {}).get(name, {})
            if is_section and "properties" not in below:
                continue  # names of the user's own
            if name not in part.get("required", ()):
                found.append(f"{path}{name}")
            found += missing(below, value, f"{path}{name}.") if is_section else []
        return found

    assert missing(schema, values, "") == []


def test_no_object_of_the_schema_takes_names_that_it_does_not_know():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def objects(part: Any) -> list[dict[str, Any]]:
        if isinstance(part, list):
            return [found for one in part for found in objects(one)]
        if not isinstance(part, dict):
            return []
        own = [part] if "properties" in part else []
        return own + [found for one in part.values() for found in objects(one)]

    found = objects(schema)
    assert len(found) > 30
    for one in found:
        if isinstance(one["properties"], dict) and "type" in one:
            is_open = one.get("required") == ["apiVersion", "kind"]
            assert one.get("additionalProperties") is False or is_open, one
