"""The cost of a scrape of /metrics for a scheduler with a million tasks and a thousand workers.

    python -m benchmarks.bench_scrape --tasks 1000000 --workers 1000

Printed are the CPU times of the parts: in the scheduler's process the counters of its connections,
and the event that reads the metrics with the encoding of the answer, one after the other in the
same iteration of its loop, so that their sum is printed as well; the report of one worker; the page
of the question `overview`; in the HTTP process the decoding and the page. The collector of garbage
is set as in the scheduler. The goals: a page within 50 ms in all, and no turn of the scheduler
above 5 ms; 2.5 ms for the sum and 1 ms for the overview with 200 functions are aimed at.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from typing import Any

from weft.deploy.http.prometheus import render
from weft.protocol.net.listen import Listener
from weft.protocol.net.stream import StreamConnection
from weft.protocol.net.traffic import TrafficByRole
from weft.protocol.reported import OF_SUPERVISORS, OF_WORKERS, n_numbers
from weft.protocol.wire import messages as m
from weft.protocol.wire.codec import WireState
from weft.protocol.wire.framing import Frame, frame_header
from weft.protocol.wire.levels import Level
from weft.protocol.wire.roles import Role
from weft.scheduler.core.events import PeerConnected, PeerSent, SchedulerTick
from weft.scheduler.measuring import Meter, tune_collector

from .bench_questions import Cluster
from .bench_scheduler import submissions

_N_SCRAPES = 100
_VIEWER = 1_000_000
_CLIENT = 1
#: The parts of a scrape, and an event that comes between two of them.
_COUNT, _READ, _RENDER, _ALL = "count connections", "read and encode", "decode and render", "all"
_SUM, _REPORT, _OVERVIEW = "both, one turn", "report of a worker", "overview"


def fill(cluster: Cluster, n_functions: int) -> None:
    """Let all workers report, as many supervisors as workers, and a client send functions."""
    state = cluster.state
    cluster.play(PeerConnected(_VIEWER, Role.VIEWER, Level.VIEW))
    for peer in list(state.workers):
        report(cluster, peer)
        supervisor = _VIEWER + peer
        cluster.play(PeerConnected(supervisor, Role.SUPERVISOR, Level.WORKER))
        hello = m.RegisterSupervisor(
            supervisor_id=f"s{peer}", session=1, last_epoch=0, facts={"host": "h"}
        )
        numbers = [peer] * n_numbers(OF_SUPERVISORS)
        alive = m.WorkersAlive(worker_ids=[], rss=[], numbers=numbers)
        cluster.play(PeerSent(supervisor, [hello, alive]))
    for i in range(n_functions):
        (message,) = submissions([f"named-{i}"], [])
        message.functions = [i.to_bytes(16, "little")]
        message.function_names = [f"function_{i}"]
        message.function_blobs = [b"function"]
        cluster.play(PeerSent(_CLIENT, [message]))


def report(cluster: Cluster, peer: int) -> float:
    """Let a worker report; return the CPU seconds of the event."""
    numbers = [time.perf_counter_ns() >> 20] * n_numbers(OF_WORKERS)
    status = m.WorkerStatus(
        state="running",
        nthreads=1,
        n_records=1,
        n_ready=1,
        managed_nbytes=1 << 30,
        resident_nbytes=2 << 30,
        cpu_percent=99,
        numbers=numbers,
    )
    start = time.thread_time()
    cluster.play(PeerSent(peer, [status, m.Heartbeat()]))
    return time.thread_time() - start


def listener(n: int) -> Any:
    """Return what counts the traffic of `n` connections, none of which is open."""
    found: Any = object.__new__(Listener)
    found._traffic, found.auth_failures = TrafficByRole(), 0
    for i in range(n):
        connection: Any = object.__new__(StreamConnection)
        connection.peer_role = Role.WORKER if i % 2 else Role.SUPERVISOR
        connection.bytes_in = connection.bytes_out = connection.frames_in = i << 20
        connection.frames_out = connection.messages_in = connection.messages_out = i << 10
        found._traffic.begin(connection)
    return found


def scrape(cluster: Cluster, meter: Meter, listeners: list[Any]) -> dict[str, float]:
    """Do all parts of a scrape; return the CPU seconds of each, and the size of the page."""
    times = [time.thread_time()]
    tick = SchedulerTick(meter.measurements(listeners))
    times.append(time.thread_time())
    cluster.play(tick)
    (answer,) = cluster.play(PeerSent(_VIEWER, [m.GetMetrics(request=1)]))[_VIEWER]
    ((head,),) = WireState().encode([answer])
    times.append(time.thread_time())
    payload = memoryview(head)[len(frame_header(0)) :]
    (received,) = WireState().decode(Frame(payload, []))
    assert isinstance(received, m.Metrics)
    page, _ = render(received.values, {"version": "1", "python": "3"}, "")
    times.append(time.thread_time())
    parts = dict(
        zip(
            (_COUNT, _READ, _RENDER),
            (after - before for before, after in itertools.pairwise(times)),
            strict=True,
        )
    )
    n_series = sum(not line.startswith(b"#") for line in page.splitlines())
    parts[_SUM] = parts[_COUNT] + parts[_READ]
    return {**parts, _ALL: times[-1] - times[0], "bytes": len(page), "series": n_series}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_scrape")
    parser.add_argument("--tasks", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--workers", type=int, default=1000, metavar="N")
    parser.add_argument("--functions", type=int, default=10_000, metavar="N")
    options = parser.parse_args()
    cluster = Cluster(options.tasks, options.workers)
    fill(cluster, options.functions)
    tune_collector()
    listeners, meter = [listener(2 * options.workers)], Meter()
    scrape(cluster, meter, listeners)
    found = [scrape(cluster, meter, listeners) for _ in range(_N_SCRAPES)]
    reports = [report(cluster, peer) for peer in list(cluster.state.workers)[:_N_SCRAPES]]
    pages = [cluster.page("overview", {}, "")[0] for _ in range(_N_SCRAPES)]
    n_names = len(cluster.state.prefixes)
    print(
        f"{len(cluster.state.tasks)} tasks, {options.workers} workers and as many supervisors, "
        f"{n_names} names of functions; {found[-1]['series']} series, {found[-1]['bytes']} bytes"
    )
    print(f"{'CPU time, ms':20} {'median':>8} {'largest':>8}")
    rows = {name: [one[name] for one in found] for name in (_COUNT, _READ, _SUM, _RENDER, _ALL)}
    for name, seconds in {**rows, _REPORT: reports, _OVERVIEW: pages}.items():
        median, largest = statistics.median(seconds) * 1e3, max(seconds) * 1e3
        print(f"{name:20} {median:8.3f} {largest:8.3f}")


if __name__ == "__main__":
    main()
