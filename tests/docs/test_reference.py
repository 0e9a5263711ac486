"""The reference has every public name."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

import weft
import weft.deploy
from weft.protocol import errors

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
DIRECTIVE = re.compile(r"^\.\. auto(class|function|module):: (\S+)$", re.MULTILINE)


def described() -> set[str]:
    """Return the names that the pages have, with those of modules that are described whole."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    found = {name for _, name in DIRECTIVE.findall(text)}
    if "weft.protocol.errors" in found:
        found.update(f"weft.{name}" for name in errors.__all__)
    return found


def public() -> list[str]:
    """Return the names that users import; of a module, those that it is there for."""
    names = []
    for name in weft.__all__:
        found = getattr(weft, name)
        if not isinstance(found, ModuleType):
            names.append(f"weft.{name}")
        elif name == "timeline":
            names += [f"weft.timeline.{part}" for part in found.__all__]
        else:
            names.append(f"weft.{name}.get")
    names.remove("weft.__version__")
    names += [f"weft.deploy.{name}" for name in weft.deploy.__all__ if name not in weft.__all__]
    return names


@pytest.mark.parametrize("name", public())
def test_a_public_name_is_in_the_reference(name: str) -> None:
    assert name in described()


@pytest.mark.parametrize("name", ["weft.deploy.adapting.Adaptation"])
def test_a_class_that_a_public_method_returns_is_in_the_reference(name: str) -> None:
    assert name in described()


def test_clusters_are_imported_by_name() -> None:
    assert weft.deploy.LocalCluster is weft.LocalCluster
    assert issubclass(weft.deploy.LocalCluster, weft.deploy.Cluster)
    with pytest.raises(AttributeError, match="has no attribute 'NoCluster'"):
        weft.deploy.NoCluster
