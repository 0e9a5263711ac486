"""When a run counts as being at rest: nothing is under way but what repeats for ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.protocol.wire.messages import FetchKeys, Heartbeat, WantKeys
from weft.scheduler.core.members.epochs import GiveWay

from .client_node import ClientNode
from .spilling import WorkerSpill
from .test_session import run_until, started
from .world import World

LIMIT = 1_000_000


def test_a_flush_of_keep_alives_is_work_when_an_answer_joins_them():
    sim, _ = started()
    client = ClientNode(sim, "alice")
    sim.clients.append(client)
    run_until(sim, lambda: client.session.is_open and not sim.world.n_busy)
    sim.plan.flush_delay = 0.5
    link = client.session.link
    assert link is not None
    sim.scheduler.on_messages(link, [Heartbeat()])
    run_until(sim, lambda: bool(sim.scheduler.core.outboxes))
    assert not sim.world.n_busy
    sim.scheduler.on_messages(link, [FetchKeys(request=1, keys=["none"]), WantKeys(keys=[])])
    run_until(sim, lambda: len(sim.scheduler.core.outboxes[sim.scheduler._peers[link]]) > 1)
    assert sim.world.n_busy


def test_another_scheduler_is_started_after_one_that_gave_way_to_one_that_was_ended():
    """The newer one was ended with the faults; its peers come to the one that is left later."""
    sim, worker = started()
    run_until(sim, lambda: bool(sim.scheduler.core.workers))
    sim.is_healed = True
    sim.scheduler.core.before.append(GiveWay(sim.scheduler.core.epoch + 1))
    sim.scheduler._flush()
    run_until(sim, lambda: not worker.session.is_open)
    run_until(sim, lambda: worker.session.is_open)
    assert sim.scheduler.is_alive
    assert not sim.scheduler.gave_way


class FailingDisks:
    """Disks that take nothing until all is healed."""

    is_on, p_full, p_unwritable, write_s, most = True, 1.0, 0.0, 0.0, 2.0

    def __init__(self) -> None:
        self.rng = SimpleNamespace(random=lambda: 0.0)


def test_values_that_are_to_leave_a_memory_are_work_until_the_disk_is_tried_again():
    world = World(1)
    value = b"v"
    spec = SimpleNamespace(function="f")
    worker: Any = SimpleNamespace(
        world=world,
        memory=SimpleNamespace(limit=LIMIT, resident_nbytes=lambda: 0),
        sim=SimpleNamespace(
            is_healed=False,
            limits=SimpleNamespace(nbytes={value: 0.65 * LIMIT}),
            graph=SimpleNamespace(by_key={"x": spec}),
        ),
        store={1: value},
        running=[],
        core=SimpleNamespace(by_attempt={1: SimpleNamespace(key="x", pins=0)}),
        is_alive=True,
        when_awake=lambda *_: True,
    )
    spill = WorkerSpill(worker, FailingDisks())  # type: ignore[arg-type]
    while not world.probes["spill: disk full"]:
        world.step()
    worker.sim.is_healed = True
    world.step()
    while world.n_busy:
        world.step()
    spill.check_at_rest()
    assert [*spill.on_disk] == [1]
