"""A control plane and two nodes with containers for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kube.containers.enclosure import FOLDER
from tests.kube.containers.needs import missing
from tests.kube.containers.nodes import PLANE_OPTIONS, ContainerNodes, container_nodes
from tests.kube.control_plane import ControlPlane


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """A control plane, in the enclosure; without one the tests are skipped."""
    if FOLDER not in os.environ:
        pytest.skip(missing() or "nodes that run containers: python -m tests.kube.containers")
    with ControlPlane(options=PLANE_OPTIONS) as started:
        yield started


@pytest.fixture(scope="package")
def nodes(plane: ControlPlane) -> Iterator[ContainerNodes]:
    """Two nodes."""
    with container_nodes(plane, Path(os.environ[FOLDER])) as started:
        yield started
