"""A plugin of pytest for Parsl's own tests: what their conftest.py has, on a cluster of weft.

That conftest.py is for an older pytest, so it is left out (`--noconftest`).
"""

from __future__ import annotations

import parsl
import pytest
from parsl.config import Config

from weft.compat.parsl import WeftExecutor


@pytest.fixture(scope="session", autouse=True)
def loaded():
    with parsl.load(Config(executors=[WeftExecutor(max_workers=2)])):
        yield


@pytest.fixture
def tmpd_cwd(tmp_path):
    return tmp_path


@pytest.fixture
def setup_data(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for i in range(5):
        (data / f"{i}.txt").write_text(f"{i}\n")
    return data
