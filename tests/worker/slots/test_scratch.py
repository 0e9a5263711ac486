"""The folders of attempts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import weft


@pytest.fixture(params=[True, False], ids=["processes", "threads"])
def client(request):
    with weft.Client(processes=request.param, n_workers=1, threads_per_worker=2) as client:
        yield client


def test_a_scratch_directory_ends_with_its_attempt(client):
    def work(fails):
        folder = weft.get_scratch_directory()
        (folder / "data").write_text("x")
        assert weft.get_scratch_directory() == folder
        if fails:
            raise ValueError(str(folder))
        return folder

    folder = client.submit(work, False).result()
    failed = Path(str(client.submit(work, True).exception()))
    assert folder != failed
    assert not os.path.exists(folder)
    assert not os.path.exists(failed)
    with pytest.raises(weft.NotInTask):
        weft.get_scratch_directory()
