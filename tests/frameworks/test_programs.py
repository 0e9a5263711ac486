"""tqdm and asyncio programs, as their users write them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import io

import pytest

import weft

pytestmark = [pytest.mark.slow, pytest.mark.shares_resources]


def parabola(x):
    return (x - 2) ** 2


def test_tqdm_counts_what_completes(client, executor, monkeypatch):
    from tqdm import tqdm

    monkeypatch.setattr(tqdm, "monitor_interval", 0)  # it would start a thread for all its bars

    futures = client.map(abs, range(20))
    out = io.StringIO()
    done = [f.result() for f in tqdm(weft.as_completed(futures), total=20, file=out)]
    assert sorted(done) == [*range(20)]
    assert "20/20" in out.getvalue()

    out = io.StringIO()
    assert [*tqdm(executor.map(abs, range(10)), total=10, file=out)] == [*range(10)]
    assert "10/10" in out.getvalue()

    out = io.StringIO()
    real = [executor.submit(abs, i) for i in range(5)]
    completed = concurrent.futures.as_completed(real)
    assert sorted(f.result() for f in tqdm(completed, total=5, file=out)) == [*range(5)]
    assert "5/5" in out.getvalue()


async def test_an_asyncio_program_awaits_calls_and_bounds_them(executor):
    loop = asyncio.get_running_loop()
    limit = asyncio.Semaphore(5)

    async def call(x):
        async with limit:
            return await loop.run_in_executor(executor, parabola, x)

    assert await asyncio.gather(*map(call, range(30))) == [parabola(x) for x in range(30)]
    first = asyncio.wrap_future(executor.submit(parabola, 5))
    done, _ = await asyncio.wait([first], timeout=60)
    assert {future.result() for future in done} == {9}
