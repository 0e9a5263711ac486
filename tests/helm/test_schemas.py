"""Each of the chart's example values makes objects that Kubernetes accepts, field by field."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.helm.rendering import CHART, LOADER, NEEDS_SCHEMAS, container, render
from tests.tools.find import tool

pytestmark = pytest.mark.slow

VALUES = sorted((CHART / "ci").glob("*-values.yaml"))
#: The oldest that the chart supports, and one of this year.
VERSIONS = ("1.27", "1.34")
#: {group of an API that others serve: (the tool with its definitions, the files with those in use)}
FOREIGN = {
    "keda.sh": ("keda-crds", ("*_scaledobjects.yaml", "*_triggerauthentications.yaml")),
    "monitoring.coreos.com": (
        "prometheus-operator-crds",
        ("*_servicemonitors.yaml", "*_podmonitors.yaml", "*_prometheusrules.yaml"),
    ),
    "cert-manager.io": ("cert-manager-crds", ("crd-certificates.yaml",)),
}


@functools.cache
def rendered(path: Path) -> list[dict[str, Any]]:
    return render(None, f"--values={path}").objects


def group_of(object_: dict[str, Any]) -> str:
    return str(object_["apiVersion"]).partition("/")[0]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_the_objects_of_kubernetes_hold_against_its_strict_schemas(path, version, monkeypatch):
    checker = pytest.importorskip("kubernetes_validate", reason=NEEDS_SCHEMAS)
    # It reads 2 MB of definitions again for each object.
    contents = functools.cache(checker.utils.schema_contents)
    monkeypatch.setattr(checker.utils, "schema_contents", contents)
    for object_ in rendered(path):
        if group_of(object_) not in FOREIGN:
            assert checker.validate(object_, version, strict=True) == version


def strict(schema: Any) -> Any:
    """Return a schema of a definition that refuses fields which it does not name."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items() if key != "format"}
    if "(?" in str(made.get("pattern")):  # flags in the middle are Go's, not Python's
        del made["pattern"]
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and not is_open:
        made.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    return made


@functools.cache
def definitions(group: str) -> dict[tuple[str, str], Any]:
    """Return {(kind, version): schema} of a group."""
    name, patterns = FOREIGN[group]
    folder = tool(name)
    found = {}
    for path in [path for pattern in patterns for path in folder.glob(pattern)]:
        # Those of cert-manager are templates; their first part is about labels.
        lines = [line for line in path.read_text().splitlines() if "{{" not in line]
        spec = yaml.load("\n".join(lines), LOADER)["spec"]
        for one in spec["versions"]:
            schema = strict(one["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            found[spec["names"]["kind"], one["name"]] = schema
    return found


@pytest.mark.parametrize("group", FOREIGN)
def test_the_objects_of_others_hold_against_their_definitions(group):
    objects = [one for path in VALUES for one in rendered(path) if group_of(one) == group]
    assert objects, "no example has one"
    for object_ in objects:
        version = object_["apiVersion"].partition("/")[2]
        jsonschema.validate(object_, definitions(group)[object_["kind"], version])


def test_a_misspelt_field_is_found_in_both_ways():
    checker = pytest.importorskip("kubernetes_validate", reason=NEEDS_SCHEMAS)
    objects = rendered(CHART / "ci" / "default-values.yaml")
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    wrong = yaml.safe_load(yaml.safe_dump(deployment))
    container(wrong["spec"]["template"]["spec"])["argz"] = []
    with pytest.raises(checker.ValidationError, match="argz"):
        checker.validate(wrong, VERSIONS[-1], strict=True)
    objects = rendered(CHART / "ci" / "autoscaling-keda-values.yaml")
    (scaled,) = (one for one in objects if one["kind"] == "ScaledObject")
    wrong = {**scaled, "spec": {**scaled["spec"], "maxReplicas": 4}}
    with pytest.raises(jsonschema.ValidationError, match="maxReplicas"):
        jsonschema.validate(wrong, definitions("keda.sh")["ScaledObject", "v1alpha1"])
