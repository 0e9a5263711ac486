"""The statements of docs/kubernetes.md about the chart hold: its values, objects and commands."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import click
import pytest
import yaml

from tests.deploy.test_units import options_of
from tests.docs.pages import ROOT, Page
from tests.helm.rendering import CHART, NEEDS_SCHEMAS, helm, render, template

pytestmark = pytest.mark.slow

NAME = "docs/kubernetes.md"
TEXT = (ROOT / NAME).read_text(encoding="utf-8")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[list[str]]:
    """Return the commands of a program in the blocks for the shell."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    found = [shlex.split(line) for line in lines if line]
    return [words for words in found if words[0] == program]


@pytest.mark.parametrize("text", blocks("yaml"), ids=lambda text: text.splitlines()[0])
def test_each_block_is_accepted_as_values_or_as_an_object(text, tmp_path):
    content = yaml.safe_load(text)
    if "kind" in content:
        checker = pytest.importorskip("kubernetes_validate", reason=NEEDS_SCHEMAS)
        checker.validate(content, "1.34", strict=True)
    else:
        path = tmp_path / "values.yaml"
        path.write_text(text)
        assert render(None, f"--values={path}").objects


def test_the_commands_of_helm_are_those_that_it_takes():
    found = commands("helm")
    assert [words[1] for words in found] == ["install", "test", "upgrade"]
    for words in found:
        sets = [f"--set={words[n + 1]}" for n, word in enumerate(words) if word == "--set"]
        assert template(None, *sets).returncode == 0
        known = helm(words[1], "--help").stdout
        for word in words:
            if word.startswith("--"):
                assert f"{word} " in known, word


def test_the_commands_of_weft_are_accepted():
    page = Page(NAME)
    assert len(page.commands) >= 3
    for words in page.commands:
        try:
            options_of(words)
        except click.exceptions.Exit:  # --help
            continue


def test_each_value_that_the_page_names_is_one_of_the_chart():
    schema = json.loads((CHART / "values.schema.json").read_text())

    def below(part: dict[str, Any], name: str) -> dict[str, Any]:
        if "$ref" in part:
            part = schema["definitions"][part["$ref"].rpartition("/")[2]]
        found = part.get("properties", {}).get(name) or part.get("additionalProperties")
        assert isinstance(found, dict), name
        return found

    named = set(re.findall(r"`((?:[a-zA-Z]+\.)+[a-zA-Z]+)(?:=[^`]*|: [^`]*)?`", TEXT))
    keys_of_secrets = ("tls.crt", "tls.key")
    tops = schema["properties"].keys()
    named = {name for name in named - {*keys_of_secrets} if name.partition(".")[0] in tops}
    assert len(named) > 10
    for name in named:
        part = schema
        for word in name.split("."):
            part = below(part, word)


def test_the_names_in_the_page_are_those_that_the_chart_makes():
    rendered = render({"autoscaling.mode": "keda"})
    made = {one["metadata"]["name"] for one in rendered.objects}
    found = set(re.findall(r"\bsim-weft-[a-z-]+[a-z]", TEXT))
    assert found == {
        "sim-weft-auth",
        "sim-weft-client",
        "sim-weft-scheduler",
        "sim-weft-worker-default",
    }
    assert found <= made
    keys = re.search(r"^\| `sim-weft-auth` \| ([^|]*) \|", TEXT, re.MULTILINE)
    assert keys is not None
    without_keda = render().secret("sim-weft-auth").keys()
    assert set(re.findall("`([^`]*)`", keys[1])) == without_keda
