from __future__ import annotations

import pytest

from weft.graphs.processes.driver import shutdown


@pytest.fixture(scope="module")
def warm():
    """Worker processes that the tests of a module share."""
    yield
    shutdown()
