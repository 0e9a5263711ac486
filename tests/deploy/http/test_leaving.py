"""A viewer that leaves: its loop may end at once."""

from __future__ import annotations

import asyncio
import gc
import os
import signal

import pytest

from tests.deploy.daemons import file_of, scheduler
from weft.deploy.http.viewer import Viewer
from weft.protocol.trust import finding

pytestmark = pytest.mark.slow


def test_no_socket_is_left_though_the_scheduler_does_not_answer_the_end_of_tls(tmp_path):
    with scheduler("--protocol", "tls", folder=tmp_path) as started:
        found = finding.find(str(file_of(started)), None, {})

        async def look() -> None:
            viewer = Viewer()
            await viewer.open(found.addresses[0], found.to_security())
            assert (await viewer.ask_all("overview", timeout_s=60))["n_clients"] == 0
            os.kill(started.process.pid, signal.SIGSTOP)
            await viewer.leave()

        try:
            asyncio.run(look())
        finally:
            os.kill(started.process.pid, signal.SIGCONT)
        gc.collect()  # a transport that is left warns, which is an error
