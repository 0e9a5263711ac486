"""A plugin of pytest for papermill's own tests: its notebooks run on a cluster of weft."""

from __future__ import annotations

import pytest
from papermill.engines import papermill_engines

import weft
from weft.compat.papermill import WeftEngine


@pytest.fixture(scope="session", autouse=True)
def engine():
    with weft.Client(n_workers=1, threads_per_worker=1):
        papermill_engines.register(None, WeftEngine)
        yield
