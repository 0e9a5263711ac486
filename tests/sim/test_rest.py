"""When a run counts as being at rest: nothing is under way but what repeats for ever."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.scheduler.builders import graph
from weft.protocol.wire.levels import Level
from weft.protocol.wire.messages import FetchKeys, Heartbeat, RegisterSupervisor, WantKeys
from weft.protocol.wire.roles import Role
from weft.scheduler.core.events import PeerConnected, PeerSent
from weft.scheduler.core.members.epochs import GiveWay
from weft.worker.core.tasks import NO_FUNCTION, WorkerTask

from .client_node import ClientNode
from .graphs import ACTOR
from .memory import ProcessMemory
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


def test_an_assignment_made_before_a_scheduler_knew_of_an_earlier_one_may_leave_later():
    sim, _ = started()
    client = ClientNode(sim, "alice")
    sim.clients.append(client)
    run_until(sim, lambda: client.session.is_open and not sim.world.n_busy)
    sim.plan.flush_delay = 0.5
    link = client.session.link
    assert link is not None
    node = sim.scheduler
    node._handle(PeerSent(node._peers[link], [graph("x")]))
    node._handle(PeerConnected(77, Role.SUPERVISOR, Level.WORKER))
    old = RegisterSupervisor(supervisor_id="s", session=1, last_epoch=1, facts={}, epoch_proof="")
    node._handle(PeerSent(77, [old]))
    assert node.core.awaits_peers
    node._flush()
    assert not node.core.outboxes


def test_memory_that_is_still_to_be_given_back_is_work():
    """The scheduler learns of it by the next report of the worker, which comes before the rest."""
    sim, worker = started()
    run_until(sim, lambda: not sim.world.n_busy)
    limits: Any = SimpleNamespace(of_new_worker=lambda: 100, linger_s=0.3, nbytes={b"v": 8}, base=1)
    memory = ProcessMemory(worker, limits)
    memory.note_dropped(b"v")
    assert (sim.world.n_busy, memory.resident_nbytes()) == (1, 9)
    run_until(sim, lambda: not sim.world.n_busy)
    assert memory.resident_nbytes() == 1


def test_inputs_are_kept_while_a_client_may_take_up_the_task_that_reads_them():
    sim, worker = started()
    worker.core.released[5] = WorkerTask("x", 5, 0, NO_FUNCTION, b"", 0)
    sim.scheduler.core.awaits_owners = True
    worker.check_at_rest()
    sim.scheduler.core.awaits_owners = False
    with pytest.raises(AssertionError, match="keeps released data"):
        worker.check_at_rest()


class FailingDisks:
    """Disks that take nothing until all is healed."""

    is_on, p_full, p_unwritable, write_s, most = True, 1.0, 0.0, 0.0, 2.0

    def __init__(self) -> None:
        self.rng = SimpleNamespace(random=lambda: 0.0)


def spilling(function: str, share: float) -> tuple[World, Any, WorkerSpill]:
    """Return a worker with one value that takes this part of its memory, and disks that fail."""
    world = World(1)
    value = b"v"
    nbytes = share * LIMIT
    worker: Any = SimpleNamespace(
        world=world,
        memory=SimpleNamespace(limit=LIMIT),
        sim=SimpleNamespace(
            is_healed=False,
            limits=SimpleNamespace(nbytes={value: nbytes}),
            graph=SimpleNamespace(by_key={"x": SimpleNamespace(function=function)}),
        ),
        store={1: value},
        running=[],
        core=SimpleNamespace(by_attempt={1: SimpleNamespace(key="x", pins=0)}),
        session=SimpleNamespace(is_open=False),
        is_alive=True,
        when_awake=lambda *_: True,
    )
    spill = WorkerSpill(worker, FailingDisks())  # type: ignore[arg-type]
    worker.memory.resident_nbytes = lambda: 0 if spill.on_disk else nbytes
    return world, worker, spill


def test_values_that_are_to_leave_a_memory_are_work_until_the_disk_is_tried_again():
    world, worker, spill = spilling("f", 0.65)
    while not world.probes["spill: disk full"]:
        world.step()
    worker.sim.is_healed = True
    world.step()
    while world.n_busy:
        world.step()
    spill.check_at_rest()
    assert [*spill.on_disk] == [1]


def test_a_worker_that_is_paused_since_its_values_cannot_leave_is_at_rest():
    world, _, spill = spilling(ACTOR, 0.9)
    while not spill.plan.stuck:
        world.step()
    world.step()
    while world.n_busy and world.now < 100.0:
        world.step()
    assert world.now < 100.0
    assert spill.plan.is_paused
    spill.check_at_rest()
