"""`Future.attempts`, with real workers."""

from __future__ import annotations

import os
import signal

import pytest

import weft

pytestmark = pytest.mark.slow


def raise_once(path):
    if not os.path.exists(path):
        with open(path, "w"):
            raise ValueError("not yet")
    return "done"


def die_once(path):
    if not os.path.exists(path):
        open(path, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "done"


def test_a_task_that_raised_once_has_two_attempts(cluster, tmp_path):
    with weft.Client(cluster) as client:
        future = client.submit(raise_once, str(tmp_path / "raised"), retries=1)
        assert future.result(60) == "done"
        first, second = future.attempts()
        assert first.end == "raised ValueError: not yet"
        assert second.end == "finished"
        names = {worker["name"] for worker in client.scheduler_info()["workers"].values()}
        assert {first.worker, second.worker} <= names
        future.release()
        with pytest.raises(ValueError, match="was released"):
            future.attempts()


def test_a_task_whose_worker_died_has_its_death(tmp_path):
    with weft.Client(n_workers=1, threads_per_worker=1) as client:
        future = client.submit(die_once, str(tmp_path / "died"))
        assert future.result(60) == "done"
        first, second = future.attempts()
        assert "the worker died" in first.end
        assert "SIGKILL" in first.end
        assert second.end == "finished"


async def test_attempts_are_awaited_in_an_asynchronous_client(cluster):
    async with weft.Client(cluster, asynchronous=True) as client:
        future = client.submit(abs, -1)
        assert await future == 1
        (attempt,) = await future.attempts()
        assert attempt.end == "finished"
