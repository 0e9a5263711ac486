"""In some event loops the calls of all clients are awaited, also of those that block elsewhere."""

from __future__ import annotations

import asyncio

import dask
import pytest

import weft
from weft.client.shell.in_task import awaiting, is_awaiting

pytestmark = pytest.mark.slow


def test_a_blocking_client_is_awaited_within_and_blocks_afterwards():
    with weft.Client(n_workers=1, processes=False) as client:
        client._running().may_be_asynchronous = True
        future = client.submit(abs, -1)

        async def use():
            assert not is_awaiting()
            with awaiting():
                assert is_awaiting()
                assert client.asynchronous
                assert await asyncio.to_thread(future.result) == 1
                return [await future.result(), await client.gather([future])]

        assert asyncio.run(use()) == [1, [1]]
        assert not client.asynchronous
        assert future.result() == 1


def test_collections_are_computed_at_once_within():
    async def compute():
        with awaiting():
            return dask.delayed(abs)(-2).compute()

    with weft.Client(n_workers=1, processes=False):
        assert asyncio.run(compute()) == 2
