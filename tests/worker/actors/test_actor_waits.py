"""Waits of the threads of actors that last, until the core has them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from weft.worker.actors.actor_waits import ActorWaits


async def test_a_bug_in_the_report_of_a_wait_ends_the_worker(monkeypatch):
    monkeypatch.setattr("weft.worker.actors.actor_waits._LONG_S", 0.0)
    loop = asyncio.get_running_loop()
    crashed: asyncio.Future[BaseException] = loop.create_future()

    def handle(event: object) -> None:
        raise ZeroDivisionError("of weft")

    executor: Any = SimpleNamespace(waits={}, handle=handle)
    actor: Any = SimpleNamespace(key="a", attempt=7, begun=list, open=list)
    waits = ActorWaits(executor, loop, crashed.set_result)
    waits.begin(actor, None)
    assert "of weft" in str(await asyncio.wait_for(crashed, 10))
