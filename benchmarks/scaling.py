"""The scheduler at scale: many workers, many tasks, and nothing to do.

    python -m benchmarks.scaling joins              # 10 000 workers join, beside 200 clients
    python -m benchmarks.scaling workers            # a map on 2, 100, 1 000 and 10 000 workers
    python -m benchmarks.scaling tasks              # a map of 10 000 000: time and memory per task
    python -m benchmarks.scaling idle               # 1 000 connected workers that have no task
    python -m benchmarks.scaling idle --top         # the same, without and with `weft top`

The first three drive the core alone (`bench_scheduler.py`): only the CPU time inside `handle`
counts. The last ones connect to a scheduler in a process of its own; its peers send heartbeats as
workers do, when it asks for them. Each prints its goal with the figure, and takes from seconds to
minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

import psutil

from weft.protocol.net.connection import Connection
from weft.protocol.net.transport import connect
from weft.protocol.trust.security import Security
from weft.protocol.wire import messages as m
from weft.protocol.wire.message import Message
from weft.protocol.wire.roles import Role

from .bench_scheduler import BATCH, Bench, submissions, worker_hello
from .framework.signals import ending_on_sigterm
from .watched import top_running

#: Tasks per worker, and in all, at least.
TASKS_PER_WORKER: Final = 200
LEAST_TASKS: Final = 200_000
HEARTBEAT_S: Final = 2.0
_TOKEN, _CLUSTER_ID = b"a-token-for-measurements", b"c" * 16
#: Pairs of intervals without and with `weft top`.
_N_PAIRS: Final = 3
#: `weft top` has drawn its first screen after this.
_TOP_START_S: Final = 5.0


def _batches(n_tasks: int) -> Iterator[Message]:
    """Yield the submissions of a map; keys and arguments are objects of their own, as received."""
    for start in range(0, n_tasks, BATCH):
        numbers = range(start, min(start + BATCH, n_tasks))
        (message,) = submissions([f"inc-{i:016x}" for i in numbers], [])
        assert isinstance(message, m.SubmitTasks)
        message.args = [b"\x80\x05J%b\x85\x94." % i.to_bytes(4, "little") for i in numbers]
        yield message


def _settle_collector() -> None:
    """Set the collector as the scheduler's process does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 1_000, 50)


def join_seconds(n_workers: int, n_clients: int) -> float:
    """Return the CPU seconds in which workers join, beside clients."""
    return Bench(n_workers, n_clients).join_seconds


def joins(n_workers: int, n_clients: int) -> None:
    """Let workers join."""
    seconds = join_seconds(n_workers, n_clients)
    print(
        f"{n_workers} workers join beside {n_clients} clients: {seconds:.2f} s of CPU, "
        f"{seconds / n_workers * 1e6:.0f} us each (goal: 10 000 in 20 s)"
    )


def mapped(n_tasks: int, n_workers: int) -> Bench:
    """Map short tasks; return the bench with its figures and all results."""
    bench = Bench(n_workers, keeps_keys=False)
    bench.run(_batches(n_tasks))
    assert bench.n_results == n_tasks, f"{bench.n_results} of {n_tasks} have finished"
    return bench


def workers(numbers: list[int]) -> None:
    """Map short tasks on more and more workers."""
    first = 0.0
    for n_workers in numbers:
        n_tasks = max(LEAST_TASKS, TASKS_PER_WORKER * n_workers)
        bench = mapped(n_tasks, n_workers)
        us = bench.seconds / n_tasks * 1e6
        first = first or us
        print(
            f"{n_workers} workers, {n_tasks} tasks: {us:.1f} us of CPU per task, {us / first:.2f} "
            f"times that of the first row (goal: 2), {bench.n_events / n_tasks:.3f} events per "
            "task",
            flush=True,
        )
        del bench
        gc.collect()


def mapped_and_kept(n_tasks: int, n_workers: int) -> tuple[float, float]:
    """Map very many tasks; return CPU seconds, and bytes per task with all results in hand."""
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    bench = mapped(n_tasks, n_workers)
    return bench.seconds, (process.memory_info().rss - before) / n_tasks


def tasks(n_tasks: int, n_workers: int) -> None:
    """Map very many tasks, and hold all results."""
    n_few = LEAST_TASKS // 2
    few_us = mapped(n_few, n_workers).seconds / n_few * 1e6
    seconds, nbytes = mapped_and_kept(n_tasks, n_workers)
    us = seconds / n_tasks * 1e6
    print(
        f"{n_tasks} tasks: {us:.1f} us of CPU per task, {us / few_us:.2f} times that of "
        f"{n_few} (goal: 1.5); {nbytes:.0f} B of memory per task with all results in "
        "hand (goal: 550)"
    )


# -- an idle cluster ------------------------------------------------------------------------------
_SCHEDULER = """
import sys
from weft.protocol.trust.security import Security
from weft.scheduler.config import SchedulerConfig
from weft.scheduler.server import run

def on_started(server):
    print(server.addresses[0], flush=True)

config = SchedulerConfig(["tcp://127.0.0.1:0"], Security(%r, %r), heartbeat_s=%r)
run(config, on_started)
"""


class _Peer:
    """The end of one connection; it counts messages."""

    def __init__(self) -> None:
        self.n_beats = 0
        #: the scheduler has answered the last heartbeat, and when the next one is due
        self.answered = asyncio.Event()
        self.next_s = HEARTBEAT_S
        self.welcomed: asyncio.Future[m.Welcome] = asyncio.get_running_loop().create_future()

    def on_messages(self, connection: Connection, messages: list[Message]) -> None:
        for message in messages:
            if isinstance(message, m.Heartbeat):
                self.next_s = message.next_ms / 1000
                self.answered.set()
            if isinstance(message, m.Welcome):
                connection.wire.epoch, connection.wire.session = message.epoch, message.session
                self.welcomed.set_result(message)

    def on_writable(self, connection: Connection) -> None:
        pass

    def on_closed(self, connection: Connection, error: Any) -> None:
        if not self.welcomed.done():
            self.welcomed.set_exception(error or ConnectionError("closed"))


async def _idle(
    address: str, process: psutil.Process, n_workers: int, seconds: float, with_top: bool
) -> None:
    security = Security(_TOKEN, _CLUSTER_ID)
    loop = asyncio.get_running_loop()
    connections: list[Connection] = []
    peers: list[_Peer] = []
    beats: list[asyncio.Task[None]] = []
    start_cpu = _cpu_s(process)

    async def beat(i: int, peer: _Peer, connection: Connection) -> None:
        status = m.WorkerStatus(
            state="running",
            nthreads=1,
            n_records=0,
            n_ready=0,
            managed_nbytes=0,
            resident_nbytes=50_000_000 + i,
            cpu_percent=1,
        )
        while True:
            peer.answered.clear()
            connection.send([status, m.Heartbeat()])
            await peer.answered.wait()
            peer.n_beats += 1
            await asyncio.sleep(peer.next_s)

    async def join(i: int) -> None:
        peer = _Peer()
        connection = await connect(
            address,
            role=Role.WORKER,
            server_role=Role.SCHEDULER,
            security=security,
            handler=peer,
        )
        connection.send([worker_hello(i)])
        await peer.welcomed
        peers.append(peer)
        connections.append(connection)
        beats.append(asyncio.ensure_future(beat(i, peer, connection)))

    for start in range(0, n_workers, 50):
        await asyncio.gather(*map(join, range(start, min(start + 50, n_workers))))
    joined_s = _cpu_s(process) - start_cpu
    # The pauses have then grown as the number of workers has.
    await asyncio.sleep(2 * max([HEARTBEAT_S, *(peer.next_s for peer in peers)]))
    n_before = sum(peer.n_beats for peer in peers)
    start_s, start_cpu = loop.time(), _cpu_s(process)
    await asyncio.sleep(seconds)
    elapsed_s = loop.time() - start_s
    used = (_cpu_s(process) - start_cpu) / elapsed_s
    n_beats = (sum(peer.n_beats for peer in peers) - n_before) / elapsed_s
    print(
        f"{n_workers} idle workers: {used:.2%} of a core (goal: 1 %)"
        + (
            f", {n_beats:.0f} heartbeats per second, {used / n_beats * 1e6:.0f} us each"
            if n_beats
            else ""
        )
        + f"; {joined_s / max(n_workers, 1) * 1e6:.0f} us of CPU for each that joined; "
        f"{process.memory_info().rss / 1e6:.0f} MB"
    )
    if with_top:
        await _watched(address, process, n_workers, seconds)
    for task in beats:
        task.cancel()
    for connection in connections:
        connection.close()
    await asyncio.gather(*beats, return_exceptions=True)


async def _watched(address: str, process: psutil.Process, n_workers: int, seconds: float) -> None:
    """Measure the scheduler without and with `weft top`, in turns."""
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(_N_PAIRS):
        found[False].append(await _share(process, seconds))
        with top_running(address, _TOKEN, _CLUSTER_ID) as drawn:
            await asyncio.sleep(_TOP_START_S)
            assert drawn[0], "weft top has drawn nothing"
            found[True].append(await _share(process, seconds))
    without, watched = (statistics.median(found[key]) for key in (False, True))
    print(
        f"{n_workers} workers, weft top: {watched - without:.2%} of a core more (goal: 1 %): "
        f"{without:.2%} without it, {watched:.2%} with it, medians of {_N_PAIRS} times "
        f"{seconds:g} s in turns"
    )


async def _share(process: psutil.Process, seconds: float) -> float:
    """Return the part of a core that a process uses."""
    loop = asyncio.get_running_loop()
    start_s, start_cpu = loop.time(), _cpu_s(process)
    await asyncio.sleep(seconds)
    return (_cpu_s(process) - start_cpu) / (loop.time() - start_s)


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def idle(n_workers: int, seconds: float, with_top: bool = False) -> None:
    """Connect workers to a scheduler, let them send heartbeats, and measure its CPU time."""
    code = _SCHEDULER % (_TOKEN, _CLUSTER_ID, HEARTBEAT_S)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            address = child.stdout.readline().strip()
            asyncio.run(_idle(address, psutil.Process(child.pid), n_workers, seconds, with_top))
        finally:
            child.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling")
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("joins")
    one.add_argument("--workers", type=int, default=10_000, metavar="N")
    one.add_argument("--clients", type=int, default=200, metavar="N")
    one = kinds.add_parser("workers")
    one.add_argument("--numbers", type=int, nargs="+", default=[2, 100, 1_000, 10_000])
    one = kinds.add_parser("tasks")
    one.add_argument("--tasks", type=int, default=10_000_000, metavar="N")
    one.add_argument("--workers", type=int, default=2, metavar="N")
    one = kinds.add_parser("idle")
    one.add_argument("--workers", type=int, default=1_000, metavar="N")
    one.add_argument("--seconds", type=float, default=20.0)
    one.add_argument("--top", action="store_true", help="also measure what weft top costs")
    options = parser.parse_args()
    _settle_collector()
    run: dict[str, Callable[[], None]] = {
        "joins": lambda: joins(options.workers, options.clients),
        "workers": lambda: workers(options.numbers),
        "tasks": lambda: tasks(options.tasks, options.workers),
        "idle": lambda: idle(options.workers, options.seconds, options.top),
    }
    with ending_on_sigterm():
        run[options.kind]()


if __name__ == "__main__":
    main()
