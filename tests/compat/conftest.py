from __future__ import annotations

import pytest

import weft
import weft.compat.distributed

MISSING = "dask.distributed is missing: pip install 'weft[test]'"


@pytest.fixture(scope="session")
def distributed():
    return pytest.importorskip("distributed", reason=MISSING)


@pytest.fixture
def installed(distributed):
    weft.compat.distributed.install()
    yield distributed
    weft.compat.distributed.uninstall()


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, processes=False) as client:
        yield client
