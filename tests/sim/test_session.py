"""The nodes' sessions: the machine of the product over simulated links."""

from __future__ import annotations

from collections.abc import Callable

from weft.protocol.wire.session import MISSED_HEARTBEATS

from .links import Timing
from .simulation import Simulation
from .worker_node import WorkerNode


def started() -> tuple[Simulation, WorkerNode]:
    """Return a world with nothing but a scheduler and a worker that has registered."""
    sim = Simulation(1)
    sim.plan.timing = Timing(latency=0.001, jitter=0.0, p_stall=0.0, stall=0.0)
    worker = sim.add_worker("w", sim.new_address(), {}, "host0", None)
    run_until(sim, lambda: worker.session.is_open)
    return sim, worker


def run_until(sim: Simulation, holds: Callable[[], bool]) -> None:
    while not holds():
        sim._step()


def run_for(sim: Simulation, seconds: float) -> None:
    end = sim.world.now + seconds
    run_until(sim, lambda: sim.world.now >= end)


def test_a_node_leaves_a_silent_scheduler_and_comes_back():
    sim, worker = started()
    link, begin = worker.session.link, sim.world.now
    assert link is not None
    link.break_((1000.0, 0.0))
    run_until(sim, lambda: not worker.session.is_open)
    silence = sim.plan.heartbeat * MISSED_HEARTBEATS
    assert silence <= sim.world.now - begin <= silence + 2 * sim.plan.heartbeat
    assert sim.world.probes["scheduler silent"] == 1
    run_until(sim, lambda: worker.session.is_open)
    assert worker.session.machine.number == 2
    # Messages that the old link still delivers do not reach the new session.
    run_for(sim, 1000.0)
    assert worker.session.is_open
    assert worker.session.machine.number == 2


def test_a_session_with_an_answering_scheduler_stays_open():
    sim, worker = started()
    run_for(sim, 10 * sim.plan.heartbeat * MISSED_HEARTBEATS)
    assert worker.session.is_open
    assert worker.session.machine.number == 1
    assert not sim.world.probes["scheduler silent"]


def test_attempts_to_reach_an_absent_scheduler_become_rarer():
    sim, worker = started()
    sim.scheduler.kill()
    run_until(sim, lambda: not worker.session.is_open)
    outage = worker.session.machine.outage
    assert outage is not None
    run_for(sim, 600.0)
    assert 600 / 5 < outage.n_attempts < 600
    sim._start_scheduler()
    run_until(sim, lambda: worker.session.is_open)
    assert worker.session.machine.outage is None


def test_the_timer_of_a_stopped_node_waits_until_it_goes_on():
    sim, worker = started()
    worker.freeze(5 * sim.plan.heartbeat)
    due = worker.session.machine.due
    run_until(sim, lambda: not worker.is_frozen)
    assert sim.world.now > due
    # One heartbeat was due, however long the stop took; the next one follows an interval later.
    assert worker.session.machine.due == sim.world.now + sim.plan.heartbeat
    assert worker.session.is_open


def test_a_killed_node_makes_no_further_attempt():
    sim, worker = started()
    worker.kill("SIGKILL")
    run_for(sim, 100.0)
    assert worker.session.machine.number == 1
    assert worker.session.link is None
