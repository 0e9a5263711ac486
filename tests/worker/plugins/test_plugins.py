"""Orders about plugins that outlive the session in which they came."""

from __future__ import annotations

import asyncio
import threading

from tests.worker.server_kit import inc
from weft.protocol.values.serialize import dumps
from weft.protocol.wire.messages import PluginDone, SetUpPlugin, TearDownPlugin

NOTES: list[str] = []
ENTERED, GO_ON = threading.Event(), threading.Event()


class Noted:
    """A plugin that notes its steps."""

    def __init__(self, name):
        self.name = name

    def setup(self, worker):
        NOTES.append(f"setup {self.name}")

    def teardown(self, worker):
        NOTES.append(f"teardown {self.name}")


class Gated:
    """A plugin whose set-up goes on until the test lets it end."""

    def __init__(self, fails):
        self.fails = fails

    def setup(self, worker):
        ENTERED.set()
        assert GO_ON.wait(20)
        if self.fails:
            raise ValueError("no")


def set_up(request, name, plugin):
    blobs = [dumps(plugin)]
    return SetUpPlugin(request=request, plugin=name, name=name, blobs=blobs, is_required=True)


async def begin_gated(cluster, worker, fails):
    ENTERED.clear()
    GO_ON.clear()
    cluster.scheduler.send(worker, set_up(1, "gated", Gated(fails)))
    assert await asyncio.get_running_loop().run_in_executor(None, ENTERED.wait, 20)


async def begin_next_session(cluster, worker):
    scheduler = cluster.scheduler
    scheduler.connections[worker.config.worker_id].abort()
    await scheduler.until(lambda: len(scheduler.registrations) == 2)
    await asyncio.wait_for(worker.registered.wait(), 20)


async def until_answered(scheduler, request):
    def answers():
        return [done.info for done in scheduler.of(PluginDone) if done.request == request]

    await scheduler.until(answers)
    assert answers() == [{}]


async def test_a_plugin_that_only_an_earlier_session_required_does_not_end_the_worker(cluster):
    scheduler = cluster.scheduler
    worker = await cluster.start()
    await begin_gated(cluster, worker, fails=True)
    await begin_next_session(cluster, worker)
    GO_ON.set()
    scheduler.send(worker, set_up(5, "next", Noted("next")))
    await until_answered(scheduler, 5)
    scheduler.send(worker, scheduler.task(inc, 1, key="x"))
    assert (await scheduler.until_done(1))[1] == 2
    assert not cluster.runs[0].done()


async def test_an_ended_session_sets_nothing_more_up_and_what_it_ended_is_torn_down(cluster):
    NOTES.clear()
    scheduler = cluster.scheduler
    worker = await cluster.start()
    scheduler.send(worker, set_up(1, "old", Noted("old")))
    await until_answered(scheduler, 1)
    await begin_gated(cluster, worker, fails=False)
    scheduler.send(
        worker,
        TearDownPlugin(request=3, plugin="old"),
        set_up(4, "unwanted", Noted("unwanted")),
        # Its answer shows that the orders before it have come.
        scheduler.task(inc, 1, key="x"),
    )
    await scheduler.until_done(1)
    await begin_next_session(cluster, worker)
    GO_ON.set()
    scheduler.send(worker, set_up(5, "gated", Gated(fails=True)), set_up(6, "next", Noted("next")))
    await until_answered(scheduler, 5)
    await until_answered(scheduler, 6)
    assert NOTES == ["setup old", "teardown old", "setup next"]
    assert [*worker.executor.context.plugins] == ["gated", "next"]
