"""Clusters in virtual time, and the benchmarks that use them."""

from __future__ import annotations

import pytest

from benchmarks import crossing, weak_scaling
from benchmarks.virtual import graphs
from benchmarks.virtual.clock import VirtualClock
from benchmarks.virtual.network import MESSAGE_S, Network

GB_S = 1e9


@pytest.mark.parametrize(("n_workers", "most_fetched", "most_time"), [(2, 150, 1.2), (4, 600, 1.2)])
def test_the_tasks_of_a_stencil_stay_by_their_neighbours_and_all_workers_run(
    n_workers, most_fetched, most_time
):
    graph = crossing.stencil()
    ended = crossing.run(graph, n_workers, 640e-6)
    assert ended.n_fetched <= most_fetched
    assert ended.now <= most_time * len(graph) * 640e-6 / n_workers


@pytest.mark.parametrize("name", crossing.GRAPHS)
def test_every_task_of_a_graph_in_virtual_time_is_done(name):
    graph = crossing.GRAPHS[name]()
    ended = crossing.run(graph, 3, 640e-6)
    assert ended.finished.keys() == graph.keys()


@pytest.mark.parametrize(
    ("graph", "n_slots", "n_steps"),
    [
        (graphs.independent(5), 2, 3),
        (graphs.tree(8), 2, 8),  # 4 + 2 + 1 pairs of slots, and one slot of the last is idle
        (graphs.tree(8), 99, 4),
        (graphs.chains(2, 7), 3, 7),
        (graphs.fork_join(4, 3), 2, 9),
        (graphs.stencil(4, 5), 2, 10),
        # The long chain first, though its tasks are submitted last.
        ({"a": [], "b": [], "c": [], "d": ["c"], "e": ["d"]}, 2, 3),
    ],
)
def test_steps_of_a_graph_are_counted_as_if_only_tasks_took_time(graph, n_slots, n_steps):
    assert graphs.n_steps(graph, n_slots) == n_steps


def arrivals(*transfers: tuple[float, int, int, int]) -> list[float]:
    """Return when each of these arrives: (when it is sent, source, target, nbytes)."""
    clock = VirtualClock()
    network = Network(clock, GB_S)
    ends = [0.0] * len(transfers)

    def send(i: int) -> None:
        _, source, target, nbytes = transfers[i]
        network.send(source, target, nbytes, lambda: ends.__setitem__(i, clock.now - MESSAGE_S))

    for i, transfer in enumerate(transfers):
        clock.at(transfer[0], lambda i=i: send(i))
    while clock.next_due < float("inf"):
        clock.step()
    return ends


def test_a_transfer_takes_its_bytes_through_the_bandwidth():
    assert arrivals((0, 1, 2, 10**9)) == pytest.approx([1.0])


def test_transfers_from_one_host_share_its_link_and_go_faster_when_one_has_ended():
    assert arrivals((0, 1, 2, 10**9), (0, 1, 3, 2 * 10**9)) == pytest.approx([2.0, 3.0])


def test_a_transfer_that_joins_slows_down_the_one_before_it():
    assert arrivals((0, 1, 3, 10**9), (0.5, 2, 3, 10**9)) == pytest.approx([1.5, 2.0])


def test_transfers_between_different_hosts_do_not_share():
    assert arrivals((0, 1, 2, 10**9), (0, 2, 1, 10**9)) == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("name", weak_scaling.WORKLOADS)
def test_weak_scaling_is_measured(name):
    point = weak_scaling.measure(weak_scaling.WORKLOADS[name], 3, GB_S)
    assert 1.0 <= point.virtual_s / point.ideal_s < 1.5
    assert point.scheduler_s > 0


def test_the_inputs_of_a_large_shuffle_by_tasks_stay_where_they_are():
    n = 80
    point = weak_scaling.measure(weak_scaling.exchange, n, 1.25 * GB_S)
    # All parts but those that are read where they were made.
    least = 64_000_000 * (n - 1)
    assert point.fetched_bytes < 1.2 * least
    assert point.virtual_s < 1.5 * point.ideal_s
