"""One control plane for all tests of this folder; nodes for each module.

A module that uses it has `pytestmark = [slow, shares_resources]`: its leaks are judged at its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.kube.control_plane import ControlPlane
from tests.kube.nodes import ProcessNodes, kwok_nodes, process_nodes

_numbers = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the seed of test_release.py."""
    parser.addoption(
        "--kube-seed",
        type=int,
        default=7,
        help="order of troubles in tests/kube; another one is another test (default: 7)",
    )


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """A control plane."""
    with ControlPlane() as started:
        yield started


@pytest.fixture(scope="module")
def seeming_nodes(plane: ControlPlane) -> Iterator[list[str]]:
    """Two nodes of kwok."""
    with kwok_nodes(plane) as names:
        yield names


@pytest.fixture(scope="module")
def nodes(plane: ControlPlane) -> Iterator[ProcessNodes]:
    """Two nodes of a process kubelet."""
    with process_nodes(plane) as started:
        yield started


@pytest.fixture
def namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace of the test's own, in which pods must hold against "restricted"."""
    name = plane.make_namespace(f"test-{next(_numbers)}")
    yield name
    plane.api.delete(f"/api/v1/namespaces/{name}")
