"""The worker as a process of its own: `main`, signals, and the record that a kill leaves behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.leaks import wait_until
from tests.worker.server_kit import Scheduler, inc
from weft.protocol.trust.security import Security, new_cluster_id
from weft.protocol.wire.messages import Bye, Stop
from weft.worker.slots.started import read_started

pytestmark = pytest.mark.slow

TOKEN = "a token for one test only"

CHILD = """
import sys
from pathlib import Path
from weft.protocol.trust.security import Security
from weft.worker.config import WorkerConfig
from weft.worker.family.process import main

main(WorkerConfig(
    scheduler=sys.argv[1],
    security=Security(token=sys.argv[2].encode()),
    worker_id="w",
    started_path=Path(sys.argv[3]),
))
"""

Start = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
async def scheduler() -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(Security(token=TOKEN.encode(), cluster_id=new_cluster_id()))
    await scheduler.start("tcp://127.0.0.1:0")
    yield scheduler
    await scheduler.stop()
    await asyncio.get_running_loop().shutdown_default_executor()


@pytest.fixture
async def process(scheduler: Scheduler, tmp_path: Path) -> AsyncIterator[subprocess.Popen[str]]:
    assert scheduler.listener is not None
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, scheduler.listener.address, TOKEN, str(tmp_path / "started")],
        cwd=Path(__file__).parents[3],
        stderr=subprocess.PIPE,
        text=True,
    )
    await scheduler.until(lambda: scheduler.connections)
    yield process
    if process.poll() is None:
        process.kill()
        process.communicate()


def say_and_hang(path):
    import time
    from pathlib import Path

    Path(path).touch()
    time.sleep(100)  # workload: the test kills it


async def ends(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return exit code and output, once the process has ended."""
    _, printed = await asyncio.to_thread(process.communicate, timeout=20)
    return process.returncode, printed


async def test_a_worker_process_without_failures_prints_nothing(scheduler, process):
    scheduler.connections["w"].send([scheduler.task(inc, 1, key="x")])
    assert await scheduler.until_done(1) == {1: 2}
    scheduler.connections["w"].send([Stop(reason="done")])
    assert await ends(process) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_a_worker_process_in_order(scheduler, process, number):
    process.send_signal(number)
    assert await ends(process) == (0, "")
    await scheduler.until(lambda: scheduler.of(Bye))
    assert number.name in scheduler.of(Bye)[0].reason


async def test_after_a_kill_the_file_has_the_running_attempts(scheduler, process, tmp_path):
    scheduler.connections["w"].send(
        [
            scheduler.task(inc, 1, key="x"),
            scheduler.task(say_and_hang, str(tmp_path / "there"), key="y"),
            scheduler.task(inc, 1, key="z"),
        ]
    )
    await asyncio.to_thread(wait_until, (tmp_path / "there").exists)
    process.kill()
    assert await ends(process) == (-signal.SIGKILL, "")
    assert read_started(tmp_path / "started") == [2]
    await scheduler.until(lambda: not scheduler.connections)
