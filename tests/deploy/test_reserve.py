"""The memory that is kept back in a container is enough for weft's processes beside the workers."""

from __future__ import annotations

import sys

import pytest

from tests.deploy.daemons import daemon, scheduler
from weft.deploy import settings

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the sizes of shared memory are Linux's: use it"
)


def test_processes_beside_the_workers_take_less_than_is_kept_back_for_them(tmp_path):
    page = ["--metrics-address", "127.0.0.1:0"]
    with (
        scheduler(folder=tmp_path),
        daemon("worker", "--nworkers", "2", "--nthreads", "1", *page, folder=tmp_path) as started,
    ):
        started.wait_for("registered", 2)
        # Proportional: pages that several processes share count once.
        sizes = {
            process.pid: process.memory_full_info().pss
            for process in started.family()
            if not process.cmdline()[0].startswith("weft worker")
        }
    assert len(sizes) == 3, sizes  # the command, the supervisor, the page
    assert 0 < sum(sizes.values()) < settings.CONTAINER_RESERVE, sizes
