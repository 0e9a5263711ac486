"""`Future.measured`, with real workers."""

from __future__ import annotations

import pytest

import weft

pytestmark = pytest.mark.slow

MB = 10**6


def _burn(cpu_s: float) -> None:
    import time

    end = time.thread_time() + cpu_s
    while time.thread_time() < end:
        pass


def _wait() -> None:
    import threading

    threading.Event().wait(0.3)  # workload


def _burn_and_raise() -> None:
    _burn(0.05)
    raise ValueError("no")


@pytest.fixture(scope="module")
def client():
    with weft.Client(n_workers=1, threads_per_worker=2) as client:
        yield client


def test_a_function_has_the_time_of_its_thread_and_the_peak_of_its_worker(client):
    future = client.submit(_burn, 0.2)
    future.result(60)
    used = future.measured()
    assert 0.19 < used.cpu_s <= used.wall_s + 0.01
    assert used.is_shared
    assert used.peak_rss > 10 * MB
    assert used.written_bytes is not None


def test_a_function_that_waits_uses_no_cpu(client):
    others = client.map(_burn, [0.3], pure=False)
    future = client.submit(_wait)
    client.gather([future, *others])
    used = future.measured()
    assert used.wall_s >= 0.3
    assert used.cpu_s < 0.1


def test_a_program_has_the_numbers_of_its_own_processes(client):
    run = weft.Command("head -c {0}000000 /dev/zero | tail -n 1 | wc -c; sleep 0.2")  # workload
    future = client.submit(run, 100)
    result = future.result(60)
    used = future.measured()
    assert not used.is_shared
    assert used.peak_rss > 90 * MB
    assert used.cpu_s == pytest.approx(result.cpu_s, abs=1e-5)
    assert used.wall_s >= 0.2


def test_a_failed_attempt_is_measured_as_well(client):
    future = client.submit(_burn_and_raise)
    assert isinstance(future.exception(60), ValueError)
    assert future.measured().cpu_s >= 0.05


def test_of_a_tiny_task_only_the_time_is_known(client):
    future = client.submit(abs, -1)
    future.result(60)
    used = future.measured()
    assert used.wall_s is not None
    assert (used.peak_rss, used.read_bytes) == (None, None)


async def test_measured_is_awaited_in_an_asynchronous_client():
    async with weft.Client(processes=False, n_workers=1, asynchronous=True) as client:
        future = client.submit(_burn, 0.05)
        await future
        assert (await future.measured()).cpu_s >= 0.05
